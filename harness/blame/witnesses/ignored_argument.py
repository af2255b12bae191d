"""Call PyTorch without one of the arguments: a graph that ignores an argument gives that result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.blame.failure_context import FailureContext
from harness.blame.witness import witness
from harness.compare.comparison import compare, wrong_elements
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.drawn import draws
from harness.compare.verdict import Outcome
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Invocation
from harness.core.tensors import overload
from harness.pipeline.reference import run_reference

#: Truth values that must be wrong, so that they are not so by chance.
_FEW = 4
#: How near numbers of the same answer are, to their size.
_CLOSE = 0.01


@witness("the call without an argument", place=65, of_one_call=True, of_any_artefact=True)
def omit_arguments(context: FailureContext) -> Iterator[Testimony]:
    """Make the same call without one argument at a time, and testify if the backend gives that result."""
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None or draws(context.judge):
        return
    for name, call in _omit_each_argument(context.invocation):
        try:
            outputs = run_reference(call).expected
        except Exception:
            # PyTorch rejects the call without the argument.
            continue
        if _explains(context, outputs):
            facts = {"argument": name, "backend": context.failure.backend}
            yield Testimony(Role.IGNORED, Finding.SAME, "ignored-argument", facts)
            return


def _omit_each_argument(invocation: Invocation) -> Iterator[tuple[str, Invocation]]:
    """Yield each argument's name, and the call with the argument's default, `None` or `False` instead."""
    schema = {a.name: a for a in overload(invocation.overload)._schema.arguments}
    for i, (name, given) in enumerate(invocation.arguments):
        neutral = _neutral(schema[name], given)
        if neutral != given:
            arguments = invocation.arguments
            yield name, replace(invocation, arguments=(*arguments[:i], (name, neutral), *arguments[i + 1 :]))


def _neutral(argument: Any, given: Any) -> Any:
    """Return the value that stands for an omitted argument; `given` if there is none."""
    if argument.has_default_value():
        default = argument.default_value
        return tuple(default) if isinstance(default, list) else default
    if str(argument.type).startswith("Optional"):
        return None
    return False if given is True else given


def _cast_floats(context: FailureContext, outputs: Sequence[Array]) -> tuple[Array, ...]:
    """Return `outputs` as floats of PyTorch's dtypes: a graph may ignore the dtype that it should compute in."""
    expected = context.reference.expected
    if len(outputs) != len(expected):
        return tuple(outputs)
    pairs = zip(outputs, expected, strict=True)
    return tuple(o.astype(e.dtype) if _are_floats(o, e) else o for o, e in pairs)


def _are_floats(*arrays: Array) -> bool:
    return all(str(array.dtype) in PRECISION for array in arrays)


def _explains(context: FailureContext, outputs: Sequence[Array]) -> bool:
    """Whether the failing backend's answer is that of the call without the argument.

    Infinities, NaN, zeros and truth values are alike for many reasons: another number must be alike, or a few truth
    values and all other elements.
    """
    assert context.got is not None
    if context.comparison is not None and context.comparison.problem in ("shape", "dtype"):
        return context.answer.is_same(outputs)
    outputs = _cast_floats(context, outputs)
    if not context.answer.is_same(outputs) or _has_a_part(context, outputs):
        return False
    wrong = wrong_elements(context.judge, context.reference, context.got)
    pairs = [(g[w], o[w]) for g, o, w in zip(context.got, outputs, wrong, strict=True) if w.any()]
    if any(_tells(g, o) for g, o in pairs):
        return True
    if not all(g.dtype == np.bool_ and g.size >= _FEW for g, _ in pairs):
        return False
    other = replace(context.reference, expected=tuple(outputs))
    return compare(context.judge, other, context.got).problem is None


def _has_a_part(context: FailureContext, outputs: Sequence[Array]) -> bool:
    """Whether the backend is right at an element where the call without the argument is wrong. Then the argument
    has its part in the result, and other elements are alike by chance."""
    assert context.got is not None
    expected = context.reference.expected
    if [(o.shape, o.dtype) for o in outputs] != [(e.shape, e.dtype) for e in expected]:
        return False
    wrong = wrong_elements(context.judge, context.reference, context.got)
    without = wrong_elements(context.judge, context.reference, outputs)
    return any(bool((o & ~w).any()) for w, o in zip(wrong, without, strict=True) if w.shape == o.shape)


def _tells(got: Array, without: Array) -> bool:
    """Whether there is a number that two wrong answers do not have by chance."""
    if got.dtype == np.bool_:
        return False
    g, w = got.astype(np.float64), without.astype(np.float64)
    with np.errstate(all="ignore"):
        telling = np.isfinite(g) & (g != 0) & (np.abs(g) != 1) & (np.abs(g - w) <= _CLOSE * np.abs(g))
    return bool(telling.any())
