"""Causes that are one defect although some of their cases tell less of its owner than others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.analyse.blamed_place import FOLDING, LEAVES_RANGE, OPTIMISATION, SHAPES
from harness.analyse.failure_key import Cause
from harness.analyse.united import United
from harness.compare import BACKEND, CONVERTER, NAN_POSITIONS, PYTORCH, UNKNOWN, Outcome


@dataclass(frozen=True, kw_only=True)
class BlamedCauses:
    """What is looked at of causes, by number.

    Attributes:
        causes: Themselves.
        parts: Of each a number: those of different ones are different defects.
        overloads: The operator overloads that show each.
        converters: The converters with which it is seen.
        rows: How many rows it has.
    """

    causes: Sequence[Cause]
    parts: Sequence[int]
    overloads: Sequence[set[int]]
    converters: Sequence[set[int]]
    rows: Sequence[int]


def united_blames(kept: Sequence[United], blamed: BlamedCauses) -> list[United]:
    """Unite what different ones are blamed for, who is blamed for most of it first.

    A runtime that refuses the models of an operator in the same words refuses them for one reason. What
    nobody is blamed for is what somebody is, if only one is, for the same symptom of the same operator and
    converter. What folding constants makes wrong is the kernel's that it runs, where one of the operator's
    is wrong.
    """
    links = (*_refused_alike(kept, blamed), *_of_unknown(kept, blamed), *_of_folding(kept, blamed))
    return joined(kept, links, blamed)


def joined(kept: Sequence[United], links: Iterable[tuple[int, int]], blamed: BlamedCauses) -> list[United]:
    """What is left where those that are linked, by number, are one defect."""
    now = list(range(len(kept)))
    for pair in links:
        ends = {now[number] for number in pair}
        if len(ends) < 2:
            continue
        lesser, greater = sorted(ends, key=lambda number: (_weight(kept[number], blamed), -number))
        kept[greater].add(kept[lesser])
        now = [greater if number == lesser else number for number in now]
    return [united for number, united in enumerate(kept) if now[number] == number]


def _weight(united: United, blamed: BlamedCauses) -> tuple[bool, int]:
    """What tells who comes first: somebody before nobody."""
    return _blame(united, blamed) != UNKNOWN, sum(blamed.rows[one] for one in united.causes)


def _blame(united: United, blamed: BlamedCauses) -> str:
    return blamed.causes[united.causes[0]].blame


def _refused_alike(kept: Sequence[United], blamed: BlamedCauses) -> Iterator[tuple[int, int]]:
    found: defaultdict[tuple[int, str, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, united in enumerate(kept):
        if _blame(united, blamed) not in (CONVERTER, BACKEND, UNKNOWN):
            continue
        for one in united.causes:
            for overload in blamed.overloads[one] if blamed.causes[one].refused else ():
                key = blamed.parts[one], blamed.causes[one].refused, overload
                found[key][_blame(united, blamed)].append(number)
    for by_blame in found.values():
        if len(by_blame) > 1:
            alike = pairwise(number for numbers in by_blame.values() for number in numbers)
            yield from (pair for pair in alike if not _of_others(pair, kept, blamed))


def _of_others(pair: tuple[int, int], kept: Sequence[United], blamed: BlamedCauses) -> bool:
    """Whether a kernel refuses models of more operators than a conversion function is wrong for, or only
    another converter is to blame."""
    by_blame = {_blame(kept[number], blamed): kept[number].overloads for number in pair}
    one, other = (_converters(kept[number], blamed) for number in pair)
    if BACKEND not in by_blame and one.isdisjoint(other):
        return True
    return by_blame.keys() == {BACKEND, CONVERTER} and not by_blame[BACKEND] <= by_blame[CONVERTER]


def _of_unknown(kept: Sequence[United], blamed: BlamedCauses) -> Iterator[tuple[int, int]]:
    by_overload: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for number, united in enumerate(kept):
        if _blame(united, blamed) in (CONVERTER, BACKEND, PYTORCH):
            for overload in united.overloads:
                by_overload[blamed.parts[united.causes[0]], overload].append(number)
    for number, united in enumerate(kept):
        if _blame(united, blamed) != UNKNOWN:
            continue
        part = blamed.parts[united.causes[0]]
        near = {other for overload in united.overloads for other in by_overload[part, overload]}
        converters = _converters(united, blamed)
        alike = [
            other
            for other in near
            if _symptoms(united) & _symptoms(kept[other]) and converters & _converters(kept[other], blamed)
        ]
        if len(alike) == 1:
            yield number, alike[0]


def _of_folding(kept: Sequence[United], blamed: BlamedCauses) -> Iterator[tuple[int, int]]:
    kernels: defaultdict[tuple[int, str, int], set[int]] = defaultdict(set)
    folding = list[int]()
    for number, united in enumerate(kept):
        cause = blamed.causes[united.causes[0]]
        if cause.blame != BACKEND or Outcome(cause.outcome) is not Outcome.MISMATCH:
            continue
        if cause.place.name == FOLDING:
            folding.append(number)
        elif not cause.place.name.startswith(OPTIMISATION):
            for overload in united.overloads:
                kernels[blamed.parts[united.causes[0]], cause.place.owner, overload].add(number)
    for number in folding:
        first = kept[number].causes[0]
        owner = blamed.causes[first].place.owner
        run = [kernels[blamed.parts[first], owner, overload] for overload in kept[number].overloads]
        if all(len(numbers) == 1 for numbers in run) and len(set().union(*run)) == 1:
            yield number, run[0].copy().pop()


def _symptoms(united: United) -> set[str]:
    """Its words, which for a place that is known may say more of a shape or of what leaves the range."""
    said = {"shape" if words in SHAPES else words for words in united.words}
    return said | {NAN_POSITIONS, "infinities"} if LEAVES_RANGE in said else said


def _converters(united: United, blamed: BlamedCauses) -> set[int]:
    return set[int]().union(*(blamed.converters[one] for one in united.causes))
