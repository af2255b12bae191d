"""Describe a wrong kernel: the facts of the first wrong node, and its fault by the first wrong element."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from harness.compare.faults import Fault
from harness.core.dtypes import Array
from harness.pipeline.nodes.definition import Definition
from harness.pipeline.nodes.judged_nodes import right_results
from harness.pipeline.nodes.node_steps import NodeStep
from harness.pipeline.nodes.walk import WrongStep

#: Elements up to which a value is written down.
_FEW = 6


def node_facts(definition: Definition) -> dict[str, Any]:
    """Operator, index, dtypes of the inputs and attributes of a step.

    The graph's own name for the node is left out, as it depends on the batch that was exported.
    """
    return node_facts_of_step(definition.step, definition.inputs)


def node_facts_of_step(step: NodeStep, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return the facts of a step with its inputs, as far as these are known."""
    return {
        "operator": step.node.op_type,
        "index": step.index,
        "dtypes": [str(inputs[name].dtype) for name in step.inputs if name in inputs],
        "attributes": {a.name: _attribute(a) for a in step.node.attribute},
    }


def wrong_node(fault: WrongStep) -> dict[str, Any]:
    """Describe a node, its inputs, the definition's result and the backend's, at the first wrong element.

    Returns:
        ``node``, as `node_facts` has it; ``inputs``, as texts; ``kernel_fault``, a fault of
        `harness.compare.diagnosis`; and ``right``, ``got`` and ``place`` of the element, or the dtypes and
        shapes if these differ.
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
    return {**facts, "kernel_fault": Fault.NUMBER_OF_RESULTS}


def shown(array: Array) -> str:
    """Show a small array's elements, or a large one's shape, with the dtype."""
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


#: Relative differences up to which a result is inexact rather than another: of 16 bits, and of more.
_INEXACT_SHORT, _INEXACT = 0.05, 0.01
_SHORT = ("float16", "bfloat16")
#: How much a float64 result is off, relatively, that was rounded to float32 on the way.
_LEAST_ROUNDED, _MOST_ROUNDED = 2.0**-36, 2.0**-20
#: A few roundings of a float64 about 1, of which little may be left.
_ROUNDING_OF_ONE = 2.0**-50
#: The smallest number of float32 that has all of its bits.
_SMALLEST_NORMAL = 2.0**-126


def kernel_fault(inputs: Sequence[Array], right: Array, got: Array, place: Any = None) -> str:
    """Return the kind of difference between a definition's result and a kernel's: one of `harness.compare.diagnosis`.

    Args:
        inputs: Inputs of the node.
        right: The definition's result.
        got: The kernel's result.
        place: Index of the first wrong element; None if dtypes or shapes differ.
    """
    # An operator of a few steps goes wrong with tensors without elements in its own way, whatever its result.
    if _takes_empty(inputs):
        return Fault.WRONG_WITHOUT_ELEMENTS
    if place is None:
        return Fault.WRONG_DTYPE if right.dtype != got.dtype else Fault.WRONG_SHAPE
    if right.dtype.kind == "b" and got.dtype.kind == "b":
        return Fault.WRONG_TRUTH_VALUES
    dtypes = [str(array.dtype) for array in inputs]
    one, other = right[place], got[place]
    if right.dtype.kind in "iu" and got.dtype.kind in "iu":
        return Fault.WRONG_INTEGERS
    if right.dtype.kind == "c":
        return Fault.WRONG_COMPLEX_NUMBERS
    return _wrong_float(float(one), float(other), dtypes)


def _wrong_float(right: float, got: float, dtypes: Sequence[str]) -> str:
    if math.isnan(right) or math.isnan(got):
        return Fault.MAKES_NAN if math.isnan(got) else Fault.KERNEL_LOSES_NAN
    if math.isinf(right) or math.isinf(got):
        return Fault.MAKES_INFINITIES if math.isfinite(right) else Fault.LOSES_INFINITIES
    if right == got:
        return Fault.LOSES_SIGN_OF_ZERO
    if got == 0 and abs(right) < _SMALLEST_NORMAL:
        return Fault.FLUSHES_SMALL_NUMBERS
    wide = dtypes[:1] == ["float64"]
    inexact = Fault.INEXACT_FLOAT64 if wide else Fault.INEXACT
    # Cancellation leaves a small rest of numbers about 1, or zero.
    if 0 in (right, got) and abs(right - got) <= _MOST_ROUNDED:
        return inexact
    off = abs(right - got) / max(abs(right), abs(got))
    # A kernel that rounds to float32 on the way is as exact as it can be for the rest.
    rounded = _LEAST_ROUNDED <= off <= _MOST_ROUNDED and abs(right - got) > _ROUNDING_OF_ONE
    if wide and rounded:
        return Fault.FLOAT64_IN_FLOAT32
    most = _INEXACT_SHORT if any(short in dtypes for short in _SHORT) else _INEXACT
    return Fault.WRONG_NUMBERS if off > most else inexact


def _takes_empty(inputs: Sequence[Array]) -> bool:
    """Whether an input has no element; not so for a list of axes that is empty, behind the first input."""
    return any(
        not array.size and not (number and (str(array.dtype), array.shape) == ("int64", (0,)))
        for number, array in enumerate(inputs)
    )
