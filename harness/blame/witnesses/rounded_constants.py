"""Look for constants of the graph that were rounded without need: single numbers, and reciprocals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from harness.blame.failure_context import FailureContext
from harness.blame.round_numbers import are_not_round
from harness.blame.witness import Turn, witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.core.dtypes import LARGEST, Array

#: Relative change of a number, to see its effect on the result: more than a rounding of float32, and little.
_STEP = 2.0**-18
#: Slightly more than the unit roundoff of float32: the result is taken to be linear.
_ROUNDING = 1.02 * 2.0**-24
#: Share of a difference that may be left unexplained.
_LEFT = 2.0**-6
#: Maximum number of constants to try, each in a run of the graph.
_MOST = 4
#: Float16 has every whole number up to this.
_GREATEST_DIVISOR = 2**11
#: The name of an initializer that no exporter makes.
_DIVISOR = "harness_divisor"


@witness("the graph's rounded numbers", place=30, turn=Turn.GRAPH, of_one_call=True)
def look_for_rounded_numbers(context: FailureContext) -> Iterator[Testimony]:
    """Testify if one number with more bits would make a float64 result PyTorch's.

    The exporter may have computed the number from the call's numbers, like the root of a scale: its true value is not
    known. So it is moved a little, and the change of the result tells the error that the number would need to have.
    """
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None:
        return
    where = [i for i, mask in enumerate(context.wrong) if mask.any()]
    if len(where) != 1 or context.comparison is None or context.comparison.problem != "values":
        return
    (output,) = where
    mask = context.wrong[output]
    expected, got = context.reference.expected[output], context.got[output]
    # One element could be off for many reasons.
    if str(expected.dtype) != "float64" or got.dtype != expected.dtype or mask.sum() < 2:
        return
    for number in _rounded_numbers(context.model)[:_MOST]:
        moved, by = _moved(context.model, number)
        answer = context.run_model(context.accused, moved).outputs
        if answer is None or answer[output].shape != got.shape:
            continue
        off = _off_by(expected[mask], got[mask], answer[output][mask], by)
        if off is not None:
            facts = {"number": number, "exact": number * (1 + off)}
            yield Testimony(Role.NARROWED, Finding.SAME, "rounded-constant", facts)
            return


#: Dtypes in which a reciprocal is rounded.
_FLOATS = (TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@witness("the graph's reciprocals", place=1010)
def look_for_rounded_reciprocals(context: FailureContext) -> Iterator[Testimony]:
    """Testify if the result is PyTorch's once the graph divides by a number instead of multiplying by its reciprocal.

    A tenth is not exact in any precision: `x * 0.1` is not `x / 10`, and differs most in float16.
    """
    comparison = context.comparison
    if context.failure.outcome is not Outcome.MISMATCH or comparison is None or comparison.problem != "values":
        return
    for tensor in list(_tensors(context.model))[:_MOST]:
        divisor = _divisor(tensor)
        if divisor is None:
            continue
        divided = _use_divisor(context.model, tensor, divisor)
        if divided is not None and context.classify(context.run_model(context.accused, divided))[0] is Finding.RIGHT:
            number = float(numpy_helper.to_array(tensor).reshape(-1)[0])
            facts = {"number": number, "divisor": divisor, "backend": context.failure.backend}
            yield Testimony(Role.NARROWED, Finding.SAME, "rounded-reciprocal", facts)
            return


def _divisor(tensor: onnx.TensorProto) -> int | None:
    """Return the integer whose rounded reciprocal is the single element of `tensor`; None if that is exact."""
    if tensor.data_type not in _FLOATS or math.prod(tensor.dims) != 1:
        return None
    array = numpy_helper.to_array(tensor).reshape(-1)
    number = float(array[0])
    if not 0 < abs(number) < 1 or abs(1 / number) > _GREATEST_DIVISOR:
        return None
    divisor = round(1 / number)
    is_rounded = Fraction(number) * divisor != 1 and float(np.asarray(1 / divisor, array.dtype)) == number
    return divisor if is_rounded else None


def _use_divisor(model: onnx.ModelProto, tensor: onnx.TensorProto, divisor: int) -> onnx.ModelProto | None:
    """Return `model` with `/ divisor` for `* number`, and `* divisor` for `/ number`; None if it has neither."""
    divided = onnx.ModelProto()
    divided.CopyFrom(model)
    names = {tensor.name} | {
        node.output[0]
        for node in model.graph.node
        if node.op_type == "Constant" and any(a.t == tensor for a in node.attribute if a.HasField("t"))
    }
    changed = False
    for node in divided.graph.node:
        second = len(node.input) == 2 and node.input[1] in names
        if second and node.op_type in ("Mul", "Div"):
            node.op_type = {"Mul": "Div", "Div": "Mul"}[node.op_type]
            node.input[1] = _DIVISOR
            changed = True
    if not changed:
        return None
    array = numpy_helper.to_array(tensor)
    divided.graph.initializer.append(numpy_helper.from_array(np.full_like(array, divisor), _DIVISOR))
    return divided


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from model.graph.initializer
    for node in model.graph.node:
        if node.op_type == "Constant":
            yield from (a.t for a in node.attribute if a.HasField("t"))


def _rounded_numbers(model: onnx.ModelProto) -> list[float]:
    """Return the single numbers that float32 can hold and that are not round, each once."""
    found: dict[float, None] = {}
    for tensor in _tensors(model):
        if tensor.data_type not in (TensorProto.DOUBLE, TensorProto.FLOAT) or math.prod(tensor.dims) != 1:
            continue
        number = float(numpy_helper.to_array(tensor).reshape(-1)[0])
        narrow = np.float32(number) if abs(number) < LARGEST["float32"] else np.float32(0)
        if float(narrow) == number and are_not_round(np.asarray(narrow)):
            found[number] = None
    return list(found)


def _moved(model: onnx.ModelProto, number: float) -> tuple[onnx.ModelProto, float]:
    """Return `model` with a number near `number` in place of it, and the relative difference."""
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    other = float(np.float32(number * (1 + _STEP)))
    for tensor in _tensors(moved):
        if tensor.data_type not in (TensorProto.DOUBLE, TensorProto.FLOAT) or math.prod(tensor.dims) != 1:
            continue
        array = numpy_helper.to_array(tensor)
        if float(array.reshape(-1)[0]) == number:
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(array, other), tensor.name))
    return moved, other / number - 1


def _off_by(expected: Array, got: Array, moved: Array, by: float) -> float | None:
    """Return the relative error of the number; None if its rounding does not explain all the elements."""
    with np.errstate(all="ignore"):
        slope = (moved - got) / by
        each = (expected - got) / slope
        off = float(np.median(each))
        left = np.abs(got + off * slope - expected)
        explained = left <= _LEFT * np.abs(expected - got)
    return off if 0 < abs(off) <= _ROUNDING and bool(explained.all()) else None
