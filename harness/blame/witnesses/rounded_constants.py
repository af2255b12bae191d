"""Numbers of the graph that have fewer bits than the call, and need not be numbers of the call."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, witness
from harness.compare import Outcome
from harness.core import Array

#: The last 12 of float32's 23 stored bits: a number that has one of them set is no round one.
_LAST_BITS = 0xFFF
#: How far a number is moved, to see what the result owes to it: more than float32 rounds, and little.
_STEP = 2.0**-18
#: What float32 rounds, and a little more: the result is taken to be linear.
_ROUNDING = 1.02 * 2.0**-24
#: Of a difference that a rounding explains, what may be left unexplained.
_LEFT = 2.0**-6
#: Numbers looked at, each for a run of the graph.
_MOST = 4


@witness("the graph's rounded numbers", place=30, turn=Turn.GRAPH, role=Role.NARROWED)
def look_for_rounded_numbers(trial: Trial) -> Iterator[Testimony]:
    """Whether one number with more bits would make a float64 result PyTorch's.

    The exporter may have computed it from the call's, like the root of a scale: its true value is not known.
    So it is moved a little, and what the result owes to it says how far off it would have to be.
    """
    if trial.complaint.outcome is not Outcome.MISMATCH or trial.got is None:
        return
    where = [i for i, mask in enumerate(trial.wrong) if mask.any()]
    if len(where) != 1 or trial.comparison is None or trial.comparison.problem != "values":
        return
    (output,) = where
    mask = trial.wrong[output]
    expected, got = trial.reference.expected[output], trial.got[output]
    # One element could be off for many reasons.
    if str(expected.dtype) != "float64" or got.dtype != expected.dtype or mask.sum() < 2:
        return
    for number in _rounded_numbers(trial.model)[:_MOST]:
        moved, by = _moved(trial.model, number)
        answer = trial.ask(trial.accused, moved).outputs
        if answer is None or answer[output].shape != got.shape:
            continue
        off = _off_by(expected[mask], got[mask], answer[output][mask], by)
        if off is not None:
            facts = {"number": number, "exact": number * (1 + off)}
            yield Testimony(Role.NARROWED, Finding.SAME, "rounded-constant", facts)
            return


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from model.graph.initializer
    for node in model.graph.node:
        if node.op_type == "Constant":
            yield from (a.t for a in node.attribute if a.HasField("t"))


def _rounded_numbers(model: onnx.ModelProto) -> list[float]:
    """Single numbers that float32 has and that are not round, each once."""
    found: dict[float, None] = {}
    for tensor in _tensors(model):
        if tensor.data_type not in (TensorProto.DOUBLE, TensorProto.FLOAT) or math.prod(tensor.dims) != 1:
            continue
        number = float(numpy_helper.to_array(tensor).reshape(-1)[0])
        narrow = np.float32(number) if abs(number) < float(np.finfo(np.float32).max) else np.float32(0)
        if float(narrow) == number and narrow.view(np.uint32) & _LAST_BITS:
            found[number] = None
    return list(found)


def _moved(model: onnx.ModelProto, number: float) -> tuple[onnx.ModelProto, float]:
    """`model` with another number near `number` wherever it has that, and how far that is off, relatively."""
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
    """How far the number is off, relatively; None where its rounding does not explain all the elements."""
    with np.errstate(all="ignore"):
        slope = (moved - got) / by
        each = (expected - got) / slope
        off = float(np.median(each))
        left = np.abs(got + off * slope - expected)
        explained = left <= _LEFT * np.abs(expected - got)
    return off if 0 < abs(off) <= _ROUNDING and bool(explained.all()) else None
