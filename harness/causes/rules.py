"""Which root causes of one place are one defect: three rules on typed facts.

One defect may show as several faults: a missing cast as a wrong dtype here and as a node without a kernel there. What a
rule unites becomes one by union-find. `RULES` has with each rule how many more groups there are without it, in a sweep
that it was not made from: seed 7, all operators, dynamo to ort-cpu, 1,140 groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.causes.cause import RootCause
from harness.compare import diagnosis, elements
from harness.compare.verdict import CONVERTER, SPEC, UNKNOWN


@dataclass(frozen=True, eq=False)
class CauseFacts:
    """What the failures of one root cause have in common; rows, cases and structures are numbers.

    Attributes:
        severity: Of its worst outcome; the lower, the worse.
        rows: How many rows it has.
        cases: The cases.
        structures: The structures; cases of one share a graph.
        with_it: Numbers of the causes that one case has at the same time, as different problems.
        elements: The kinds of wrong elements that it shows.
    """

    cause: RootCause
    rows: int
    severity: int
    cases: frozenset[int]
    structures: frozenset[int]
    with_it: frozenset[int]
    elements: frozenset[str]

    @property
    def fault(self) -> str:
        """What is wrong."""
        return self.cause.fault

    @property
    def has_wrong_elements(self) -> bool:
        """Whether single elements of results are wrong."""
        return self.fault in _OF_ELEMENTS or self.fault in ("ignores-argument", "rests-on-open-question")


_OF_ELEMENTS = diagnosis.VALUE_FAULTS | {"leaves-range", "loses-nan", "as-exact-as-float32"}
#: Faults by which the algorithms of a place may differ.
_OF_ALGORITHMS = diagnosis.VALUE_FAULTS | {"leaves-range", "loses-nan"}


@dataclass(frozen=True)
class Rule:
    """One rule; `holds` says of two causes of one place, in either order, whether they are one defect."""

    name: str
    holds: Callable[[CauseFacts, CauseFacts], bool]


#: How a missing cast shows: a node without the dtype, a result in another one, numbers as exact as another's.
_OF_DTYPES = frozenset({"undefined-dtype", "computes-in-another-dtype", "larger-dtype", "as-exact-as-float32"})


def _missing_cast(one: CauseFacts, other: CauseFacts) -> bool:
    return {one.fault, other.fault} <= _OF_DTYPES


def _one_graph(one: CauseFacts, other: CauseFacts) -> bool:
    """Wrong elements of two kinds, mostly of the same graphs: wrong numbers for some values, NaN for others.

    NaN that is lost is another matter, unless NaN also comes up there, or elements do that are all others. A case that
    fails in two ways, in two backends, has one wrong model.
    """
    if one.cause.blame == CONVERTER and not one.cases.isdisjoint(other.cases):
        return True
    if not (one.has_wrong_elements and other.has_wrong_elements) or SPEC in (one.cause.blame, other.cause.blame):
        return False
    names = {one.fault, other.fault}
    if "loses-nan" in names and not names & {"leaves-range", "ignores-argument"}:
        return False
    shared = len(one.structures & other.structures)
    return shared > 0 and 2 * shared >= min(len(one.structures), len(other.structures))


def _unstable_formula(one: CauseFacts, other: CauseFacts) -> bool:
    """Results that are near the right ones, and results that leave the range: a formula that is not stable."""
    near = {elements.INEXACT, elements.CANCELLED, elements.DIGITS}
    return any(
        a.fault == "leaves-range" and b.fault in _OF_ELEMENTS and b.elements & near
        for a, b in ((one, other), (other, one))
    )


RULES: tuple[Rule, ...] = (
    Rule("missing-cast", _missing_cast),  # 30
    Rule("one-graph", _one_graph),  # 21
    Rule("unstable-formula", _unstable_formula),  # 14
)


def united(found: Sequence[CauseFacts], rules: Sequence[Rule] = RULES) -> list[list[int]]:
    """The causes that are one defect, by number; of each defect the cause that tells most first.

    Causes that one case has at the same time are two defects, whatever rules say. So are those of different
    algorithms of a place.
    """
    parent = list(range(len(found)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    by_place: defaultdict[object, list[int]] = defaultdict(list)
    for number, facts in enumerate(found):
        by_place[facts.cause.where].append(number)
    for numbers in by_place.values():
        for first, second in combinations(numbers, 2):
            one, other = found[first], found[second]
            apart = second in one.with_it or _are_of_two_algorithms(one, other)
            if not apart and any(rule.holds(one, other) for rule in rules):
                parent[root(second)] = root(first)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(found)):
        groups[root(number)].append(number)
    return [sorted(members, key=lambda n: _telling(found[n])) for members in groups.values()]


def _telling(facts: CauseFacts) -> tuple[object, ...]:
    return facts.cause.blame == UNKNOWN, facts.severity, -facts.rows, facts.cause


def _are_of_two_algorithms(one: CauseFacts, other: CauseFacts) -> bool:
    return {one.fault, other.fault} <= _OF_ALGORITHMS and one.cause.choice != other.cause.choice
