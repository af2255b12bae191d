"""Blame does nothing twice."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
import torch
from failure_contexts import converter_called, start, trial_of, words_of
from harness_runs import literal_unit, vector
from onnx import helper

from harness.blame.examine import examine
from harness.blame.failure_context import FailureContext
from harness.blame.witnesses.pytorch import ask_decomposition
from harness.compare.diagnosis import Diagnosis
from harness.convert.converter import Converter, ExportRequest
from harness.convert.converters.dynamo import DynamoConverter
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.route import Route
from harness.pipeline.nodes.node_steps import split_steps
from harness.pipeline.nodes.walk import Attempts, walk
from harness.pipeline.program import CallStructure, export_alone
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import find_groups, run_part
from harness.present.evidence import evidence_of_row, sentence

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
    nodes = [
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Mul", ["x", "two"], ["m"]),
        helper.make_node("RandomNormalLike", ["m"], ["r"]),
        helper.make_node("Add", ["m", "r"], ["y"]),
    ]
    made = [onnx.ValueInfoProto(name="y")]
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])]
    opset = helper.make_opsetid("", 20)
    model = helper.make_model(helper.make_graph(nodes, "", given, made), opset_imports=[opset], ir_version=10)
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
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])]
    made = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])]
    opset = helper.make_opsetid("", 20)
    models = [
        helper.make_model(
            helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "", given, made),
            opset_imports=[opset],
            ir_version=10,
        )
        for operator in ("Neg", "RandomNormalLike")
    ]
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
        names = [f"{prefix}{i}" for i in range(3)]
        nodes = [
            helper.make_node("Neg", names[:1], names[1:2]),
            helper.make_node("Neg", names[1:2], names[2:]),
        ]
        given = [helper.make_tensor_value_info(names[0], onnx.TensorProto.FLOAT, [2])]
        graph = helper.make_graph(nodes, "", given, [onnx.ValueInfoProto(name=names[2])])
        stepped = split_steps(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
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
AVERAGE = Invocation(
    "aten.avg_pool2d.default",
    (
        ("self", TensorSpec((1, 1, 2, 2), "float32", (4, 4, 2, 1), 0, Literal((1.0, 2.0, 3.0, 4.0)))),
        ("kernel_size", (2, 2)),
        ("divisor_override", 3),
    ),
)


def test_the_graph_before_the_optimiser_comes_with_the_program_that_is_translated() -> None:
    exporter, asked = Exporter(), list[str]()

    def started(name: str) -> Converter:
        return exporter if name == exporter.name else converter_called(name)

    context = trial_of(AVERAGE)
    again = FailureContext(context.failure, context.settings, started, start, {}, model=context.model)
    decision = examine(again, frozenset(), asked.append)
    assert {"the decomposed program", "the exporter's optimiser"} <= {*asked}
    assert "Exported without dynamo's optimiser, the call gives the same wrong result" in words_of(decision)
    assert len(exporter.exports) == 1


def average_of(size: int, kernel: int = 2) -> Invocation:
    """Return `AVERAGE` with an image of `size` rows and columns."""
    values = Literal(tuple(float(i) for i in range(size * size)))
    image = TensorSpec((1, 1, size, size), "float32", (size * size, size * size, size, 1), 0, values)
    arguments = (("self", image), ("kernel_size", (kernel, kernel)), ("divisor_override", 3))
    return Invocation(AVERAGE.overload, arguments)


def test_of_structures_whose_graphs_are_of_a_kind_a_few_are_looked_into() -> None:
    unit = literal_unit([average_of(size) for size in (2, 3, 4, 5, 6)], backends=["ort-cpu"])
    with Supervisor(timeout=60) as supervisor:
        ((source, groups),) = find_groups(unit, supervisor, print)
        found = [v for part in run_part(unit, supervisor, source, groups) for v in part]
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
    count, of = prod(shape), shape[:1] + shape[2:] if shape[1:] else ()
    strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    scores = TensorSpec(shape, "float32", strides, 0, Literal(tuple(float(i) for i in range(count))))
    places = tuple(prod(of[i + 1 :]) for i in range(len(of)))
    target = TensorSpec(of, "int64", places, 0, Literal((0,) * prod(of)))
    return Invocation("aten.cross_entropy_loss.default", (("self", scores), ("target", target)))


def test_of_failures_that_say_the_same_but_are_not_blamed_on_the_same_more_are_looked_into() -> None:
    one, several = [scored(classes) for classes in range(2, 6)], [scored(n, 3, 2, 0) for n in range(2, 6)]
    unit = literal_unit([*one, *several], backends=["ort-cpu"])
    with Supervisor(timeout=60) as supervisor:
        ((source, groups),) = find_groups(unit, supervisor, print)
        found = [v for part in run_part(unit, supervisor, source, groups) for v in part]
    assert len({v.signature for v in found}) == 1
    blames = {v.case_id: v.blame for v in found}
    # The exporter emits what takes a batch only; what it emits for a batch the runtime has to run.
    assert {blames[call.case_id] for call in one} == {"converter"}
    assert {blames[call.case_id] for call in several} == {"backend"}


def normalised(size: int, dtype: str) -> Invocation:
    """A call whose mean the CPU's kernel gives in its own dtype, PyTorch's rules and the graph in float32."""
    rows = TensorSpec((size, 2), dtype, (2, 1), 0, Literal(tuple(float(i) for i in range(2 * size))))
    nothing = (("weight", None), ("bias", None))
    arguments = (("input", rows), ("normalized_shape", (2,)), *nothing, ("eps", 0.5))
    return Invocation("aten.native_layer_norm.default", arguments)


def test_a_wrong_dtype_is_whose_it_is_in_another_call_of_the_dtype() -> None:
    calls = {dtype: [normalised(size, dtype) for size in range(1, 7)] for dtype in ("float16", "float64")}
    unit = literal_unit([call for some in calls.values() for call in some], backends=["ort-cpu"])
    with Supervisor(timeout=60) as supervisor:
        ((source, groups),) = find_groups(unit, supervisor, print)
        found = [v for part in run_part(unit, supervisor, source, groups) for v in part]
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
        source = vector(range(index + 2), "int32")
        arguments = (("self", vector([5] * (index + 2), "int64")), ("src", source), ("dim", 0), ("end", None))
        call = Invocation("aten.slice_scatter.default", arguments)
        model = export_alone(
            converter_called("dynamo"), CallStructure(call, outputs=1, index=index), Route(converter="dynamo")
        )
        context = trial_of(call, model=model, backend="onnx-reference")
        failure = replace(context.failure, group=CaseGroup.of(call, index=index))
        (said,) = ask_decomposition.testify(
            FailureContext(failure, context.settings, lambda name: exporter, start, exports, model=model)
        )
        assert "but dynamo translates the operator itself" in sentence(said)
    assert len(exporter.exports) == 1
