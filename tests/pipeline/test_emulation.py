"""What the dtypes of a graph explain, and what they do not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_texts import onnx_model

from harness.core.dtypes import Array
from harness.pipeline.emulation import Emulation
from harness.pipeline.leeway import emulating_runtime
from harness.pipeline.nodes.node_steps import split_steps

RANDOM = np.random.default_rng(0)


def emulated(model: onnx.ModelProto, **feeds: Array) -> Emulation:
    """Return the emulation of a graph with these inputs, which are rounded to what it declares."""
    return Emulation(
        split_steps(model), feeds, emulating_runtime(), {name: np.ones(a.shape, bool) for name, a in feeds.items()}
    )


@pytest.fixture(scope="module")
def softmax() -> tuple[Emulation, Array]:
    """A float16 attention score, and its result in float64."""
    x, w = RANDOM.normal(size=(4, 16)), RANDOM.normal(size=(16, 16))
    nodes = "y = MatMul (x, w) z = Softmax (y)"
    model = onnx_model("float16[4,16] x", "float16[4,16] z", nodes, w=w.astype(np.float16))
    e = np.exp(x @ w - (x @ w).max(-1, keepdims=True))
    return emulated(model, x=x.astype(np.float16)), e / e.sum(-1, keepdims=True)


def test_the_result_in_more_bits_is_explained_and_a_hundredth_is_not(softmax: tuple[Emulation, Array]) -> None:
    emulation, right = softmax
    assert emulation.is_explained("z", right, right).all()
    large = right > 0.01
    off = np.where(large, right * 1.03, right)
    assert not emulation.is_explained("z", right, off)[large].any()


def test_the_result_as_asked_is_explained(softmax: tuple[Emulation, Array]) -> None:
    emulation, right = softmax
    assert emulation.asked is not None
    assert emulation.is_explained("z", right, emulation.asked["z"].astype(np.float64)).all()


def test_a_result_that_leaves_the_range_is_not_explained() -> None:
    model = onnx_model("float16[3] x", "float16[3] y", "s = Mul (x, x) y = Sqrt (s)")
    x = np.array([300.0, 2.3, 1.7])
    emulation = emulated(model, x=x.astype(np.float16))
    assert emulation.asked is not None
    asked = emulation.asked["y"].astype(np.float64)
    assert np.isinf(asked[0])
    assert emulation.is_explained("y", x, asked).tolist() == [False, True, True]
    # A runtime that keeps float32 on the way is right.
    assert emulation.is_explained("y", x, x * (1 + 2**-12)).all()


def test_a_step_of_a_quantised_value_is_explained_and_five_are_not() -> None:
    nodes = "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)"
    model = onnx_model("float[64] x", "float[64] y", nodes, s=np.float32(0.1), z=np.int8(0))
    x = RANDOM.uniform(-10, 10, size=64).astype(np.float32)
    emulation = emulated(model, x=x)
    wide = x.astype(np.float64)
    assert emulation.is_explained("y", wide, wide + 0.1, pooled=True).all()
    assert not emulation.is_explained("y", wide, wide + 0.5, pooled=True).any()


def test_which_index_roundings_decide_is_left_open() -> None:
    model = onnx_model("float16[2,3] x", "int64[2] y", "y = ArgMax <axis = 1, keepdims = 0> (x)")
    x = np.array([[1.0001, 1.0002, 0.0], [1.0, 5.0, 0.0]])
    emulation = emulated(model, x=x.astype(np.float16))
    right = np.array([1.0, 1.0])
    assert emulation.is_explained("y", right, np.array([0.0, 0.0])).tolist() == [True, False]


def test_what_is_drawn_at_random_explains_nothing() -> None:
    model = onnx_model("float16[3] x", "float16[3] y", "r = RandomNormalLike (x) y = Add (x, r)")
    emulation = emulated(model, x=np.ones(3, np.float16))
    assert emulation.asked is None
    assert not emulation.is_explained("y", np.ones(3), np.ones(3)).any()
