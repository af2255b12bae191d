"""Which causes of failures are one defect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import permutations, product

import numpy as np

from harness.analyse.failure_key import BEFORE_BACKEND, Cause
from harness.compare import Outcome, Stage
from harness.record import Numbers

#: Worst first. Silently wrong numbers reach a user's users; a crash or a hang takes the program with it
#: but is noticed; an error is noticed and explained; a declared gap comes last. Of one kind, failures that
#: ordinary use meets come before those of edge cases.
SEVERITY = (Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR, Outcome.UNSUPPORTED)


def severity(outcome: str) -> int:
    """The place of an outcome in `SEVERITY`."""
    return SEVERITY.index(Outcome(outcome))


def united_causes(causes: Sequence[Cause], cause: Numbers, case: Numbers, origin: Numbers) -> list[list[int]]:
    """Causes that are one defect, by number, the one that says most first.

    A converter's wrong model may give wrong numbers in one backend and an error in another: where the
    same case does both, it is one defect of the converter; not so where it has both in one backend,
    as wrong values have behind a wrong dtype.

    Args:
        causes: All of them.
        cause: Each row's, a number; a case with several problems has a row for each.
        case: Each row's.
        origin: Which row of the record each is about.
    """
    together = _together(cause, origin)
    order = np.argsort(cause, kind="stable")
    cases = np.split(case[order], np.searchsorted(cause[order], np.arange(1, len(causes))))
    kept: list[list[int]] = []
    by_place: defaultdict[tuple[str, str, str], list[tuple[list[int], set[int]]]] = defaultdict(list)
    for number in sorted(range(len(causes)), key=lambda n: (severity(causes[n].outcome), causes[n])):
        one = causes[number]
        if one.blame != "converter" or Stage(one.stage) in BEFORE_BACKEND:
            kept.append([number])
            continue
        alike, theirs = by_place[one.converter, one.operator, one.rule], set(cases[number].tolist())
        same = [
            other
            for other in alike
            if other[1] & theirs and not any((member, number) in together for member in other[0])
        ]
        if not same:
            kept.append([number])
            alike.append((kept[-1], theirs))
            continue
        first, *others = same
        first[0].append(number)
        first[1].update(theirs)
        for other in others:
            if any(pair in together for pair in product(first[0], other[0])):
                continue
            first[0].extend(other[0])
            first[1].update(other[1])
            alike.remove(other)
            kept.remove(other[0])
    return kept


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
