"""The name of a route, and what may be behind a converter's name."""

from __future__ import annotations

import pytest

from harness.core.route import Route, route_label
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan


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
