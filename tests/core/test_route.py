"""The name of a route, and what may be behind a converter's name."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from harness.compare.verdict import Outcome
from harness.convert.converter import find_converter
from harness.convert.transform import TRANSFORMS, TransformEntry
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.route import Route, route_label
from harness.pipeline.program import call_case
from harness.pipeline.run_case import run_case
from harness.pipeline.started_route import StartedRoute
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.run.backend import BACKENDS


@pytest.mark.parametrize(
    "text", ["dynamo", "dynamo@18", "dynamo@20+float16 → ort-cpu", "torchscript → onnx-api:onnxruntime.backend", "a@b"]
)
def test_a_route_is_what_its_name_says(text: str) -> None:
    assert str(Route.parse(text)) == text


def test_an_opset_is_named_only_where_it_tells_routes_apart() -> None:
    route = Route(converter="dynamo", opset=18, backend="ort-cpu", dynamic=True)
    assert (str(route), route.shape_mode) == ("dynamo → ort-cpu", "dynamic")
    assert str(route.named_at(20)) == "dynamo@20 → ort-cpu"
    assert Route.parse("dynamo@20+a+b").transforms == ("a", "b")
    assert route_label("dynamo@18", "trt", "dynamic") == "dynamo@18 → trt, dynamic"


def test_a_transform_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageProblem, match="no such transform"):
        make_plan(Options(ops=("celu",), converters=("dynamo+no-such-transform",)))


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its first input rounded to float16."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph, name = changed.graph, changed.graph.input[0].name
    for node in graph.node:
        node.input[:] = [f"{name}_rounded" if taken == name else taken for taken in node.input]
    down = helper.make_node("Cast", [name], [f"{name}_half"], to=TensorProto.FLOAT16)
    up = helper.make_node("Cast", [f"{name}_half"], [f"{name}_rounded"], to=TensorProto.FLOAT)
    nodes = [down, up, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return changed


@pytest.mark.parametrize(("precision", "outcome"), [("float16", Outcome.PASS), ("", Outcome.MISMATCH)])
def test_a_single_case_is_judged_by_the_dtype_that_its_transforms_compute_in(
    precision: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = TransformEntry(
        name="halved",
        probe=lambda: None,
        apply=halved,
        version=lambda: "1",
        precision=precision,
    )
    monkeypatch.setitem(TRANSFORMS, entry.name, entry)
    spec = TensorSpec((3,), "float32", (1,), 0, Literal((0.1, 0.2, 0.3)))
    case = call_case(Invocation("aten.exp.default", (("self", spec),)))
    route = Route.parse("dynamo+halved → ort-cpu")
    converter = find_converter("dynamo").create(False)
    run = run_case(case, StartedRoute(route, converter, BACKENDS.find("ort-cpu")[0].create("")))
    assert run.outcome is outcome
