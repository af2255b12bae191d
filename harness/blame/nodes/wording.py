"""A node, what it gets and what it gives, for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from harness.blame.nodes.definition import Definition
from harness.blame.nodes.node_steps import NodeStep
from harness.blame.nodes.walk import WrongStep
from harness.core import Array

#: Elements up to which a value is written down.
_FEW = 6


def name_of(step: NodeStep, inputs: Mapping[str, Array]) -> str:
    """Operator, place, dtypes and attributes: ``Clip (node 3; float32, float32; min=0)``.

    The graph's own name for the node is left out, as it depends on the batch that was exported.
    """
    node = step.node
    dtypes = ", ".join(str(inputs[n].dtype) for n in step.inputs)
    attributes = ", ".join(f"{a.name}={_attribute(a)}" for a in node.attribute)
    place = f"node {step.index}"
    return f"{node.op_type} ({'; '.join(part for part in (place, dtypes, attributes) if part)})"


def said_of(fault: WrongStep, right: Sequence[Array]) -> str:
    """What the node gets, what its definition gives and what the backend gave, at the first wrong element."""
    inputs = fault.definition.inputs
    taken = ", ".join(shown(inputs[n]) for n in fault.definition.step.inputs)
    for got, wrong, true in zip(fault.got, fault.wrong, right, strict=False):
        if got.shape != true.shape or got.dtype != true.dtype:
            return (
                f"of {taken} its definition gives {true.dtype}{list(true.shape)}, "
                f"it gives {got.dtype}{list(got.shape)}"
            )
        if wrong.any():
            place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            where = f" at [{','.join(str(int(i)) for i in place)}]" if place else ""
            return f"of {taken} its definition gives {true[place]!s}{where}, it gives {got[place]!s}"
    return f"of {taken} it gives another number of results than its definition"


def shown(array: Array) -> str:
    """A small array's elements, a large one's shape, with the dtype."""
    if array.size > _FEW or not array.size:
        return f"{array.dtype}{list(array.shape)}"
    return f"{array.dtype} {np.array2string(array, separator=', ', threshold=_FEW)}".replace("\n", "")


def definition_name(definition: Definition) -> str:
    """`name_of` a definition's step."""
    return name_of(definition.step, definition.inputs)


def _attribute(attribute: onnx.AttributeProto) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.GraphProto | onnx.TensorProto):
        return "…"
    if isinstance(value, float):
        return f"{value:g}"
    return str(list(value)) if not isinstance(value, int) else str(value)
