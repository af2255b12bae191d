"""The graph, held against the precision that the call has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.compare import Outcome
from harness.core import Argument, Array, Invocation, overload
from harness.execute import all_nodes, map_arguments, run_reference, subgraphs

_NARROWER = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Tensors of more elements are data, not the numbers of a call.
_NUMBERS = 64
#: The last 12 of float32's 23 stored bits: a number that has one of them set is no round one.
_LAST_BITS = 0xFFF


@witness("the graph's precision", place=50)
def look_for_fewer_bits(trial: Trial) -> Iterator[Testimony]:
    """Whether the graph has the call's numbers, or its computation, in fewer bits.

    An attribute of ONNX that is a number is a float32 (``AttributeProto.f``), and some operators are there
    for float32 only: a graph that is built of these cannot give a float64 call's result. Where the number is
    the epsilon of the operator that normalises, which ONNX has for the very call, the schema has no other.
    """
    comparison = trial.comparison
    if trial.complaint.outcome is not Outcome.MISMATCH or trial.got is None or comparison is None:
        return
    if comparison.problem in ("shape", "dtype"):
        return
    backend = trial.complaint.backend
    rounded = _rounded(trial.invocation, trial.model)
    if rounded and trial.is_same(run_reference(_with(trial.invocation, rounded)).expected):
        facts = {"numbers": [[before, after] for before, after in rounded.items()], "backend": backend}
        operators = _with_epsilon(trial.model, rounded.values())
        if operators:
            forced = {**facts, "operators": operators}
            yield Testimony(Role.SPECIFICATION, Finding.OPEN, "epsilon-schema", forced)
        yield Testimony(Role.NARROWED, Finding.SAME, "rounded-arguments", facts)
    elif _casts_down(trial.model) and _is_float32(trial):
        yield Testimony(Role.NARROWED, Finding.SAME, "cast-to-float32", {"backend": backend})


def _rounded(invocation: Invocation, model: onnx.ModelProto) -> dict[float, float]:
    """Numbers of the call → what they are in float32, of those that the graph does not have as they are.

    A backend is given the graph alone: what that lacks, no backend has rounded.
    """
    numbers: list[float] = []

    def noted(argument: Argument) -> Argument:
        if isinstance(argument, float):
            numbers.append(argument)
        return argument

    map_arguments(_with_defaults(invocation), noted)
    exact = _held(model)
    with np.errstate(over="ignore"):
        found = {number: float(np.float32(number)) for number in numbers if not math.isnan(number)}
    return {before: after for before, after in found.items() if before != after and before not in exact}


def _with_defaults(invocation: Invocation) -> Invocation:
    """With the numbers that the schema has where the call gives none."""
    given = {name for name, _ in invocation.arguments}
    schema = overload(invocation.overload)._schema
    defaults = tuple(
        (argument.name, argument.default_value)
        for argument in schema.arguments
        if argument.name not in given and isinstance(argument.default_value, float)
    )
    return replace(invocation, arguments=(*invocation.arguments, *defaults))


def _with(invocation: Invocation, numbers: Mapping[float, float]) -> Invocation:
    def changed(argument: Argument) -> Argument:
        return numbers.get(argument, argument) if isinstance(argument, float) else argument

    return map_arguments(_with_defaults(invocation), changed)


def _held(model: onnx.ModelProto) -> set[float]:
    """The numbers that the graph has in float64."""
    tensors = [
        *model.graph.initializer,
        *(t for node in all_nodes(model) for graph in subgraphs(node) for t in graph.initializer),
        *(a.t for node in all_nodes(model) for a in node.attribute if a.HasField("t")),
    ]
    small = [t for t in tensors if t.data_type == TensorProto.DOUBLE and math.prod(t.dims) <= _NUMBERS]
    return {number for tensor in small for number in numpy_helper.to_array(tensor).ravel().tolist()}


def _with_epsilon(model: onnx.ModelProto, numbers: Iterable[float]) -> list[str]:
    """The operators that have an epsilon, a float32 in ONNX; none unless all of the numbers are such."""
    nodes = {
        (a.f, node.op_type)
        for node in all_nodes(model)
        for a in node.attribute
        if a.name == "epsilon" and a.type == onnx.AttributeProto.FLOAT
    }
    if not set(numbers) <= {number for number, _ in nodes}:
        return []
    return sorted({operator for _, operator in nodes})


def _casts_down(model: onnx.ModelProto) -> bool:
    return any(
        node.op_type == "Cast" and any(a.name == "to" and a.i in _NARROWER for a in node.attribute)
        for node in all_nodes(model)
    )


def _is_float32(trial: Trial) -> bool:
    """Whether what is wrong in float64 came through float32: by chance, one result in 2²⁹ looks so."""
    assert trial.got is not None
    telling = False
    for expected, got, wrong in zip(trial.reference.expected, trial.got, trial.wrong, strict=True):
        if not wrong.any():
            continue
        if got.dtype != np.float64 or not _in_float32(got[wrong]).all():
            return False
        telling |= bool((_is_not_round(got[wrong]) & ~_in_float32(expected[wrong])).any())
    return telling


def _in_float32(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(values == values.astype(np.float32)) | np.isnan(values)


def _is_not_round(values: Array) -> Array:
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32) & _LAST_BITS
    return np.asarray((bits != 0) & np.isfinite(values))
