"""Which causes of failures are one defect."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np

from harness.analyse.blamed_place import (
    BEFORE_BACKEND,
    IGNORES,
    LARGER_DTYPE,
    LEAVES_RANGE,
    LOSES_NAN,
    OF_ELEMENTS,
    RESTS,
)
from harness.analyse.call_conditions import CallConditions
from harness.analyse.defect_place import Place
from harness.analyse.failure_key import Cause
from harness.analyse.settled_words import settled_words
from harness.analyse.united import United
from harness.analyse.united_blames import BlamedCauses, joined, united_blames
from harness.analyse.united_conditions import by_conditions
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
        overload: Which operator overload.
        converter: Which converter.
        conditions: Of each cause, what its calls have in common.
    """

    cause: Numbers
    case: Numbers
    structure: Numbers
    origin: Numbers
    overload: Numbers
    converter: Numbers
    conditions: Sequence[CallConditions]


def united_causes(causes: Sequence[Cause], parts: Sequence[int], rows: FailedRows) -> list[list[int]]:
    """Causes that are one defect, by number, the one that says most first.

    The same may be wrong in the same place and be noticed at another stage. A converter's wrong model may
    give wrong numbers in one backend and an error in another: where the same case does both, it is one defect
    of the converter; not so where it has both in one backend, as other wrong values may be behind a dtype.

    What is computed in a smaller dtype than the call's overflows or is rounded in it: wrong elements that
    mostly come with such a dtype are one defect with that. So is what a missing cast may explain, in a
    function that lacks one. A function that several operators share may lack several, though: those that
    show in different nodes, or the other way round, of different operators.

    One graph may give wrong numbers for some values and NaN for others: where it mostly does both, it is one
    defect, too. NaN that is lost is another matter, unless NaN also comes up there.

    Args:
        parts: Of each cause, a number: those of different ones are different defects.
    """
    together = _together(rows.cause, rows.origin)
    of_each = (_of_each(of, rows.cause, len(causes)) for of in (rows.case, rows.structure, rows.overload))
    cases, structures, overloads = of_each
    rows_of = np.bincount(rows.cause, minlength=len(causes)).tolist()
    places = [
        (part, one.blame, _without_version(one.place), one.rule)
        for part, one in zip(parts, causes, strict=True)
    ]
    said = settled_words(causes, places)
    kept: list[United] = []
    by_place: defaultdict[tuple[int, str, Place, str], list[United]] = defaultdict(list)
    for number in sorted(
        range(len(causes)),
        key=lambda n: (severity(causes[n].outcome), causes[n].words == LARGER_DTYPE, -rows_of[n], causes[n]),
    ):
        one, words = causes[number], said[number]
        symptom = one.blame == CONVERTER and Stage(one.stage) not in BEFORE_BACKEND
        new = United(
            [number],
            {words},
            {one.may_be} - {""},
            {one.place.choice} if words in OF_ELEMENTS else set(),
            {one.node} - {""},
            set(overloads[number]),
            cases[number] if symptom else set(),
            structures[number] if _of_elements(words) and one.blame != SPEC else set(),
            structures[number] if words == LOSES_NAN else set(),
            cases[number] if one.lossy and symptom else set(),
            cases[number] if words in OF_ELEMENTS and symptom else set(),
        )
        alike = by_place[places[number]]
        same = [
            other
            for other in alike
            if new.is_of_choice(other)
            and (
                new.says_as(other)
                or other.explains(new)
                or (other.meets(new) and not any((member, number) in together for member in other.causes))
            )
        ]
        if not same:
            kept.append(new)
            alike.append(new)
            continue
        first, *others = same
        first.add(new)
        for other in others:
            apart = any(pair in together for pair in product(first.causes, other.causes))
            if (apart and not first.explains(other)) or not first.is_of_choice(other):
                continue
            first.add(other)
            alike.remove(other)
            kept.remove(other)
    blamed = BlamedCauses(
        causes=causes,
        parts=parts,
        overloads=overloads,
        converters=_of_each(rows.converter, rows.cause, len(causes)),
        rows=rows_of,
    )
    functions = [
        place if one.blame == CONVERTER and one.place.file else None
        for one, place in zip(causes, places, strict=True)
    ]
    kept = joined(kept, list(by_conditions(kept, functions, rows.conditions, together)), blamed)
    return [united.causes for united in united_blames(kept, blamed)]


def _without_version(place: Place) -> Place:
    """A place without its algorithms, and without the opset that a module of TorchScript's helpers is for."""
    return replace(place, choice="", file=_OPSET.sub("", place.file))


_OPSET = re.compile(r"(?<=/symbolic_opset)\d+(?=\.py$)")


def _of_elements(words: str) -> bool:
    """Whether some elements of a result are wrong, as where an argument is ignored or any would do."""
    return words in ELEMENTWISE or words == LEAVES_RANGE or words.startswith((IGNORES, RESTS))


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
