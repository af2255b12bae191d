"""Causes moved to the place that running a case of theirs has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.analyse.coded_rows import CodedRows
from harness.analyse.converter_place import UNKNOWN_FUNCTION
from harness.analyse.failure_key import Cause
from harness.analyse.function_families import function_named
from harness.record import LocatedFailure, Numbers


@dataclass(frozen=True, kw_only=True)
class LocatedCauses:
    """Causes, and each row's place among them.

    Attributes:
        parts: Of each, a number: causes of different ones have nothing to do with each other.
        before: Of each, what it was before it was moved, and what became one with it.
        lines: What was found for some of them.
    """

    causes: Sequence[Cause]
    cause: Numbers
    parts: Sequence[int]
    before: Sequence[frozenset[Cause]]
    lines: dict[int, LocatedFailure]

    def by_overload(self, overload: Numbers) -> LocatedCauses:
        """The same as if each operator's were others; `overload` is each row's, a number."""
        size = len(self.causes)
        packed, cause = np.unique(overload * size + self.cause, return_inverse=True)
        numbers = (packed % size).tolist()
        lines = {new: self.lines[old] for new, old in enumerate(numbers) if old in self.lines}
        return LocatedCauses(
            causes=[self.causes[n] for n in numbers],
            cause=cause,
            parts=(packed // size).tolist(),
            before=[self.before[n] for n in numbers],
            lines=lines,
        )


#: What tells a failure from others of a run.
_KEY = ("case_id", "converter", "backend", "signature")


def located_causes(rows: CodedRows, located: Sequence[LocatedFailure]) -> LocatedCauses:
    """The causes of failed rows, at the functions that their cases were traced to.

    Only where the converter takes the operator apart first: there the function is not known without running.
    """
    causes, cause = rows.causes
    by_case = {tuple(getattr(one, name) for name in _KEY): one for one in located if one.function}
    words = rows.words("case_id")
    wanted = pc.is_in(words, pa.array({case_id for case_id, *_ in by_case}, pa.string())).to_numpy(False)
    found: dict[int, LocatedFailure] = {}
    for place in np.flatnonzero(wanted[rows.numbers("case_id")]).tolist():
        [row] = rows.at([place], _KEY)
        one, number = by_case.get(tuple(row[name] for name in _KEY)), int(cause[place])
        if one is not None and causes[number].blame == "converter":
            found.setdefault(number, one)
    moved = [_moved(one, found.get(number)) for number, one in enumerate(causes)]
    numbers = {one: number for number, one in enumerate(dict.fromkeys(moved))}
    of_old = np.array([numbers[one] for one in moved], dtype=np.int64)
    before: list[set[Cause]] = [set() for _ in numbers]
    for old, new in zip(causes, of_old.tolist(), strict=True):
        before[new].add(old)
    lines = {int(of_old[number]): one for number, one in sorted(found.items(), reverse=True)}
    return LocatedCauses(
        causes=list(numbers),
        cause=of_old[cause],
        parts=[0] * len(numbers),
        before=list(map(frozenset, before)),
        lines=lines,
    )


def _moved(cause: Cause, located: LocatedFailure | None) -> Cause:
    if located is None or not cause.place.name.startswith(UNKNOWN_FUNCTION):
        return cause
    known = function_named(located.converter, located.function)
    if known is None:
        return cause
    return replace(cause, place=replace(cause.place, owner=known.library, name=known.name, file=known.file))
