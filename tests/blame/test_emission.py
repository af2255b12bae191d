"""The conversion function that makes what is wrong, by what runs in an export."""

from __future__ import annotations

from typing import Any

import pytest
from failure_contexts import converter_called, trial_of
from harness_runs import vector

from harness.blame.examine import examine
from harness.blame.witnesses.emission import find_emitting_function
from harness.compare.verdict import Outcome, Stage
from harness.convert.provenance import emitted
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.route import Route
from harness.pipeline.program import CallStructure

BOOLS = TensorSpec((2, 2), "bool", (2, 1), 0, Literal((True, False, False, False)))
SQUARE = TensorSpec((2, 2), "float32", (2, 1), 0, Literal((1.0, 2.0, 3.0, 4.0)))
BATCH = TensorSpec((1, 2, 2), "float32", (4, 2, 1), 0, Literal((1.0, 2.0, 3.0, 4.0)))
IMAGE = TensorSpec((1, 1, 4, 4), "float32", (16, 16, 4, 1), 0, Literal(tuple(float(i) for i in range(16))))


def call(overload: str, **arguments: Any) -> Invocation:
    """A call of an operator."""
    return Invocation(overload, tuple(arguments.items()))


@pytest.mark.parametrize(
    ("case", "function"),
    [
        # Both leave their operator to one function; what is named is what ran.
        (call("aten.remainder.Scalar", self=SQUARE, other=2.0), "_aten_remainder"),
        (call("aten.avg_pool2d.default", self=IMAGE, kernel_size=(2, 2)), "_aten_avg_pool_onnx"),
        (call("aten.any.default", self=BOOLS), "aten_any"),
        (call("aten.any.dim", self=BOOLS, dim=0), "aten_any_dim"),
        # A function that is built from its source, and never runs.
        (call("aten.addbmm.default", self=SQUARE, batch1=BATCH, batch2=BATCH), "aten_addbmm"),
    ],
    ids=lambda value: value.overload if isinstance(value, Invocation) else "",
)
def test_the_function_that_ran_is_named(case: Invocation, function: str) -> None:
    (testimony,) = find_emitting_function.testify(trial_of(case))
    assert testimony.facts["function"] == function
    assert testimony.facts["overload"] == case.overload
    assert testimony.facts["file"].startswith("onnxscript/function_libs/torch_lib/ops/")


def test_a_rejected_node_is_that_of_the_innermost_function() -> None:
    # ONNX's convolution has no integers.
    image = TensorSpec((1, 1, 3, 3), "int32", (9, 9, 3, 1), 0, Literal(tuple(range(9))))
    case = call("aten.conv2d.default", input=image, weight=image)
    context = trial_of(case, outcome=Outcome.ERROR, stage=Stage.CHECK)
    (testimony,) = find_emitting_function.testify(context)
    assert testimony.facts["function"] == "_aten_convolution_onnx"


def test_of_a_decomposed_call_the_failing_inner_call_is_sought() -> None:
    # A float32 constant in a float64 graph: the distance is wrong from the sum with it on.
    rows = [vector([0.1, 0.2, 0.3], "float64"), vector([0.4, 0.2, 0.1], "float64")]
    case = call("aten.pairwise_distance.default", x1=rows[0], x2=rows[1], eps=1e-3)
    (testimony,) = find_emitting_function.testify(trial_of(case))
    assert (testimony.facts["function"], testimony.facts["overload"]) == (
        "aten_scalar_tensor",
        "aten.scalar_tensor.default",
    )


def test_a_check_of_sizes_that_the_exporter_drops_is_the_converters() -> None:
    def pooled(*sizes: int) -> Invocation:
        return call("aten.adaptive_avg_pool1d.default", self=rows(*sizes), output_size=(5,))

    context = trial_of(pooled(1, 16), pooled(1, 15), dynamic=True, outcome=Outcome.ERROR)
    decision = examine(context, frozenset(), lambda name: None)
    assert (decision.blame, decision.rule) == ("converter", "drops-guard")


def rows(*sizes: int) -> TensorSpec:
    """A row-major tensor of two dimensions."""
    count = sizes[0] * sizes[1]
    return TensorSpec(sizes, "float32", (sizes[1], 1), 0, Literal(tuple(float(i) for i in range(count))))


def test_torchscripts_functions_are_known_too() -> None:
    context = trial_of(call("aten.celu.default", self=SQUARE), converter="torchscript")
    (testimony,) = find_emitting_function.testify(context)
    assert (testimony.facts["library"], testimony.facts["function"]) == ("TorchScript", "celu")


def test_helpers_of_all_functions_are_not_named() -> None:
    structure = CallStructure(call("aten.view.default", self=SQUARE, size=(4,)), outputs=1)
    graph = emitted(converter_called("dynamo"), structure.request(Route(converter="dynamo")))
    names = {function.name for i in range(len(graph.lines)) for function in graph.functions(i)}
    assert names == {"aten_view"}
