"""Which root causes are one defect beyond what (component, place, fault) says: a table of rules.

One defect may show as several faults: a missing cast as a wrong dtype here and as a node without a kernel there.
A rule looks at two causes, at typed facts alone; what a rule unites becomes one by union-find. `RULES` has with each
rule how many more groups there are without it, in full sweeps with dynamo (of 940) and torchscript (of 996);
`PYTHONPATH=tests/support python -m rule_effects RUN...` counts them. A rule that changes fewer than three goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from harness.causes.cause import RootCause
from harness.compare import diagnosis, elements
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, SPEC, UNKNOWN


@dataclass(frozen=True, eq=False)
class CauseFacts:
    """What the failures of one root cause have in common; rows, cases and names are numbers.

    Attributes:
        severity: Of its worst outcome; the lower, the worse.
        rows: How many rows it has.
        cases: The cases.
        structures: The structures; cases of one share a graph.
        lossy_cases: Cases whose result has a dtype that does not hold all values of the right one.
        with_it: Numbers of the causes that one case has at the same time, as different problems.
        conditions: What all its calls meet; see `harness.generate.call_traits.CONDITIONS`.
        rare: Those of them that most failing calls of the same operators do not meet.
        elements: The kinds of wrong elements that it shows.
        refusals: Which runtime says what of its models.
    """

    cause: RootCause
    rows: int
    severity: int
    cases: frozenset[int]
    structures: frozenset[int]
    overloads: frozenset[int]
    converters: frozenset[int]
    lossy_cases: frozenset[int]
    with_it: frozenset[int]
    conditions: frozenset[str]
    rare: frozenset[str]
    elements: frozenset[str]
    refusals: frozenset[str]

    @property
    def fault(self) -> str:
        """What is wrong."""
        return self.cause.fault

    @property
    def wrong_elements(self) -> bool:
        """Whether single elements of results are wrong."""
        return self.fault in _OF_ELEMENTS or self.fault in ("ignores-argument", "rests-on-open-question")


_OF_ELEMENTS = diagnosis.OF_VALUES | {"leaves-range", "loses-nan", "as-exact-as-float32"}
#: Faults by which the algorithms of a place may differ.
_OF_ALGORITHMS = diagnosis.OF_VALUES | {"leaves-range", "loses-nan"}
#: Whether two causes are one defect.
Holds: TypeAlias = Callable[[CauseFacts, CauseFacts], bool]


@dataclass(frozen=True)
class Rule:
    """A row of the table.

    Attributes:
        name: A stable id.
        holds: Asked about two causes, in either order.
        anywhere: Whether causes of different places, or blamed on different ones, may be united.
    """

    name: str
    holds: Holds
    anywhere: bool = False


def _mostly(few: frozenset[int], many: frozenset[int]) -> bool:
    shared = len(few & many)
    return shared > 0 and 2 * shared >= min(len(few), len(many))


def _either(first: str, second: str) -> Holds:
    """Whether one has the first fault and the other the second, in one operator."""

    def holds(one: CauseFacts, other: CauseFacts) -> bool:
        return {one.fault, other.fault} == {first, second} and not one.overloads.isdisjoint(other.overloads)

    return holds


def _one_operator_lacks_dtypes(one: CauseFacts, other: CauseFacts) -> bool:
    """Nodes that are not defined for a dtype, in one operator: one cast is missing, whichever node shows it."""
    both = one.fault == other.fault == "undefined-dtype"
    return both and not one.overloads.isdisjoint(other.overloads)


def _missing_cast(one: CauseFacts, other: CauseFacts) -> bool:
    """A node without the dtype, and a result in another dtype: the cast is missing that would give the right one."""
    return {one.fault, other.fault} == {"undefined-dtype", "computes-in-another-dtype"}


def _narrow_result_explains(one: CauseFacts, other: CauseFacts) -> bool:
    """Most wrong elements of one are in results of the other's wrong dtype, in which they have no room."""
    return any(
        b.fault in _OF_ELEMENTS and 0 < len(a.lossy_cases & b.cases) >= len(b.cases) / 2
        for a, b in ((one, other), (other, one))
    )


def _one_graph(one: CauseFacts, other: CauseFacts) -> bool:
    """Wrong elements of two kinds, mostly of the same graphs: wrong numbers for some values, NaN for others.

    NaN that is lost is another matter, unless NaN also comes up there, or elements do that are all others.
    """
    if not (one.wrong_elements and other.wrong_elements) or SPEC in (one.cause.blame, other.cause.blame):
        return False
    names = {one.fault, other.fault}
    if "loses-nan" in names and not names & {"leaves-range", "ignores-argument"}:
        return False
    return _mostly(one.structures, other.structures)


def _one_case_elsewhere(one: CauseFacts, other: CauseFacts) -> bool:
    """One case is wrong in both ways, in two backends: two symptoms of one wrong model."""
    return one.cause.blame == CONVERTER and not one.cases.isdisjoint(other.cases)


def _exact_as_float32(one: CauseFacts, other: CauseFacts) -> bool:
    """Numbers as exact as float32's beside what shows another dtype: computed in that."""
    return {one.fault, other.fault} == {"as-exact-as-float32", "computes-in-another-dtype"}


def _unstable_formula(one: CauseFacts, other: CauseFacts) -> bool:
    """Results that are near the right ones beside what leaves the range: a formula that is not stable."""
    near = {elements.INEXACT, elements.CANCELLED, elements.DIGITS}
    return any(
        a.fault == "leaves-range" and b.fault in _OF_ELEMENTS and b.elements & near for a, b in _orders(one, other)
    )


def _orders(one: CauseFacts, other: CauseFacts) -> Iterator[tuple[CauseFacts, CauseFacts]]:
    yield one, other
    yield other, one


#: What a kernel gives → faults of which that is another sight, where it gives these, too.
_OF_KERNELS = {
    "wrong-numbers": {"inexact", "inexact-float64"},
    "flushes-small-numbers": {"inexact", "inexact-float64"},
    "float64-in-float32": {"inexact-float64"},
    "makes-nan": {"makes-infinities"},
}


def _one_kernel(one: CauseFacts, other: CauseFacts) -> bool:
    """Two faults of a kernel of which one is another sight of the other."""
    return any(b.fault in _OF_KERNELS.get(a.fault, ()) for a, b in _orders(one, other))


def _one_trigger(one: CauseFacts, other: CauseFacts) -> bool:
    """All calls of both have a 0-d tensor, or tensors of several ranks, as few other failing calls do."""
    return _in_function(one) and not (one.rare & other.rare).isdisjoint({"scalar", "ranks"})


_SIZES = frozenset({"shape", "unfit-shapes", "unfit-inputs", "asks-unfit"})


def _wrong_sizes(one: CauseFacts, other: CauseFacts) -> bool:
    """Sizes that do not fit and a wrong size, of one operator, alike in what is 0-d or empty."""
    if not {one.fault, other.fault} <= _SIZES or one.overloads.isdisjoint(other.overloads):
        return False
    return (one.conditions ^ other.conditions).isdisjoint({"scalar", "empty"})


def _in_function(facts: CauseFacts) -> bool:
    return facts.cause.blame == CONVERTER


def _refused_in_the_same_words(one: CauseFacts, other: CauseFacts) -> bool:
    """A runtime refuses the models of an operator in the same words, blamed on different ones: for one reason."""
    if one.refusals.isdisjoint(other.refusals) or one.overloads.isdisjoint(other.overloads):
        return False
    blames = {one.cause.blame: one, other.cause.blame: other}
    if len(blames) < 2 or not blames.keys() <= {CONVERTER, BACKEND, UNKNOWN}:
        return False
    if BACKEND not in blames and one.converters.isdisjoint(other.converters):
        return False
    # A kernel that refuses models of more operators than a function is wrong for is another defect.
    if blames.keys() == {BACKEND, CONVERTER}:
        return blames[BACKEND].overloads <= blames[CONVERTER].overloads
    return True


def _blamed_elsewhere(one: CauseFacts, other: CauseFacts) -> bool:
    """What is undecided shows as what is decided does, of the same operator and converter."""
    blames = {one.cause.blame, other.cause.blame}
    if (
        UNKNOWN not in blames
        or len(blames) < 2
        or SPEC in blames
        or not blames <= {UNKNOWN, CONVERTER, BACKEND, PYTORCH}
    ):
        return False
    same = one.fault == other.fault and one.cause.symptom == other.cause.symptom
    shared = not one.overloads.isdisjoint(other.overloads) and not one.converters.isdisjoint(other.converters)
    return same and shared


RULES: tuple[Rule, ...] = (
    Rule("one-operator-lacks-dtypes", _one_operator_lacks_dtypes),  # 7, 5
    Rule("missing-cast", _missing_cast),  # 12, 24
    Rule("larger-dtype", _either("larger-dtype", "computes-in-another-dtype")),  # 1, 13
    Rule("narrow-result-explains", _narrow_result_explains),  # 1, 13
    Rule("one-graph", _one_graph),  # 25, 17
    # Shows where a run has several backends; the sweeps have one.
    Rule("one-case-elsewhere", _one_case_elsewhere),  # 0, 0
    Rule("exact-as-float32", _exact_as_float32),  # 7, 5
    Rule("unstable-formula", _unstable_formula),  # 14, 15
    Rule("one-kernel", _one_kernel),  # 8, 7
    Rule("one-trigger", _one_trigger),  # 2, 17
    Rule("wrong-sizes", _wrong_sizes),  # 2, 5
    Rule("refused-in-the-same-words", _refused_in_the_same_words, anywhere=True),  # 3, 6
    Rule("blamed-elsewhere", _blamed_elsewhere, anywhere=True),  # 8, 8
)


def united(found: Sequence[CauseFacts], rules: Sequence[Rule] = RULES) -> list[list[int]]:
    """The causes that are one defect, by number; of each defect the cause that tells most first.

    Causes that one case has at the same time are two defects, whatever rules in one place say, unless one explains
    the other by its dtype. So are those of different algorithms of a place.
    """
    parent = list(range(len(found)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for first, second in _candidates(found):
        one, other = found[first], found[second]
        here = one.cause.where == other.cause.where
        if here and not _comparable(one, other, second):
            continue
        if any(rule.holds(one, other) for rule in rules if here or rule.anywhere):
            parent[root(second)] = root(first)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(found)):
        groups[root(number)].append(number)
    return [sorted(members, key=lambda n: _telling(found[n])) for members in groups.values()]


def _telling(facts: CauseFacts) -> tuple[object, ...]:
    undecided = facts.cause.blame == UNKNOWN
    return undecided, facts.severity, facts.fault == "larger-dtype", -facts.rows, facts.cause


def _comparable(one: CauseFacts, other: CauseFacts, number: int) -> bool:
    if {one.fault, other.fault} <= _OF_ALGORITHMS and one.cause.choice != other.cause.choice:
        return False
    return number not in one.with_it or _narrow_result_explains(one, other)


def _candidates(found: Sequence[CauseFacts]) -> Iterator[tuple[int, int]]:
    """Pairs of causes in one place, or of one operator, each once."""
    by_place: defaultdict[object, list[int]] = defaultdict(list)
    by_overload: defaultdict[int, list[int]] = defaultdict(list)
    for number, facts in enumerate(found):
        by_place[facts.cause.where].append(number)
        for overload in facts.overloads:
            by_overload[overload].append(number)
    pairs = {pair for numbers in (*by_place.values(), *by_overload.values()) for pair in combinations(numbers, 2)}
    yield from sorted(pairs)
