"""Which invocations of an operator become goldens: few, small, and unlike each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.compare import MIN_EXPONENT, Judge, anything
from harness.core import INT_RANGE, Argument, Array, Enumerated, Invocation, TensorSpec
from harness.execute import CallRejected, Reference, run_reference
from harness.generate import OperatorCase, draw_cases, judge_of

#: Structures and value draws among which goldens are chosen.
_STRUCTURES, _VALUES = 32, 3
#: Elements of inputs and outputs together beyond which a candidate is taken only for want of others.
_SMALL = 160

#: What it is worth that goldens show something for the first time, by kind. What exporters and runtimes get
#: wrong is found with other dtypes, special numbers and flags more often than with other sizes.
_WORTH: Mapping[str, float] = {
    "dtype": 3.0,
    "special": 2.0,
    "flag": 2.0,
    "answer": 1.5,
    "shape": 1.5,
    "given": 1.0,
    "layout": 0.5,
}
#: What an element costs, by the logarithm of their number; the first few are free, lest most be empty.
_COST, _FREE = 0.6, 16


@dataclass(frozen=True)
class _Candidate:
    reference: Reference
    size: int
    features: frozenset[tuple[str, str]]
    plainness: int

    @property
    def order(self) -> tuple[int, str]:
        """Smallest first; the same everywhere."""
        return self.size, self.reference.invocation.json


def select(case: OperatorCase, *, seed: int, count: int, without: frozenset[str] = frozenset()) -> list[Reference]:
    """At most `count` cases of one operator, the plainest first.

    They are chosen among draws of the operator case: first a small one with finite, ordinary numbers, then
    by what each shows that those before it do not, minus its size.

    Args:
        without: Case ids of draws that are passed over.
    """
    candidates = list(_candidates(case, seed, without))
    small = [c for c in candidates if c.size <= _SMALL]
    pool = sorted(small or candidates, key=lambda c: c.order)
    if not small:
        pool = pool[:1]
    chosen: list[_Candidate] = []
    seen: set[tuple[str, str]] = set()
    while pool and len(chosen) < count:
        if not chosen:
            # The first of the plainest, which is the smallest of them.
            best = max(pool, key=lambda c: c.plainness)
        else:
            best = max(pool, key=lambda c: _score(c, seen))
            if not best.features - seen:
                break
        chosen.append(best)
        seen |= best.features
        # More values of one structure show little that another structure does not.
        pool = [c for c in pool if c.reference.invocation.structure_id != best.reference.invocation.structure_id]
    return [c.reference for c in chosen]


def settled(judge: Judge, reference: Reference) -> Reference:
    """The same with zeros for the outputs that may hold anything, which are other numbers in every run."""
    free = free_outputs(judge, reference.arguments)
    expected = (np.zeros_like(a) if i in free else a for i, a in enumerate(reference.expected))
    return replace(reference, expected=tuple(expected)) if free else reference


def free_outputs(judge: Judge, arguments: Mapping[str, Any]) -> frozenset[int]:
    """Outputs of which nothing is asked but a shape, or not even that."""
    unasked = judge.unasked(arguments) if judge.unasked else frozenset()
    return unasked.union(i for i, rule in judge.rules.items() if rule is anything)


def _score(candidate: _Candidate, seen: set[tuple[str, str]]) -> float:
    worth = sum(_WORTH[kind] for kind, _ in candidate.features - seen)
    return worth - _COST * math.log2(max(candidate.size, _FREE))


def drawn(case: OperatorCase, seed: int) -> Iterator[Invocation]:
    """The calls that goldens are chosen among."""
    for held in draw_cases(case, seed=seed, structures=_STRUCTURES, values=_VALUES):
        yield from held.invocations


def _candidates(case: OperatorCase, seed: int, without: frozenset[str]) -> Iterator[_Candidate]:
    for invocation in drawn(case, seed):
        if invocation.case_id in without:
            continue
        try:
            reference = settled(judge_of(invocation), run_reference(invocation))
        except CallRejected:
            # PyTorch rejects it: there is nothing to store.
            continue
        arrays = (*reference.feeds, *reference.expected)
        features = frozenset(_features(reference))
        plainness = sum(
            (
                2 * (invocation.dtype == case.dtypes[0]),
                2 * (all(a.size for a in arrays) and max((a.size for a in arrays), default=0) > 2),
                2 * (not any(kind == "special" for kind, _ in features)),
                all(_is_finite(a) for a in reference.expected),
            )
        )
        yield _Candidate(reference, sum(a.size for a in arrays), features, plainness)


def _features(reference: Reference) -> Iterator[tuple[str, str]]:
    for spec in reference.invocation.tensors():
        yield "dtype", spec.dtype
        yield "shape", "empty" if not spec.numel else str(min(len(spec.shape), 4))
        if not spec.is_contiguous:
            yield "layout", "strided"
    for name, argument in reference.invocation.arguments:
        yield from _of_argument(name, argument)
    for array in reference.feeds:
        for word in _special(array):
            yield "special", word
    for array in reference.expected:
        yield "dtype", str(array.dtype)
        for word in _special(array):
            yield "answer", word


def _of_argument(name: str, argument: Argument) -> Iterator[tuple[str, str]]:
    if isinstance(argument, TensorSpec):
        yield "given", name
    elif isinstance(argument, bool | str | Enumerated) or argument is None:
        yield "flag", f"{name}={argument}"
    elif isinstance(argument, tuple):
        yield "given", f"{name}[{min(len(argument), 3)}]"
    else:
        value = abs(argument)
        size = "nan" if value != value else "0" if not value else "1" if value == 1 else "n"
        sign = "-" if isinstance(argument, int | float) and argument < 0 else ""
        yield "given", f"{name}={sign}{type(argument).__name__}{size}"


def _special(array: Array) -> Iterator[str]:
    dtype = str(array.dtype)
    if dtype in INT_RANGE:
        if array.size and (array.min() == INT_RANGE[dtype][0] or array.max() == INT_RANGE[dtype][1]):
            yield "edge of integers"
        return
    if dtype not in MIN_EXPONENT:
        return
    wide = array.astype(np.float64)
    magnitude = np.abs(wide)
    if np.isnan(wide).any():
        yield "nan"
    if np.isinf(wide).any():
        yield "inf"
    if ((wide == 0) & np.signbit(wide)).any():
        yield "-0"
    if ((magnitude > 0) & (magnitude < 2.0 ** MIN_EXPONENT[dtype])).any():
        yield "subnormal"
    if (np.isfinite(magnitude) & (magnitude > 2.0 ** min(-MIN_EXPONENT[dtype], 1000))).any():
        yield "large"


def _is_finite(array: Array) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.complex128)).all())
