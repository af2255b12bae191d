"""Decide whether a run is worse than expected.

1. If a cell has exactly the cases of the baseline (the same digest of case ids), it is compared exactly: any unexpected
   failure is a regression, and so is an additional case of an expected failure.
2. If it has other cases (another seed, a changed operator case), chance decides which triggers are drawn, and a rare
   trigger that is new in the draw is not a regression. Then the cells of an operator are merged, and a difference
   counts if Fisher's exact test of the numbers of structures gives it a probability below `CHANCE` (R. A. Fisher, The
   Logic of Inductive Inference, J. R. Stat. Soc. 98, 1935). An operator that can no longer be exported counts from
   eight structures on; a single new mismatch is only reported.
3. If the budget differs as well (``--examples``, ``--values``, ``--dtype``), shares cannot be compared: structures are
   drawn without repetition, so that more of them means rarer ones, and more values find more failures in each. Then
   only two changes count: that nothing passes any more, or that nothing fails any more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.compare.problem_kinds import FLUSHED, VALUES
from harness.compare.verdict import Outcome
from harness.core.dtypes import PRECISION
from harness.core.route import route_label
from harness.gate.baseline.cells import FLAKY, BaselineCell, CellKey, FailingCases, merge_cells, scope
from harness.gate.baseline.error_bounds import format_bound, growths, max_bound
from harness.gate.baseline.file import DRAWING, Baseline
from harness.gate.case_changes import DRIFT
from harness.record.run_info import JSON

#: A difference between draws with a probability below this is not an accident. A thousand operators on one route with
#: ten comparisons each give a false alarm in less than one run in a hundred: the test is exact and so coarse that most
#: comparisons cannot reach this level at all.
CHANCE = 1e-6
#: The same if nothing passes any more, or nothing fails: few operators get there by chance, and with eight structures
#: of each no test can prove more.
CHANCE_OF_ALL = 1e-4


class BaselineFinding(StrEnum):
    """The kind of a difference from the baseline.

    `REGRESSION`: cases that passed fail, or more cases of a known failure fail. `NEW_FAILURE`: cases that failed fail
    differently. `DRIFT`: cases pass, but errors have grown by more than the factor `DRIFT`. `FLAKY`: a case ended in
    two ways. `IMPROVEMENT`: an expected failure passes. `WITHIN_CHANCE`: failures of cases that the baseline does not
    have, explained by chance. `NEW_CELL`, `GONE`: one side lacks the cases. `MACHINE`: the baseline's versions do the
    same on this machine, or other kernels of the same version explain it. `WAIVED`: a waiver expects the failures.
    """

    REGRESSION = "regression"
    NEW_FAILURE = "new kind of failure"
    DRIFT = "error above bound"
    FLAKY = "flaky"
    IMPROVEMENT = "expected failure that passes"
    NEW_CELL = "not in the baseline"
    GONE = "no longer run"
    MACHINE = "this machine"
    WAIVED = "waived"
    WITHIN_CHANCE = "within chance"

    @property
    def fails(self) -> bool:
        """Whether it fails the gate."""
        return self in (BaselineFinding.REGRESSION, BaselineFinding.NEW_FAILURE, BaselineFinding.DRIFT)


@dataclass(frozen=True)
class CellDifference:
    """One difference of a cell, or of an operator's merged cells.

    Attributes:
        finding: The kind of difference.
        cell: The current cell, or the former one if it is gone.
        keys: The cells that it is about.
        failure: The failure that it is about; None if there is none.
        what: A description without the operator, converter and backend.
        bound: The limit that errors should keep, in ULP, for a drift.
        rules: The user's conversion functions before and now, if they differ.
        case_id: A case that shows it; "" if none is known.
    """

    finding: BaselineFinding
    cell: BaselineCell
    keys: tuple[CellKey, ...]
    failure: FailingCases | None
    what: str
    bound: float | None = None
    rules: tuple[str, str] | None = None
    case_id: str = ""

    @property
    def message(self) -> str:
        """The difference in one line."""
        cell = self.cell
        return (
            f"{cell.overload} {cell.dtype}, {route_label(cell.converter, cell.backend, cell.shape_mode)}: {self.what}"
        )


class Draws(StrEnum):
    """The relation between the cases of two runs."""

    SAME = "the same options"
    OTHER_SEED = "another seed"
    OTHER_BUDGET = "another budget"


def draws(before: Baseline, now: Baseline) -> Draws:
    """Compare the options of two runs that determine the drawn cases."""
    other = other_options(before, now)
    if not other:
        return Draws.SAME
    return Draws.OTHER_SEED if set(other) == {"seed"} else Draws.OTHER_BUDGET


def other_options(before: Baseline, now: Baseline) -> dict[str, tuple[JSON, JSON]]:
    """Return the options among `DRAWING` that differ; None for an option that was not given."""
    pairs = {name: (before.options.get(name), now.options.get(name)) for name in DRAWING}
    return {name: (a, b) for name, (a, b) in pairs.items() if a != b}


def compare(before: Baseline, now: Baseline, *, whole: bool = False) -> list[CellDifference]:
    """Return the differences of `now` from what `before` expects of the same operators, converters and backends.

    Args:
        before: The baseline.
        now: The run.
        whole: Also report operators of `before` that `now` lacks.
    """
    drawn = draws(before, now)
    found: list[CellDifference] = []
    others: defaultdict[tuple[str, ...], list[BaselineCell]] = defaultdict(list)
    expected_scopes = {scope(key) for key in before.cells}
    for key in sorted(now.cells):
        cell, expected = now.cells[key], before.cells.get(key)
        if expected is not None and expected.digest == cell.digest:
            found += _compare_exactly(expected, cell)
        elif expected is not None:
            others[scope(key)].append(cell)
        elif drawn is Draws.SAME or scope(key) not in expected_scopes:
            words = f"not in the baseline ({cell.passed} of {cell.cases} pass)"
            found.append(CellDifference(BaselineFinding.NEW_CELL, cell, (key,), None, words))
    for cells in others.values():
        keys = tuple(cell.key for cell in cells)
        found += _compare_statistically(
            merge_cells([before.cells[key] for key in keys]), merge_cells(cells), keys, drawn
        )
    run_scopes = {scope(key) for key in now.cells}
    for key in sorted(before.cells.keys() - now.cells.keys()):
        if (drawn is Draws.SAME and scope(key) in run_scopes) or (whole and scope(key) not in run_scopes):
            cell = before.cells[key]
            words = f"{cell.cases} cases of the baseline have no counterpart"
            found.append(CellDifference(BaselineFinding.GONE, cell, (key,), None, words))
    other_kernels = bool(before.kernels and now.kernels) and before.kernels != now.kernels
    return [_attribute_to_kernels(difference, before) for difference in found] if other_kernels else found


def _attribute_to_kernels(difference: CellDifference, before: Baseline) -> CellDifference:
    """Attribute a difference to other kernels of the same version, if they explain it.

    Such kernels sum in another order and may flush subnormal numbers to zero, but are equally exact. So errors may
    grow, and if a cell had wrong floats before, other ones may be wrong now. They explain nothing else.
    """
    kernels = difference.failure is not None and (
        difference.failure.signature == FLUSHED or _were_inexact(difference, difference.failure, before)
    )
    if difference.finding is BaselineFinding.DRIFT or (difference.finding.fails and kernels):
        words = f"{difference.what}; {difference.finding} on a machine with other kernels"
        return replace(difference, finding=BaselineFinding.MACHINE, what=words)
    return difference


def _were_inexact(difference: CellDifference, failure: FailingCases, before: Baseline) -> bool:
    """Whether the baseline already has wrong numbers in the same cell, of a dtype whose numbers are rounded."""
    known = (f.kind for key in difference.keys if key in before.cells for f in before.cells[key].failures)
    inexact = failure.outcome == Outcome.MISMATCH and failure.signature == VALUES
    return inexact and difference.cell.dtype in PRECISION and failure.kind in known


def _are_others(expected: FailingCases, failure: FailingCases) -> bool:
    """Whether equally many but, as far as known, other cases fail in the same way."""
    return bool(expected.codes) and expected.codes != failure.codes


def _compare_exactly(before: BaselineCell, now: BaselineCell) -> Iterator[CellDifference]:
    """Compare two cells with the same cases."""

    def difference(
        finding: BaselineFinding, failure: FailingCases | None, words: str, bound: float | None = None
    ) -> CellDifference:
        return CellDifference(finding, now, (now.key,), failure, words, bound, _rules(before, now))

    # A case that ends in two ways is expected in neither.
    slack = before.flaky + now.flaky
    was = {failure.kind: failure for failure in before.failures}
    remaining = {failure.kind: failure for failure in now.failures}
    lost = before.passed - now.passed
    worse = False
    for kind, failure in remaining.items():
        expected = was.get(kind)
        count = expected.cases if expected else 0
        words = f"{_kind(failure)}: {_share(count, before)}, now {_share(failure.cases, now)}"
        if failure.cases > count + slack:
            worse = True
            # If no pass was lost, a failing case now fails differently.
            yield difference(
                BaselineFinding.REGRESSION if lost > slack else BaselineFinding.NEW_FAILURE, failure, words
            )
        elif not slack and expected and expected.cases == failure.cases and _are_others(expected, failure):
            worse = True
            yield difference(BaselineFinding.REGRESSION, failure, f"{words}, but other cases")
    if lost > slack and not worse:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in now.other if outcome != FLAKY)
        words = f"{_share(before.passed, before)} passed, now {now.passed} ({outcomes or 'the rest fails'})"
        yield difference(BaselineFinding.REGRESSION, None, words)
    if now.flaky > before.flaky:
        yield difference(BaselineFinding.FLAKY, None, f"{_share(now.flaky, now)} end in two ways")
    gone = 0
    for kind, failure in was.items():
        left = remaining[kind].cases if kind in remaining else 0
        gone += max(0, failure.cases - left)
        if failure.cases - left > slack and now.failed < before.failed - slack and lost <= slack:
            words = f"{_kind(failure)}: {_share(failure.cases, before)}, now {_share(left, now)}"
            yield difference(BaselineFinding.IMPROVEMENT, failure, words)
    for limit, many, more in growths(before.ulps, now.ulps, DRIFT):
        # Cases that pass on one side only have no second error to compare.
        if more > many + gone + slack:
            yield difference(BaselineFinding.DRIFT, None, _drift(before, now, limit, many, more), DRIFT * limit)
            break


def _compare_statistically(
    before: BaselineCell, now: BaselineCell, keys: tuple[CellKey, ...], drawn: Draws
) -> Iterator[CellDifference]:
    """Compare the merged cells of an operator that have different cases."""

    def difference(
        finding: BaselineFinding, failure: FailingCases | None, words: str, bound: float | None = None
    ) -> CellDifference:
        if finding is not BaselineFinding.WITHIN_CHANCE and drawn is Draws.SAME:
            words += "; other cases are drawn than were for the baseline"
        return CellDifference(finding, now, keys, failure, words, bound, _rules(before, now))

    def commoner(few: int, many: int, chance: float = CHANCE) -> bool:
        """Whether `few` structures before and `many` now are more than an accident."""
        return probability(few, before.structures, many, now.structures) < chance

    def rarer(many: int, few: int, chance: float = CHANCE) -> bool:
        return probability(few, now.structures, many, before.structures) < chance

    same_budget = drawn is not Draws.OTHER_BUDGET
    stuck = not now.passing and commoner(before.structures - before.passing, now.structures, CHANCE_OF_ALL)
    chance = CHANCE_OF_ALL if stuck else CHANCE
    worse = False
    was = {failure.kind: failure for failure in before.failures}
    remaining = {failure.kind: failure for failure in now.failures}
    for kind, failure in remaining.items():
        expected = was.get(kind)
        count, structures = (expected.cases, expected.structures) if expected else (0, 0)
        words = f"{_kind(failure)}: {_share(count, before)}, now {_share(failure.cases, now)}"
        if (same_budget or stuck) and commoner(structures, failure.structures, chance):
            worse = True
            lost = commoner(before.failing, now.failing, chance)
            yield difference(BaselineFinding.REGRESSION if lost else BaselineFinding.NEW_FAILURE, failure, words)
        elif expected is None:
            yield difference(BaselineFinding.WITHIN_CHANCE, failure, words)
    fewer = commoner(before.structures - before.passing, now.structures - now.passing)
    more_fail = commoner(before.failing, now.failing)
    if not worse and (stuck or (same_budget and (fewer or more_fail))):
        words = f"{_share(before.passed, before)} passed, now {_share(now.passed, now)}"
        yield difference(BaselineFinding.REGRESSION, None, words)
    chance = CHANCE if now.failing else CHANCE_OF_ALL
    mended = (same_budget or not now.failing) and rarer(before.failing, now.failing, chance)
    for kind, failure in was.items():
        left = remaining.get(kind)
        cases, structures = (left.cases, left.structures) if left else (0, 0)
        if mended and rarer(failure.structures, structures, chance):
            words = f"{_kind(failure)}: {_share(failure.cases, before)}, now {_share(cases, now)}"
            yield difference(BaselineFinding.IMPROVEMENT, failure, words)
    if not same_budget:
        return
    for limit, many, more in growths(before.ulps, now.ulps, DRIFT):
        if probability(many, before.passing, more, now.passing) < CHANCE:
            yield difference(BaselineFinding.DRIFT, None, _drift(before, now, limit, many, more), DRIFT * limit)
            break


def mark_waived(raw: Sequence[CellDifference], lenient: Sequence[CellDifference]) -> list[CellDifference]:
    """Return differences from a baseline, of which those that waivers explain are marked.

    Args:
        raw: The differences of all cases.
        lenient: The differences if excused cases count as passing.
    """

    def key(difference: CellDifference) -> tuple[object, ...]:
        return difference.keys, difference.failure.kind if difference.failure is not None else None

    left = {key(difference): difference for difference in lenient if difference.finding.fails}
    marked = [
        replace(difference, finding=BaselineFinding.WAIVED)
        if difference.finding.fails and key(difference) not in left
        else left.pop(key(difference), difference)
        if difference.finding.fails
        else difference
        for difference in raw
    ]
    return [*marked, *left.values()]


def probability(few: int, of_few: int, many: int, of_many: int) -> float:
    """Return the one-sided p-value of Fisher's exact test that the share `many` does not exceed the share `few`."""
    events, total = few + many, of_few + of_many
    if not of_few or not of_many:
        return 1.0
    ways = sum(math.comb(of_many, k) * math.comb(of_few, events - k) for k in range(many, min(events, of_many) + 1))
    return ways / math.comb(total, events)


def _rules(before: BaselineCell, now: BaselineCell) -> tuple[str, str] | None:
    return None if before.rule == now.rule else (before.rule, now.rule)


def _kind(failure: FailingCases) -> str:
    return f"{failure.outcome} at {failure.stage}" + (f" ({failure.signature})" if failure.signature else "")


def _share(count: int, cell: BaselineCell) -> str:
    return f"{count} of {cell.cases} cases"


def _drift(before: BaselineCell, now: BaselineCell, limit: float, many: int, more: int) -> str:
    return (
        f"errors have grown more than {DRIFT:g} times: {more} of {now.passing} structures exceed "
        f"{format_bound(DRIFT * limit)} ULP, where {many} of {before.passing} exceeded {format_bound(limit)}; "
        f"largest {format_bound(max_bound(before.ulps))}, now {format_bound(max_bound(now.ulps))}"
    )
