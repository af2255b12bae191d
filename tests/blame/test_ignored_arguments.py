"""Graphs that ignore an argument of the call, and results that exporters compute themselves."""

from __future__ import annotations

import numpy as np
import pytest
from failure_contexts import graph_of_nodes, trial_of, words_of
from harness_runs import vector
from onnx import helper

from harness.blame.examine import examine
from harness.blame.failure_context import FailureContext
from harness.compare.diagnosis import Diagnosis
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides


def blamed(context: FailureContext) -> Diagnosis:
    return examine(context, frozenset(), lambda name: None)


def tensor(shape: tuple[int, ...], dtype: str, values: list[float]) -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(values)))


SMOOTHED = Invocation(
    "aten.cross_entropy_loss.default",
    (
        ("self", tensor((2, 3), "float32", [0.5, -1.0, 2.0, 0.25, 3.0, -0.5])),
        ("target", vector([2, 0], "int64")),
        ("weight", None),
        ("label_smoothing", 0.25),
    ),
)
OVERRIDDEN = Invocation(
    "aten.avg_pool2d.default",
    (
        ("self", tensor((1, 1, 2, 2), "float32", [1.0, 2.0, 3.0, 4.0])),
        ("kernel_size", (2, 2)),
        ("divisor_override", 3),
    ),
)


@pytest.mark.parametrize(("call", "argument"), [(SMOOTHED, "label_smoothing"), (OVERRIDDEN, "divisor_override")])
def test_an_argument_that_a_graph_ignores_is_named(call: Invocation, argument: str) -> None:
    decision = blamed(trial_of(call))
    assert decision.blame == "converter"
    assert "ignores an argument" in words_of(decision)
    assert f"Without `{argument}`, PyTorch gives ort-cpu's result." in words_of(decision)


def test_truth_values_that_are_alike_by_chance_say_nothing() -> None:
    # Wrong at one element, where the call without `equal_nan` is false, too.
    call = Invocation(
        "aten.isclose.default",
        (
            ("self", vector([float("nan"), 1.0])),
            ("other", vector([float("nan"), 1.0])),
            ("rtol", 0.1),
            ("atol", 0.1),
            ("equal_nan", True),
        ),
    )
    model = graph_of_nodes(call, [helper.make_node("Equal", ["c0_i0", "c0_i1"], ["c0_o0"])])
    decision = blamed(trial_of(call, model=model))
    assert decision.blame == "converter"
    assert "Without" not in words_of(decision)


def test_a_result_that_the_exporter_computed_is_its_own() -> None:
    # The only element of a window is 1.
    call = Invocation("aten.blackman_window.default", (("window_length", 1), ("dtype", None)))
    decision = blamed(trial_of(call))
    assert decision.blame == "converter"
    assert "The graph has c0_o0 as a constant." in words_of(decision)


def test_a_copy_of_an_input_is_no_constant() -> None:
    call = Invocation("aten.neg.default", (("self", vector([1.0, 2.0])),))
    nodes = [helper.make_node("Identity", ["c0_i0"], ["c0_o0"])]
    assert "constant" not in words_of(blamed(trial_of(call, model=graph_of_nodes(call, nodes))))
    held = {"number": np.asarray([3.0, 4.0], np.float32)}
    nodes = [helper.make_node("Identity", ["number"], ["c0_o0"])]
    assert "as a constant" in words_of(blamed(trial_of(call, model=graph_of_nodes(call, nodes, held))))


def test_one_number_that_is_alike_without_an_argument_says_nothing_beside_another() -> None:
    # 3 comes without `alpha` too, which the other element has.
    call = Invocation(
        "aten.add.Tensor",
        (("self", vector([1.0, 1.0])), ("other", vector([2.0, 2.0])), ("alpha", 2)),
    )
    nodes = [
        helper.make_node("Mul", ["c0_i1", "scales"], ["scaled"]),
        helper.make_node("Add", ["c0_i0", "scaled"], ["c0_o0"]),
    ]
    model = graph_of_nodes(call, nodes, {"scales": np.array([1.0, 2.0], np.float32)})
    decision = blamed(trial_of(call, model=model))
    assert decision.blame == "converter"
    assert "Without" not in words_of(decision)
