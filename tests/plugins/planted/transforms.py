"""Transforms that break a model, each in another way, and some that keep it right."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.inliner
import onnx_ir
import onnxscript.optimizer
from onnx import TensorProto, helper

from harness.convert.transform import TransformEntry, register


def wrong_sign(model: onnx.ModelProto) -> onnx.ModelProto:
    """Negate every output that is a float."""
    graph = model.graph
    for output in graph.output:
        if output.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
            _negate(graph, output.name)
    return model


def _negate(graph: onnx.GraphProto, name: str) -> None:
    for node in graph.node:
        node.output[:] = [f"{name}_right" if made == name else made for made in node.output]
        node.input[:] = [f"{name}_right" if taken == name else taken for taken in node.input]
    graph.node.append(helper.make_node("Neg", [f"{name}_right"], [name]))


def dropped_cast(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace every cast by a copy."""
    for node in model.graph.node:
        if node.op_type == "Cast":
            node.op_type = "Identity"
            del node.attribute[:]
    return model


def lost_name(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rename the first output."""
    old = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["renamed" if made == old else made for made in node.output]
        node.input[:] = ["renamed" if taken == old else taken for taken in node.input]
    model.graph.output[0].name = "renamed"
    return model


def unsorted(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the last node first."""
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes[-1:], *nodes[:-1]])
    return model


def raises(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raise for every model."""
    raise KeyError("a value that is not there")


def wrong_in_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Negate every output in float16."""
    for output in model.graph.output:
        if output.type.tensor_type.elem_type == TensorProto.FLOAT16:
            _negate(model.graph, output.name)
    return model


def unchanged(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model."""
    return model


def through_ir(model: onnx.ModelProto) -> onnx.ModelProto:
    """Read the model into onnx-ir, and write it again."""
    return onnx_ir.serde.serialize_model(onnx_ir.serde.deserialize_model(model))


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Run onnxscript's optimiser."""
    ir_model = onnx_ir.serde.deserialize_model(model)
    onnxscript.optimizer.optimize(ir_model)
    return onnx_ir.serde.serialize_model(ir_model)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline all functions of the model."""
    return onnx.inliner.inline_local_functions(model)


WRONG: tuple[Callable[[onnx.ModelProto], onnx.ModelProto], ...] = (
    *(wrong_sign, dropped_cast, lost_name, unsorted, raises, wrong_in_float16),
)
RIGHT: tuple[Callable[[onnx.ModelProto], onnx.ModelProto], ...] = (unchanged, through_ir, folded, inlined)

for transform in (*WRONG, *RIGHT):
    register(TransformEntry(name=transform.__name__, probe=lambda: None, apply=transform, version=lambda: "1"))
