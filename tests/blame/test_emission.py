"""The conversion function that makes what is wrong, by what runs in an export."""

from __future__ import annotations

from math import prod

import pytest
from failure_contexts import converter_called, diagnosis_of, trial_of
from recorded_rows import call, tensor, vector

from harness.blame.witnesses.emission import find_emitting_function
from harness.compare.verdict import Outcome, Stage
from harness.convert.provenance import emitted
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.program import CallStructure

BOOLS = tensor([[True, False], [False, False]])
SQUARE = tensor([[1.0, 2.0], [3.0, 4.0]])
BATCH = tensor([[[1.0, 2.0], [3.0, 4.0]]])
IMAGE = tensor([float(i) for i in range(16)], shape=(1, 1, 4, 4))


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
    image = tensor([*range(9)], "int32", shape=(1, 1, 3, 3))
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
        rows = tensor([float(i) for i in range(prod(sizes))], shape=sizes)
        return call("aten.adaptive_avg_pool1d.default", self=rows, output_size=(5,))

    context = trial_of(pooled(1, 16), pooled(1, 15), dynamic=True, outcome=Outcome.ERROR)
    decision = diagnosis_of(context)
    assert (decision.blame, decision.rule) == ("converter", "drops-guard")


def test_torchscripts_functions_are_known_too() -> None:
    context = trial_of(call("aten.celu.default", self=SQUARE), converter="torchscript")
    (testimony,) = find_emitting_function.testify(context)
    assert (testimony.facts["library"], testimony.facts["function"]) == ("TorchScript", "celu")


def test_helpers_of_all_functions_are_not_named() -> None:
    structure = CallStructure(call("aten.view.default", self=SQUARE, size=(4,)), outputs=1)
    graph = emitted(converter_called("dynamo"), structure.request(Route(converter="dynamo")))
    names = {function.name for i in range(len(graph.lines)) for function in graph.functions(i)}
    assert names == {"aten_view"}
