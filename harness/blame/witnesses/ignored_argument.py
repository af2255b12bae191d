"""PyTorch without one of the call's arguments: what a graph gives that ignores it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.compare import Outcome, compare, draws, wrong_elements
from harness.core import PRECISION, Array, Invocation, overload
from harness.execute import run_reference

#: Truth values that must be wrong, so that they are not so by chance.
_FEW = 4
#: How near numbers of the same answer are, to their size.
_CLOSE = 0.01


@witness("the call without an argument", place=65)
def ask_without_argument(trial: Trial) -> Iterator[Testimony]:
    """The same call with one argument at a time as if it had not been given."""
    if trial.complaint.outcome is not Outcome.MISMATCH or trial.got is None or draws(trial.judge):
        return
    for name, call in _with_one_left_out(trial.invocation):
        try:
            outputs = run_reference(call).expected
        except Exception:
            # PyTorch does not take the call so: the argument is not one to leave out.
            continue
        if _explains(trial, outputs):
            facts = {"argument": name, "backend": trial.complaint.backend}
            yield Testimony(Role.IGNORED, Finding.SAME, "ignored-argument", facts)
            return


def _with_one_left_out(invocation: Invocation) -> Iterator[tuple[str, Invocation]]:
    """Names of arguments, and the call with the argument's default, `None` or `False` in their place."""
    schema = {a.name: a for a in overload(invocation.overload)._schema.arguments}
    for i, (name, given) in enumerate(invocation.arguments):
        neutral = _neutral(schema[name], given)
        if neutral != given:
            arguments = invocation.arguments
            yield name, replace(invocation, arguments=(*arguments[:i], (name, neutral), *arguments[i + 1 :]))


def _neutral(argument: Any, given: Any) -> Any:
    """What stands for an argument that is left out; `given` where nothing does."""
    if argument.has_default_value():
        default = argument.default_value
        return tuple(default) if isinstance(default, list) else default
    if str(argument.type).startswith("Optional"):
        return None
    return False if given is True else given


def _in_its_dtypes(trial: Trial, outputs: Sequence[Array]) -> tuple[Array, ...]:
    """`outputs` as floats of PyTorch's dtypes: a graph may ignore in which dtype it is to compute."""
    expected = trial.reference.expected
    if len(outputs) != len(expected):
        return tuple(outputs)
    pairs = zip(outputs, expected, strict=True)
    return tuple(o.astype(e.dtype) if _are_floats(o, e) else o for o, e in pairs)


def _are_floats(*arrays: Array) -> bool:
    return all(str(array.dtype) in PRECISION for array in arrays)


def _explains(trial: Trial, outputs: Sequence[Array]) -> bool:
    """Whether the failing backend's answer is that of the call without the argument.

    Infinities, NaN, zeros and truth values are alike for many reasons: another number must be, or a few truth
    values and all beside them.
    """
    assert trial.got is not None
    if trial.comparison is not None and trial.comparison.problem in ("shape", "dtype"):
        return trial.is_same(outputs)
    outputs = _in_its_dtypes(trial, outputs)
    if not trial.is_same(outputs) or _has_a_part(trial, outputs):
        return False
    wrong = wrong_elements(trial.judge, trial.reference, trial.got)
    pairs = [(g[w], o[w]) for g, o, w in zip(trial.got, outputs, wrong, strict=True) if w.any()]
    if any(_tells(g, o) for g, o in pairs):
        return True
    if not all(g.dtype == np.bool_ and g.size >= _FEW for g, _ in pairs):
        return False
    other = replace(trial.reference, expected=tuple(outputs))
    return compare(trial.judge, other, trial.got).problem is None


def _has_a_part(trial: Trial, outputs: Sequence[Array]) -> bool:
    """Whether the backend is right at an element where the call without the argument is wrong: the argument
    has its part in the result then, and what else is alike is so by chance."""
    assert trial.got is not None
    expected = trial.reference.expected
    if [(o.shape, o.dtype) for o in outputs] != [(e.shape, e.dtype) for e in expected]:
        return False
    wrong = wrong_elements(trial.judge, trial.reference, trial.got)
    without = wrong_elements(trial.judge, trial.reference, outputs)
    return any(bool((o & ~w).any()) for w, o in zip(wrong, without, strict=True) if w.shape == o.shape)


def _tells(got: Array, without: Array) -> bool:
    """Whether there is a number that two wrong answers do not have by chance."""
    if got.dtype == np.bool_:
        return False
    g, w = got.astype(np.float64), without.astype(np.float64)
    with np.errstate(all="ignore"):
        telling = np.isfinite(g) & (g != 0) & (np.abs(g) != 1) & (np.abs(g - w) <= _CLOSE * np.abs(g))
    return bool(telling.any())
