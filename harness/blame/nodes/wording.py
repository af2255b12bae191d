"""The facts of a node: what it is, what it gets and what it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from harness.blame.nodes.definition import Definition
from harness.blame.nodes.kernel_fault import kernel_fault
from harness.blame.nodes.node_verdict import right_results
from harness.blame.nodes.walk import WrongStep
from harness.core import Array

#: Elements up to which a value is written down.
_FEW = 6


def node_facts(definition: Definition) -> dict[str, Any]:
    """Operator, index, dtypes of the inputs and attributes of a step.

    The graph's own name for the node is left out, as it depends on the batch that was exported.
    """
    step, inputs = definition.step, definition.inputs
    return {
        "operator": step.node.op_type,
        "index": step.index,
        "dtypes": [str(inputs[name].dtype) for name in step.inputs],
        "attributes": {a.name: _attribute(a) for a in step.node.attribute},
    }


def wrong_node(fault: WrongStep) -> dict[str, Any]:
    """The node, what it gets, what its definition gives and what the backend gave, at the first wrong element.

    Returns:
        ``node``, as `node_facts` has it; ``inputs``, as texts; ``kernel_fault``, a fault of
        `harness.compare.faults`; and ``right``, ``got`` and ``place`` of the element, or the dtypes and
        shapes where these differ.
    """
    definition = fault.definition
    inputs = [definition.inputs[name] for name in definition.step.inputs]
    facts: dict[str, Any] = {"node": node_facts(definition), "inputs": [shown(array) for array in inputs]}
    for got, wrong, true in zip(fault.got, fault.wrong, right_results(definition), strict=False):
        if got.shape != true.shape or got.dtype != true.dtype:
            forms = {"right": f"{true.dtype}{list(true.shape)}", "got": f"{got.dtype}{list(got.shape)}"}
            return {**facts, **forms, "kernel_fault": kernel_fault(inputs, true, got)}
        if wrong.any():
            place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            return {
                **facts,
                "right": str(true[place]),
                "got": str(got[place]),
                "place": [int(i) for i in place],
                "kernel_fault": kernel_fault(inputs, true, got, place),
            }
    return {**facts, "kernel_fault": "number-of-results"}


def shown(array: Array) -> str:
    """A small array's elements, a large one's shape, with the dtype."""
    if array.size > _FEW or not array.size:
        return f"{array.dtype}{list(array.shape)}"
    return f"{array.dtype} {np.array2string(array, separator=', ', threshold=_FEW)}".replace("\n", "")


def _attribute(attribute: onnx.AttributeProto) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.GraphProto | onnx.TensorProto):
        return "…"
    if isinstance(value, float):
        return f"{value:g}"
    return str(list(value)) if not isinstance(value, int) else str(value)
