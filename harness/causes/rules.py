"""Decide which root causes at one place are one defect, by five rules on typed facts.

A defect may show as several faults: a missing cast, for instance, as a wrong dtype in one case and as a node without a
kernel in another. Causes that a rule merges are joined by union-find. The comment after each of the `RULES` says how
many more groups there are without it, in a sweep that it was not derived from: seed 7, all operators, dynamo to
ort-cpu, 1,109 groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.causes.cause import RootCause
from harness.compare import elements
from harness.compare.faults import VALUE_FAULTS, Fault
from harness.compare.verdict import CONVERTER, SPEC, UNKNOWN


@dataclass(frozen=True, eq=False)
class CauseFacts:
    """The facts that failures of one root cause share; cases, structures and causes are given by number.

    Attributes:
        cause: The root cause.
        rows: The number of its rows.
        severity: The severity of its worst outcome; the lower, the worse.
        cases: Its cases.
        structures: Its structures; cases with the same structure share a graph.
        simultaneous: Causes that occur in the same cases, as other problems.
        elements: The kinds of its wrong elements; "" for one that tells nothing.
        has_wrong_numbers: Whether most of its cases with wrong NaN or infinities have wrong finite numbers as well.
    """

    cause: RootCause
    rows: int
    severity: int
    cases: frozenset[int]
    structures: frozenset[int]
    simultaneous: frozenset[int]
    elements: frozenset[str]
    has_wrong_numbers: bool = False

    @property
    def fault(self) -> str:
        """The fault of the root cause."""
        return self.cause.fault

    @property
    def has_wrong_elements(self) -> bool:
        """Whether single elements of results are wrong."""
        return self.fault in _ELEMENT_FAULTS or self.fault in (Fault.IGNORES_ARGUMENT, Fault.RESTS_ON_OPEN_QUESTION)


_ELEMENT_FAULTS = VALUE_FAULTS | {Fault.LEAVES_RANGE, Fault.LOSES_NAN, Fault.AS_EXACT_AS_FLOAT32}
#: Faults that may differ between the algorithms of a place.
_ALGORITHM_FAULTS = VALUE_FAULTS | {Fault.LEAVES_RANGE, Fault.LOSES_NAN}


@dataclass(frozen=True)
class Rule:
    """A rule; `holds` tells of two causes at one place, in either order, whether they are one defect."""

    name: str
    holds: Callable[[CauseFacts, CauseFacts], bool]


#: The faults that a missing cast shows as: a node without the dtype, a result in another dtype, or with its precision.
_DTYPE_FAULTS = frozenset(
    {Fault.UNDEFINED_DTYPE, Fault.COMPUTES_IN_ANOTHER_DTYPE, Fault.LARGER_DTYPE, Fault.AS_EXACT_AS_FLOAT32}
)


def _lack_same_cast(a: CauseFacts, b: CauseFacts) -> bool:
    """Whether both are symptoms of a missing cast; a number that float32 cannot hold leaves the range."""
    return all(x.fault in _DTYPE_FAULTS or _leaves_float32(x) for x in (a, b)) and not all(map(_leaves_float32, (a, b)))


def _leaves_float32(facts: CauseFacts) -> bool:
    ends: dict[str, str] = {Fault.LEAVES_RANGE: elements.BEYOND, Fault.VALUES: elements.UNDER}
    return facts.elements == {ends.get(facts.fault)}


def _share_graph(a: CauseFacts, b: CauseFacts) -> bool:
    """Whether two kinds of wrong elements, such as wrong numbers and NaN, come mostly from the same graphs.

    A lost NaN is a separate defect, unless the graph also creates NaN or ignores an argument. A case that fails in two
    ways in two backends has one wrong model.
    """
    if a.cause.blame == CONVERTER and not a.cases.isdisjoint(b.cases):
        return True
    if not (a.has_wrong_elements and b.has_wrong_elements) or SPEC in (a.cause.blame, b.cause.blame):
        return False
    faults = {a.fault, b.fault}
    if Fault.LOSES_NAN in faults and not faults & {Fault.LEAVES_RANGE, Fault.IGNORES_ARGUMENT}:
        return False
    shared = len(a.structures & b.structures)
    return shared > 0 and 2 * shared >= min(len(a.structures), len(b.structures))


def _share_unstable_formula(a: CauseFacts, b: CauseFacts) -> bool:
    """Whether one result is inexact and the other leaves the range, as with an unstable formula."""
    near = {elements.INEXACT, elements.CANCELLED, elements.DIGITS}
    return any(
        x.fault == Fault.LEAVES_RANGE and y.fault in _ELEMENT_FAULTS and y.elements & near for x, y in ((a, b), (b, a))
    )


def _show_one_fault(a: CauseFacts, b: CauseFacts) -> bool:
    """Whether one has wrong numbers and the other wrong infinities: two symptoms of a graph that computes another
    function."""
    return a.cause.blame == CONVERTER and {a.fault, b.fault} == {Fault.VALUES, Fault.INFINITIES}


def _has_wrong_numbers_too(a: CauseFacts, b: CauseFacts) -> bool:
    """Whether one has wrong numbers, and the cases of the other have them beside NaN or infinities."""
    of_range = {Fault.LOSES_NAN, Fault.LEAVES_RANGE, Fault.INFINITIES, Fault.NAN_POSITIONS}
    return any(x.fault in of_range and x.has_wrong_numbers and y.fault == Fault.VALUES for x, y in ((a, b), (b, a)))


RULES: tuple[Rule, ...] = (
    Rule("missing-cast", _lack_same_cast),  # 38
    Rule("one-graph", _share_graph),  # 13
    Rule("unstable-formula", _share_unstable_formula),  # 9
    Rule("one-function", _show_one_fault),  # 2
    Rule("wrong-numbers-too", _has_wrong_numbers_too),  # 4
)


def merge_causes(causes: Sequence[CauseFacts], rules: Sequence[Rule] = RULES) -> list[list[int]]:
    """Return the causes of each defect, by number, the most informative one first.

    Causes that occur in the same case are different defects, whatever the rules say, and so are those of different
    algorithms of a place.
    """
    parent = list(range(len(causes)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    by_place: defaultdict[object, list[int]] = defaultdict(list)
    for number, facts in enumerate(causes):
        by_place[facts.cause.where].append(number)
    for numbers in by_place.values():
        for first, second in combinations(numbers, 2):
            a, b = causes[first], causes[second]
            are_distinct = second in a.simultaneous or _are_of_two_algorithms(a, b)
            if not are_distinct and any(rule.holds(a, b) for rule in rules):
                parent[root(second)] = root(first)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(causes)):
        groups[root(number)].append(number)
    return [sorted(members, key=lambda n: _information_key(causes[n])) for members in groups.values()]


def _information_key(facts: CauseFacts) -> tuple[object, ...]:
    return facts.cause.blame == UNKNOWN, facts.severity, -facts.rows, facts.cause


def _are_of_two_algorithms(a: CauseFacts, b: CauseFacts) -> bool:
    return {a.fault, b.fault} <= _ALGORITHM_FAULTS and a.cause.choice != b.cause.choice
