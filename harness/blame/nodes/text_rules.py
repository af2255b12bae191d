"""What the text of an operator asks of its inputs, and ONNX's checker and inference do not check."""

from __future__ import annotations

import re
from typing import Any

import onnx

from harness.blame.nodes.definition import Definition
from harness.execute import emitted_opset

#: How the text says that a tensor has no dimension, and how many it has at least.
_NO_DIMENSION = re.compile(r"^A 0-D tensor|^Scalar\.|must be a scalar")
_LEAST = re.compile(r"\brank [a-z] >= (\d)")


def not_of_rank(definition: Definition) -> dict[str, Any]:
    """The input of a step with another number of dimensions than the operator's text allows; nothing where
    there is none."""
    node = definition.step.node
    if not definition.step.is_single or node.domain not in ("", "ai.onnx"):
        return {}
    schema = onnx.defs.get_schema(node.op_type, emitted_opset(definition.graph.model) or 1)
    for name, expected in zip(node.input, schema.inputs, strict=False):
        if not name:
            continue
        text = " ".join(expected.description.split())
        shape, least = definition.inputs[name].shape, _LEAST.search(text)
        if (shape and _NO_DIMENSION.search(text)) or (least and len(shape) < int(least[1])):
            quoted = text.partition(". ")[0]
            return {"input": expected.name, "quote": quoted, "shape": list(shape)}
    return {}
