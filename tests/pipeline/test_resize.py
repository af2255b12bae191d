"""The sizes that dynamic exports are run with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness_runs import output, rows, run_harness

from harness.core.invocation import Invocation, Recipe, TensorSpec, contiguous_strides
from harness.core.tensors import build_tensors
from harness.pipeline.resize import variants

pytestmark = pytest.mark.slowest(30)

#: Conversions that are right but for one kind of sizes.
RULES = """
from onnxscript import opset18 as op
from harness.convert.rules import dynamo

def _slip(x, wrong):
    shift = op.CastLike(op.Cast(wrong, to=1), x)
    return op.Add(op.Neg(x), shift)

def _largest(x):
    return op.ReduceMax(op.Shape(x), keepdims=0)

def _smallest(x):
    return op.ReduceMin(op.Shape(x), keepdims=0)

@dynamo("aten::neg")
def wrong_where_two_sizes_are_alike(self):
    return _slip(self, op.Equal(_largest(self), _smallest(self)))

@dynamo("aten::sin")
def wrong_where_a_size_is_one(self):
    one = op.Constant(value_int=1)
    return op.Add(op.Sin(self), op.CastLike(op.Cast(op.Equal(_smallest(self), one), to=1), self))

@dynamo("aten::sum.dim_IntList")
def wrong_where_nothing_is_summed(self, dim=None, keepdim=False, dtype=None):
    none = op.Equal(_smallest(self), op.Constant(value_int=0))
    axes = op.Constant(value_ints=list(dim))
    total = op.ReduceSum(self, axes, keepdims=int(keepdim))
    return op.Add(total, op.CastLike(op.Cast(none, to=1), total))
"""


def call(overload: str, *shapes: tuple[int, ...], **more: object) -> Invocation:
    names = ("self", "other", "mat2")
    tensors = [
        (name, TensorSpec(s, "float32", contiguous_strides(s), 0, Recipe(("any",), "plain", 1)))
        for name, s in zip(("self", names[2] if "mm" in overload else names[1]), shapes, strict=False)
    ]
    return Invocation(overload, (*tensors, *more.items()))  # type: ignore[arg-type]


def found_shapes(base: Invocation, count: int = 5) -> list[list[tuple[int, ...]]]:
    return [[spec.shape for spec in one.tensors()] for one in variants(base, count)]


def test_every_kind_of_size_has_its_turn() -> None:
    larger, one, empty, alike, unlike = found_shapes(call("aten.neg.default", (2, 3, 3)))
    assert min(larger[0]) > 2
    assert one == [(1, 3, 3)]
    assert empty == [(0, 3, 3)]
    assert len(set(alike[0])) == 1
    assert unlike[0][1] != unlike[0][2]


def test_sizes_that_must_agree_change_together() -> None:
    for left, right in found_shapes(call("aten.mm.default", (4, 5), (5, 6))):
        assert left[1] == right[0]


def test_a_size_that_others_must_equal_is_unlike_them_only_where_pytorch_takes_it() -> None:
    found = found_shapes(call("aten.add.Tensor", (3, 3), (3, 3)), count=9)
    assert [(4, 3), (4, 3)] in found or [(3, 4), (3, 4)] in found
    assert all(left == right for left, right in found)


def test_sizes_of_nothing_and_one_keep_their_meaning() -> None:
    assert found_shapes(call("aten.neg.default", (1, 0))) == []
    assert all(shape[0] == 1 for (shape,) in found_shapes(call("aten.neg.default", (1, 4))))


@pytest.mark.slow
def test_a_conversion_that_is_wrong_at_some_sizes_is_found(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text(RULES)
    options = ("--shapes", "dynamic", "--dtype", "float32", "--examples", "60", "--no-blame")
    done = run_harness("--rules", file, "--results-dir", tmp_path / "run", *options)
    assert done.returncode == 1, output(done)
    failing: dict[str, set[str]] = {}
    for row in rows(tmp_path / "run"):
        shape = json.loads(row["invocation"])["arguments"]["self"]["tensor"]["shape"]
        if row["outcome"] == "mismatch" and row["signature"] == "values":
            kind = "empty" if 0 in shape else "one" if 1 in shape else "alike" if len(set(shape)) == 1 else "other"
            failing.setdefault(row["overload"], set()).add(kind)
    assert "alike" in failing["aten.neg.default"]
    assert "one" in failing["aten.sin.default"]
    assert "empty" in failing["aten.sum.dim_IntList"]


def test_a_size_that_can_only_be_broadcast_stays() -> None:
    def tensor(*shape: int) -> TensorSpec:
        return TensorSpec(shape, "float32", contiguous_strides(shape), 0, Recipe(("any",), "plain", 1))

    # 12 could be 1, and 2 as well: a model that asks for these sizes cannot leave them open.
    fixed = Invocation("aten.expand.default", (("self", tensor(2, 1, 12)), ("size", (2, 8, 12))))
    assert not variants(fixed, 5)
    kept = Invocation("aten.expand.default", (("self", tensor(2, 1, 12)), ("size", (-1, 8, 12))))
    shapes = {spec.shape for found in variants(kept, 5) for spec in found.tensors()}
    assert {shape[-1] for shape in shapes} == {12}
    assert {shape[0] for shape in shapes} >= {0, 1, 3}


def test_values_keep_referring_to_the_size_that_they_refer_to() -> None:
    def tensor(shape: tuple[int, ...], dtype: str, *domain: str | int) -> TensorSpec:
        return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Recipe(domain, "plain", 3))

    offsets = tensor((4,), "int64", "offsets", 5, 1)
    arguments = (("weight", tensor((6, 4), "float32", "any")), ("indices", tensor((5,), "int64", "index", 6)))
    more = (("offsets", offsets), ("scale_grad_by_freq", False), ("mode", 0), ("sparse", False))
    last = (("per_sample_weights", None), ("include_last_offset", True))
    found = variants(Invocation("aten.embedding_bag.default", (*arguments, *more, *last)), 40)
    assert len(found) > 10
    for variant in found:
        _, indices, ends = build_tensors(variant)
        assert ends[-1].item() == len(indices)
