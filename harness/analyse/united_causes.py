"""Which causes of failures are one defect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from harness.analyse.blamed_place import BEFORE_BACKEND
from harness.analyse.defect_place import Place
from harness.analyse.failure_key import Cause
from harness.compare import CONVERTER, ELEMENTWISE, SPEC, Outcome, Stage
from harness.record import Numbers

#: Worst first. Silently wrong numbers reach a user's users; a crash or a hang takes the program with it
#: but is noticed; an error is noticed and explained; a declared gap comes last. Of one kind, failures that
#: ordinary use meets come before those of edge cases.
SEVERITY = (Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR, Outcome.UNSUPPORTED)


def severity(outcome: str) -> int:
    """The place of an outcome in `SEVERITY`."""
    return SEVERITY.index(Outcome(outcome))


@dataclass(frozen=True, kw_only=True)
class FailedRows:
    """What is looked at of failed rows, each a number; a case with several problems has a row for each.

    Attributes:
        cause: Its place among the causes.
        case: Which case it is about.
        structure: Which structure, of which the cases have one graph.
        origin: Which row of the record it is about.
    """

    cause: Numbers
    case: Numbers
    structure: Numbers
    origin: Numbers


def united_causes(causes: Sequence[Cause], parts: Sequence[int], rows: FailedRows) -> list[list[int]]:
    """Causes that are one defect, by number, the one that says most first.

    The same may be wrong in the same place and be noticed at another stage. A converter's wrong model may
    give wrong numbers in one backend and an error in another: where the same case does both, it is one defect
    of the converter; not so where it has both in one backend, as other wrong values may be behind a dtype.

    What is computed in a smaller dtype than the call's overflows or is rounded in it: wrong elements that
    mostly come with such a dtype are one defect with that. So is what a missing cast may explain, in a
    function that lacks one.

    One graph may give wrong numbers for some values and NaN for others: where it mostly does both, it is one
    defect, too.

    Args:
        parts: Of each cause, a number: those of different ones are different defects.
    """
    together = _together(rows.cause, rows.origin)
    cases, structures = (_of_each(of, rows.cause, len(causes)) for of in (rows.case, rows.structure))
    rows_of = np.bincount(rows.cause, minlength=len(causes)).tolist()
    kept: list[_United] = []
    by_place: defaultdict[tuple[int, str, Place, str], list[_United]] = defaultdict(list)
    for number in sorted(
        range(len(causes)), key=lambda n: (severity(causes[n].outcome), -rows_of[n], causes[n])
    ):
        one = causes[number]
        symptom = one.blame == CONVERTER and Stage(one.stage) not in BEFORE_BACKEND
        new = _United(
            [number],
            {one.words},
            {one.may_be} - {""},
            cases[number] if symptom else set(),
            structures[number] if _of_elements(one.words) and one.blame != SPEC else set(),
            cases[number] if one.lossy and symptom else set(),
            cases[number] if one.words in ELEMENTWISE and symptom else set(),
        )
        alike = by_place[parts[number], one.blame, one.place, one.rule]
        same = [
            other
            for other in alike
            if one.words in other.words
            or one.words in other.may_be
            or one.may_be in other.words
            or other.explains(new)
            or (other.meets(new) and not any((member, number) in together for member in other.causes))
        ]
        if not same:
            kept.append(new)
            alike.append(new)
            continue
        first, *others = same
        first.add(new)
        for other in others:
            apart = any(pair in together for pair in product(first.causes, other.causes))
            if apart and not first.explains(other):
                continue
            first.add(other)
            alike.remove(other)
            kept.remove(other)
    return [united.causes for united in kept]


def _of_elements(words: str) -> bool:
    """Whether some elements of a result are wrong, as where an argument is ignored."""
    return words in ELEMENTWISE or words.startswith("ignores ")


@dataclass(eq=False)
class _United:
    """Causes that are one defect, and what they may meet another by.

    Attributes:
        may_be: The words of others that they are one defect with, if there are such.
        cases: Of symptoms of a wrong model, which another may have with another backend.
        structures: Of wrong elements.
        recast: The cases with a result of a dtype that loses some of it.
        inexact: The cases with wrong elements.
    """

    causes: list[int]
    words: set[str]
    may_be: set[str]
    cases: set[int]
    structures: set[int]
    recast: set[int]
    inexact: set[int]

    def explains(self, other: _United) -> bool:
        """Whether most of the wrong elements of one are results in the other's wrong dtype."""
        return _mostly(self.recast, other.inexact) or _mostly(other.recast, self.inexact)

    def meets(self, other: _United) -> bool:
        shared = len(self.structures & other.structures)
        mostly = shared > 0 and 2 * shared >= min(len(self.structures), len(other.structures))
        return mostly or not self.cases.isdisjoint(other.cases)

    def add(self, other: _United) -> None:
        self.causes.extend(other.causes)
        self.words |= other.words
        self.may_be |= other.may_be
        self.cases |= other.cases
        self.structures |= other.structures
        self.recast |= other.recast
        self.inexact |= other.inexact


def _mostly(recast: set[int], inexact: set[int]) -> bool:
    shared = len(recast & inexact)
    return shared > 0 and 2 * shared >= len(inexact)


def _of_each(values: Numbers, cause: Numbers, count: int) -> list[set[int]]:
    """The values of each cause's rows."""
    order = np.argsort(cause, kind="stable")
    parts = np.split(values[order], np.searchsorted(cause[order], np.arange(1, count)))
    return [set(part.tolist()) for part in parts]


def _together(cause: Numbers, origin: Numbers) -> set[tuple[int, int]]:
    """Pairs of causes that one row of the record has, of which neither is the other's symptom."""
    pairs: set[tuple[int, int]] = set()
    rows, counts = np.unique(origin, return_counts=True)
    several = np.isin(origin, rows[counts > 1])
    by_row: defaultdict[int, list[int]] = defaultdict(list)
    for row, one in zip(origin[several].tolist(), cause[several].tolist(), strict=True):
        by_row[row].append(one)
    for ones in by_row.values():
        pairs.update(permutations(ones, 2))
    return pairs
