"""What the text of an operator asks of its inputs, and ONNX's checker and inference do not check."""

from __future__ import annotations

import re

import onnx

from harness.blame.nodes.definition import Definition
from harness.execute import emitted_opset

#: How the text says that a tensor has no dimension.
_NO_DIMENSION = re.compile(r"^A 0-D tensor|^Scalar\.|must be a scalar")


def not_without_dimensions(definition: Definition) -> str:
    """Which input of a step has a dimension although the operator's text denies it one; "" for none."""
    node = definition.step.node
    if not definition.step.is_single or node.domain not in ("", "ai.onnx"):
        return ""
    schema = onnx.defs.get_schema(node.op_type, emitted_opset(definition.graph.model) or 1)
    for name, expected in zip(node.input, schema.inputs, strict=False):
        text = " ".join(expected.description.split())
        if name and definition.inputs[name].ndim and _NO_DIMENSION.search(text):
            quoted, shape = text.partition(". ")[0], list(definition.inputs[name].shape)
            return f"its input {expected.name} is “{quoted}” and has the shape {shape}"
    return ""
