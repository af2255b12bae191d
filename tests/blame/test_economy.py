"""Blame does nothing twice."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
import torch
from failure_contexts import converter_called, start, states, trial_of
from harness_runs import literal_unit
from onnx_texts import onnx_model
from recorded_rows import call, tensor

from harness.blame.examine import examine
from harness.blame.failure_context import FailureContext
from harness.blame.witnesses.pytorch import ask_decomposition
from harness.compare.diagnosis import Diagnosis, Finding
from harness.compare.verdict import Verdict
from harness.convert.converter import Converter, ExportRequest
from harness.convert.converters.dynamo import DynamoConverter
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.nodes.node_steps import split_steps
from harness.pipeline.nodes.walk import Attempts, walk
from harness.pipeline.program import CallStructure, export_alone
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, find_groups, run_part
from harness.present.evidence import evidence_of_row

ORT = start("ort-cpu")


class Counting:
    """ONNX Runtime, which notes the operators that it loads."""

    name, device, version = "counting", "cpu", ""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def narrows(self, dtype: str) -> str | None:
        return None

    def load(self, model: onnx.ModelProto, shapes: Any) -> Any:
        self.loaded += [node.op_type for node in model.graph.node]
        return ORT.load(model, shapes)


def test_another_walk_runs_only_nodes_that_draw() -> None:
    x = np.array([1.0, 2.0], np.float32)
    nodes = "two = Constant <value_float = 2.0> () m = Mul (x, two) r = RandomNormalLike (m) y = Add (m, r)"
    model = onnx_model("float[2] x", "float[2] y", nodes)
    graph, backend = split_steps(model), Counting()
    attempts: Attempts = {}
    first, second = (
        walk(graph, {"x": x}, backend, start("onnx-reference"), strict=strict, attempts=attempts)
        for strict in (False, True)
    )
    assert backend.loaded == ["Mul", "RandomNormalLike", "Add", "RandomNormalLike", "Add"]
    assert second.values["m"] is first.values["m"]


def test_a_model_that_draws_nothing_is_loaded_once_for_all_trials_of_a_task() -> None:
    x = np.array([1.0, 2.0], np.float32)
    models = [onnx_model("float[2] x", "float[2] y", f"y = {name} (x)") for name in ("Neg", "RandomNormalLike")]
    contexts, backend = [trial_of(AVERAGE), trial_of(AVERAGE)], Counting()
    exports: dict[tuple[int, str], object] = {}
    for context in contexts:
        one = FailureContext(context.failure, context.settings, context.converter, context.backend, exports)
        for model in models:
            session = one.loading_once(backend).load(model, None)
            assert session.run({"x": x})[0].shape == (2,)
    assert backend.loaded == ["Neg", "RandomNormalLike", "RandomNormalLike"]


def test_the_same_node_is_the_same_model_whatever_a_graph_calls_its_values() -> None:
    x = np.array([1.0, 2.0], np.float32)
    steps = []
    for prefix in ("a", "b"):
        a, b, c = (f"{prefix}{i}" for i in range(3))
        stepped = split_steps(onnx_model(f"float[2] {a}", f"float[2] {c}", f"{b} = Neg ({a}) {c} = Neg ({b})"))
        steps += [stepped.alone(step, dict.fromkeys(step.inputs, x)) for step in stepped.steps]
    assert len(steps) == 4
    assert len({model.SerializeToString(deterministic=True) for model in steps}) == 1


class Exporter(DynamoConverter):
    """The exporter, which notes how often it is called."""

    def __init__(self) -> None:
        super().__init__(public_api=False)
        self.exports: list[ExportRequest] = []

    def program(self, request: ExportRequest) -> torch.onnx.ONNXProgram:
        self.exports.append(request)
        return super().program(request)


#: The exporters drop `divisor_override`.
AVERAGE = call(
    "aten.avg_pool2d.default", self=tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), kernel_size=(2, 2), divisor_override=3
)


def test_the_graph_before_the_optimiser_comes_with_the_program_that_is_translated() -> None:
    exporter, asked = Exporter(), list[str]()

    def started(name: str) -> Converter:
        return exporter if name == exporter.name else converter_called(name)

    context = trial_of(AVERAGE)
    again = FailureContext(context.failure, context.settings, started, start, {}, model=context.model)
    decision = examine(again, frozenset(), asked.append)
    assert {"the decomposed program", "the exporter's optimiser"} <= {*asked}
    assert states(decision, "unoptimised-export/same")
    assert len(exporter.exports) == 1


def average_of(size: int, kernel: int = 2) -> Invocation:
    """Return `AVERAGE` with an image of `size` rows and columns."""
    image = tensor([float(i) for i in range(size * size)], shape=(1, 1, size, size))
    return call(AVERAGE.overload, self=image, kernel_size=(kernel, kernel), divisor_override=3)


def verdicts_of(unit: Unit) -> list[Verdict]:
    """Return the verdicts of one task."""
    with Supervisor(timeout=60) as supervisor:
        ((source, groups),) = find_groups(unit, supervisor, print)
        return [verdict for part in run_part(unit, supervisor, source, groups) for verdict in part]


def test_of_structures_whose_graphs_are_of_a_kind_a_few_are_looked_into() -> None:
    unit = literal_unit([average_of(size) for size in (2, 3, 4, 5, 6)], backends=["ort-cpu"])
    found = verdicts_of(unit)
    assert [v.blame for v in found] == ["converter"] * 5
    inherited = {v.case_id: evidence_of_row(vars(v)).startswith("Same cause as case ") for v in found}
    # The smallest two and the largest are examined.
    assert [inherited[average_of(size).case_id] for size in (2, 3, 4, 5, 6)] == [
        False,
        False,
        True,
        True,
        False,
    ]


def scored(*shape: int) -> Invocation:
    """Scores of classes, of one sample or of a batch of samples of several places each."""
    places = shape[:1] + shape[2:] if shape[1:] else ()
    scores = tensor([float(i) for i in range(prod(shape))], shape=shape)
    target = tensor([0] * prod(places), "int64", shape=places)
    return call("aten.cross_entropy_loss.default", self=scores, target=target)


def test_of_failures_that_say_the_same_but_are_not_blamed_on_the_same_more_are_looked_into() -> None:
    one, several = [scored(classes) for classes in range(2, 6)], [scored(n, 3, 2, 0) for n in range(2, 6)]
    unit = literal_unit([*one, *several], backends=["ort-cpu"])
    found = verdicts_of(unit)
    assert len({v.signature for v in found}) == 1
    blames = {v.case_id: v.blame for v in found}
    # The exporter emits what takes a batch only; what it emits for a batch the runtime has to run.
    assert {blames[call.case_id] for call in one} == {"converter"}
    assert {blames[call.case_id] for call in several} == {"backend"}


def normalised(size: int, dtype: str) -> Invocation:
    """A call whose mean the CPU's kernel gives in its own dtype, PyTorch's rules and the graph in float32."""
    rows = tensor([float(i) for i in range(2 * size)], dtype, shape=(size, 2))
    nothing = {"weight": None, "bias": None}
    return call("aten.native_layer_norm.default", input=rows, normalized_shape=(2,), **nothing, eps=0.5)


def test_a_wrong_dtype_is_whose_it_is_in_another_call_of_the_dtype() -> None:
    calls = {dtype: [normalised(size, dtype) for size in range(1, 7)] for dtype in ("float16", "float64")}
    unit = literal_unit([call for some in calls.values() for call in some], backends=["ort-cpu"])
    found = verdicts_of(unit)
    assert all(v.message.startswith("dtype: ") for v in found)
    # PyTorch has float16 statistics on the CPU, by its kernel and its fake tensors; by the device "meta" float32.
    assert {v.blame for v in found} == {"converter"}
    for dtype in calls:
        rows = {v.case_id: Diagnosis.from_row(vars(v)) for v in found if v.dtype == dtype}
        examined = {case for case, diagnosis in rows.items() if diagnosis and not diagnosis.inherited_from}
        inherited = {diagnosis.inherited_from for diagnosis in rows.values() if diagnosis} - {""}
        assert inherited
        assert inherited <= examined < rows.keys()


def test_whether_an_operator_is_decomposed_is_found_out_once() -> None:
    exporter, exports = Exporter(), dict[tuple[int, str], object]()
    for index in range(2):
        source = tensor([*range(index + 2)], "int32")
        scattered = call("aten.slice_scatter.default", self=[5] * (index + 2), src=source, dim=0, end=None)
        model = export_alone(
            converter_called("dynamo"), CallStructure(scattered, outputs=1, index=index), Route(converter="dynamo")
        )
        context = trial_of(scattered, model=model, backend="onnx-reference")
        failure = replace(context.failure, group=CaseGroup.of(scattered, index=index))
        (said,) = ask_decomposition.testify(
            FailureContext(failure, context.settings, lambda name: exporter, start, exports, model=model)
        )
        assert (said.statement, said.finding) == ("decomposition", Finding.OTHER)
    assert len(exporter.exports) == 1
