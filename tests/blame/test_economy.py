"""What blame does not do twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper
from trials import start

from harness.blame.nodes.node_steps import in_steps
from harness.blame.nodes.walk import Attempts, walk

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
    graph, backend = in_steps(model), Counting()
    attempts: Attempts = {}
    first, second = (
        walk(graph, {"x": x}, backend, start("onnx-reference"), strict=strict, attempts=attempts)
        for strict in (False, True)
    )
    assert backend.loaded == ["Mul", "RandomNormalLike", "Add", "RandomNormalLike", "Add"]
    assert second.values["m"] is first.values["m"]
