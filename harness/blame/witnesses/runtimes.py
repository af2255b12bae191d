"""Witnesses against the runtime: other runtimes, the graph in float32, and the same runtime without optimisations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from harness.blame.failure_context import FailureContext
from harness.blame.witness import Turn, Witness, add_witnesses, backends_to_ask, witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.judge import Mask
from harness.compare.tolerances import MUCH_NEARER
from harness.compare.verdict import Outcome
from harness.core.dtypes import LARGEST, Array
from harness.core.numbers import distance
from harness.pipeline.submodel import subgraphs
from harness.pipeline.task import Settings
from harness.run.backend import REFERENCE


def ask_other_backend(name: str, context: FailureContext) -> Iterator[Testimony]:
    """Run the model in a backend other than the failing one."""
    accused = context.failure.backend
    if name == accused or context.failure.outcome is Outcome.UNSUPPORTED:
        return
    backend = context.backend(name)
    if context.narrows(backend):
        return
    answer = context.run_model(backend, context.loaded)
    finding, detail = context.classify(answer)
    if (
        finding is Finding.OTHER
        and answer.outputs
        and context.answer.is_as_wrong(answer.outputs, context.plain.outputs if context.plain else None)
    ):
        facts = {"witness": name, "backend": accused}
        own = context.is_independent(name)
        yield Testimony(Role.RUNTIME, Finding.SAME, "backend-without-optimisations", facts, own)
        return
    finite = False
    if finding is Finding.OTHER and context.finite_context:
        tamer = context.finite_context
        again, its_detail = tamer.classify(tamer.run_model(backend, tamer.loaded))
        if again is not Finding.OTHER:
            finding, detail, finite = again, its_detail, True
    testimony_facts = {"witness": name, "backend": accused, "detail": detail, "finite_inputs": finite}
    # Drawn inputs may not fit a file: that another runtime refuses them does not say that the graph is wrong. An
    # exception of onnx's evaluator is not one of the operator's text, whose limits are checked node by node.
    is_telling = finding is not Finding.REFUSES or (context.has_program and name != REFERENCE)
    yield Testimony(
        Role.RUNTIME, finding, "other-backend", testimony_facts, is_telling and context.is_independent(name)
    )


@add_witnesses
def _installed(settings: Settings) -> Iterator[Witness]:
    for name in backends_to_ask(settings.witnesses):
        yield Witness(name, Turn.FIRST, 70, partial(ask_other_backend, name))
    for name in backends_to_ask(settings.last_witnesses, last=True):
        yield Witness(name, Turn.OPEN, 20, partial(ask_other_backend, name))


#: Attributes that name an element type.
_TYPES = frozenset({"to", "dtype", "output_dtype"})
#: Answers count as different if they differ by more than this: a thousand roundings of float32.
_APART = 2.0**-13


def ask_in_float32(name: str, context: FailureContext) -> Iterator[Testimony]:
    """Run the graph in float32 in a backend other than the failing one, on inputs that float32 can hold.

    It judges only elements in which PyTorch and the failing backend are so far apart that float32 tells which
    of them it gives; all of them must agree. A wrong result of its own counts only if cancellation in float32 cannot
    explain it: a failing backend may compute in float32 itself.
    """
    accused = context.failure.backend
    if context.failure.outcome is not Outcome.MISMATCH or not context.is_independent(name):
        return
    if "float64" not in context.reference.dtypes:
        return
    backend = context.backend(name)
    if context.run_model(backend, context.model).outputs is not None:
        return
    tamer = context.under(_representable)
    if tamer is None or tamer.got is None:
        return
    reference = replace(tamer.reference, feeds=tuple(map(_narrowed, tamer.reference.feeds)))
    answer = tamer.run_model(backend, narrow_model(tamer.model), reference).outputs
    if answer is None:
        return
    scale = _scale((*tamer.reference.feeds, *tamer.reference.expected))
    finding = _finding(tamer.reference.expected, tamer.got, answer, tamer.wrong, scale)
    if finding is not None:
        yield Testimony(Role.RUNTIME, finding, "float32-graph", {"witness": name, "backend": accused})


def narrow_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` with float32 instead of float64; numbers beyond float32's range become its largest."""
    narrow = onnx.ModelProto()
    narrow.CopyFrom(model)
    _narrow_graph(narrow.graph)
    for function in narrow.functions:
        _narrow_nodes(function.node)
    return narrow


def _narrow_graph(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        _narrow_type(value.type)
    for tensor in graph.initializer:
        _narrow_tensor(tensor)
    _narrow_nodes(graph.node)


def _narrow_type(kind: onnx.TypeProto) -> None:
    """Narrow the type of a tensor, or of a sequence or an optional of tensors."""
    which = kind.WhichOneof("value")
    if which == "tensor_type" and kind.tensor_type.elem_type == TensorProto.DOUBLE:
        kind.tensor_type.elem_type = TensorProto.FLOAT
    elif which in ("sequence_type", "optional_type"):
        _narrow_type(getattr(kind, which).elem_type)


def _narrow_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for graph in subgraphs(node):
            _narrow_graph(graph)
        for attribute in node.attribute:
            if attribute.type in (AttributeProto.TENSOR, AttributeProto.TENSORS):
                for tensor in (attribute.t, *attribute.tensors):
                    _narrow_tensor(tensor)
            elif attribute.type == AttributeProto.TYPE_PROTO:
                _narrow_type(attribute.tp)
            elif attribute.name in _TYPES and attribute.i == TensorProto.DOUBLE:
                attribute.i = TensorProto.FLOAT


def _narrow_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.DOUBLE:
        tensor.CopyFrom(numpy_helper.from_array(_narrowed(numpy_helper.to_array(tensor)), tensor.name))


def _narrowed(values: Array) -> Array:
    if values.dtype != np.float64:
        return values
    return np.where(np.isfinite(values), np.clip(values, -LARGEST["float32"], LARGEST["float32"]), values).astype(
        np.float32
    )


def _representable(values: Array) -> Array:
    """Round `values` to float32, or return `values` itself if float32 can hold them."""
    if values.dtype != np.float64:
        return values
    narrow = _narrowed(values).astype(np.float64)
    return values if np.array_equal(narrow, values, equal_nan=True) else narrow


def _scale(arrays: Iterable[Array]) -> float:
    """Return the largest magnitude of the operands, or that of usual constants."""
    finite = [np.abs(a[np.isfinite(a)]) for a in arrays if a.dtype == np.float64]
    return max([1.0, *(float(a.max()) for a in finite if a.size)])


def _finding(
    expected: Iterable[Array],
    got: Iterable[Array],
    answer: Iterable[Array],
    wrong: Iterable[Mask],
    scale: float,
) -> Finding | None:
    """Return whose answer it is; None if float32 does not tell, or if its elements disagree."""
    found: set[Finding] = set()
    for e, g, a, w in zip(expected, got, answer, wrong, strict=True):
        if not w.any():
            continue
        if e.shape != a.shape or e.dtype != g.dtype or e.dtype != np.float64:
            return None
        e, g, a = (_narrowed(v[w]).astype(np.float64) for v in (e, g, a))
        differing = _are_apart(e, g)
        if not differing.any():
            continue
        e, g, a = e[differing], g[differing], a[differing]
        if _is_rather(a, e, g).all():
            found.add(Finding.RIGHT)
        elif _is_rather(a, g, e).all() and (distance(e, g) > _APART * scale).all():
            found.add(Finding.SAME)
        else:
            return None
    return found.pop() if len(found) == 1 else None


def _are_apart(one: Array, other: Array) -> Mask:
    with np.errstate(all="ignore"):
        near = distance(one, other) <= _APART * np.minimum(np.abs(one), np.abs(other))
    return np.asarray(~near & (distance(one, other) != 0))


def _is_rather(answer: Array, one: Array, than: Array) -> Mask:
    near_by, apart = distance(answer, one), distance(than, one)
    with np.errstate(all="ignore"):
        close = (near_by == 0) | (near_by <= _APART * np.abs(one))
    # From an infinity or NaN every number is far.
    near = np.where(np.isfinite(apart), MUCH_NEARER * near_by <= apart, close)
    return np.asarray(near & np.isfinite(near_by))


@add_witnesses
def _installed_of_in_float32(settings: Settings) -> Iterator[Witness]:
    for name in backends_to_ask(settings.witnesses):
        yield Witness(f"{name} in float32", Turn.OPEN, 10, partial(ask_in_float32, name))


@witness("graph optimisations off", place=120, of_any_artefact=True)
def ask_without_optimisations(context: FailureContext) -> Iterator[Testimony]:
    """Runs the model with `harness.run.backend.HasPlain`."""
    if context.failure.outcome is Outcome.UNSUPPORTED or context.plain is None:
        return
    finding, detail = context.classify(context.plain)
    facts = {"backend": context.failure.backend, "detail": detail}
    yield Testimony(Role.PLAIN, finding, "without-optimisations", facts)
