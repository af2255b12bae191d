"""Look for a graph that computes a float64 call, or holds its numbers, in fewer bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from harness.blame.failure_context import FailureContext
from harness.blame.round_numbers import are_not_round
from harness.blame.witness import witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.core.dtypes import Array
from harness.core.invocation import Argument, Invocation
from harness.core.program import map_arguments
from harness.core.tensors import overload
from harness.pipeline.reference import run_reference
from harness.pipeline.submodel import all_nodes, subgraphs

_NARROWER = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Tensors of more elements are data, not the numbers of a call.
_NUMBERS = 64


@witness("the graph's precision", place=50, of_one_call=True)
def look_for_fewer_bits(context: FailureContext) -> Iterator[Testimony]:
    """Testify if the graph has the call's numbers, or its computation, in fewer bits.

    An attribute of ONNX that is a number is a float32 (``AttributeProto.f``), and some operators exist for float32
    only. A graph that uses these cannot give a float64 call's result, but a graph can do without them.
    """
    comparison = context.comparison
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None or comparison is None:
        return
    if comparison.problem in ("shape", "dtype"):
        return
    backend = context.failure.backend
    rounded = _rounded(context.invocation, context.model)
    if rounded and context.answer.is_same(run_reference(_replace_numbers(context.invocation, rounded)).expected):
        facts = {"numbers": [[before, after] for before, after in rounded.items()], "backend": backend}
        yield Testimony(Role.NARROWED, Finding.SAME, "rounded-arguments", facts)
    elif _casts_down(context.model) and _is_float32(context):
        yield Testimony(Role.NARROWED, Finding.SAME, "cast-to-float32", {"backend": backend})


def _rounded(invocation: Invocation, model: onnx.ModelProto) -> dict[float, float]:
    """Return the numbers of the call that the graph lacks → their values in float32.

    A backend gets the graph alone, so it cannot have rounded numbers that the graph lacks.
    """
    numbers: list[float] = []

    def noted(argument: Argument) -> Argument:
        if isinstance(argument, float):
            numbers.append(argument)
        return argument

    map_arguments(_fill_defaults(invocation), noted)
    exact = _held(model)
    with np.errstate(over="ignore"):
        found = {number: float(np.float32(number)) for number in numbers if not math.isnan(number)}
    return {before: after for before, after in found.items() if before != after and before not in exact}


def _fill_defaults(invocation: Invocation) -> Invocation:
    """Add the numbers that the schema has for arguments that the call omits."""
    given = {name for name, _ in invocation.arguments}
    schema = overload(invocation.overload)._schema
    defaults = tuple(
        (argument.name, argument.default_value)
        for argument in schema.arguments
        if argument.name not in given and isinstance(argument.default_value, float)
    )
    return replace(invocation, arguments=(*invocation.arguments, *defaults))


def _replace_numbers(invocation: Invocation, numbers: Mapping[float, float]) -> Invocation:
    def changed(argument: Argument) -> Argument:
        return numbers.get(argument, argument) if isinstance(argument, float) else argument

    return map_arguments(_fill_defaults(invocation), changed)


def _held(model: onnx.ModelProto) -> set[float]:
    """Return the numbers that the graph has in float64."""
    tensors = [
        *model.graph.initializer,
        *(t for node in all_nodes(model) for graph in subgraphs(node) for t in graph.initializer),
        *(a.t for node in all_nodes(model) for a in node.attribute if a.HasField("t")),
    ]
    small = [t for t in tensors if t.data_type == TensorProto.DOUBLE and math.prod(t.dims) <= _NUMBERS]
    return {number for tensor in small for number in numpy_helper.to_array(tensor).ravel().tolist()}


def _casts_down(model: onnx.ModelProto) -> bool:
    return any(
        node.op_type == "Cast" and any(a.name == "to" and a.i in _NARROWER for a in node.attribute)
        for node in all_nodes(model)
    )


def _is_float32(context: FailureContext) -> bool:
    """Whether wrong float64 elements came through float32: by chance, one result in 2²⁹ looks so."""
    assert context.got is not None
    telling = False
    for expected, got, wrong in zip(context.reference.expected, context.got, context.wrong, strict=True):
        if not wrong.any():
            continue
        if got.dtype != np.float64 or not _fit_float32(got[wrong]).all():
            return False
        telling |= bool((are_not_round(got[wrong]) & ~_fit_float32(expected[wrong])).any())
    return telling


def _fit_float32(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(values == values.astype(np.float32)) | np.isnan(values)
