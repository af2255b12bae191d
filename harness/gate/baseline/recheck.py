"""Run unexpected cases again to find out whether they end the same way every time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.compare.verdict import CaseKey, Outcome, Verdict
from harness.core.invocation import Invocation
from harness.gate.baseline.cells import CellKey, key_of, kind_of, passes
from harness.gate.baseline.count_cells import DRAWN_SOURCES, cells_of, code_of
from harness.gate.baseline.error_bounds import bound, format_bound
from harness.gate.baseline.file import Baseline
from harness.gate.baseline.gate import BaselineFinding, CellDifference, compare, mark_waived
from harness.gate.case_changes import DRIFT
from harness.gate.waivers import NO_WAIVERS, Waivers, mark_open
from harness.generate.sources.recorded import FromRecord, Replayed
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit

#: Number of cases per difference that are run again, and how often.
_CASES = 16
_TIMES = 2
#: If some of them are flaky, all others are run again this often.
_TIMES_BESIDE_FLAKY = 10


@dataclass(frozen=True)
class Rechecked:
    """The differences of a unit from what is expected.

    Attributes:
        differences: The differences without flaky cases, and those of the flaky cases themselves.
        flaky: The flaky cases.
        same: Number of cells with exactly the cases of the baseline.
        other: Number of cells with other cases.
    """

    differences: tuple[CellDifference, ...]
    flaky: frozenset[CaseKey]
    same: int
    other: int


def recheck(
    expected: Baseline,
    found: Baseline,
    verdicts: Sequence[Verdict],
    unit: Unit,
    supervisor: Supervisor,
    waivers: Waivers = NO_WAIVERS,
) -> Rechecked:
    """Compare a unit with what is expected of it, and run unexpected cases again.

    Args:
        expected: The baseline.
        found: This run's versions and options; its cells are ignored.
        verdicts: The unit's verdicts.
        unit: The unit.
        supervisor: Runs it again.
        waivers: The failures that are expected in addition.
    """
    lenient = [mark_open(verdict) if waivers.excuses(verdict) else verdict for verdict in verdicts]

    def compared(rows: Sequence[Verdict], flaky: Collection[CaseKey]) -> list[CellDifference]:
        return compare(expected, replace(found, cells={cell.key: cell for cell in cells_of(rows, flaky)}))

    def differences(flaky: Collection[CaseKey]) -> list[CellDifference]:
        raw = compared(verdicts, flaky)
        return mark_waived(raw, compared(lenient, flaky)) if lenient != list(verdicts) else raw

    known = [(expected.cells[cell.key], cell) for cell in cells_of(verdicts) if cell.key in expected.cells]
    same = sum(before.digest == now.digest for before, now in known)
    counts = same, len(known) - same
    different = differences(())
    suspects = _suspects(different, verdicts, _CASES)
    endings: dict[CaseKey, tuple[Verdict, Verdict]] = {}
    endings.update(_run_again(suspects, unit, supervisor, _TIMES))
    if not endings:
        return Rechecked(tuple(_add_case(d, expected, verdicts) for d in different), frozenset(), *counts)
    rest = [v for v in _suspects(different, verdicts, len(verdicts)) if v.case_key not in endings]
    endings.update(_run_again(rest, unit, supervisor, _TIMES_BESIDE_FLAKY))
    flaky = frozenset(endings)
    stable = [v for v in verdicts if v.case_key not in flaky]
    left = [_add_case(d, expected, stable) for d in differences(flaky) if d.finding is not BaselineFinding.FLAKY]
    return Rechecked((*left, *_flaky(endings.values(), verdicts, flaky)), flaky, *counts)


def _add_case(difference: CellDifference, expected: Baseline, verdicts: Sequence[Verdict]) -> CellDifference:
    """Return the difference with the plainest case that shows it, if there is one."""
    if not difference.finding.fails:
        return difference
    about = [v for v in verdicts if key_of(v) in difference.keys and _is_about(difference, v)]
    about = _unexpected(difference, expected, about)
    plainest = min(about, key=lambda v: (len(v.invocation), v.case_id), default=None)
    return difference if plainest is None else replace(difference, case_id=plainest.case_id)


def _unexpected(difference: CellDifference, expected: Baseline, about: list[Verdict]) -> list[Verdict]:
    """Return the failing cases that did not fail in the same way before."""
    failed = difference.failure
    cell = expected.cells.get(difference.keys[0]) if len(difference.keys) == 1 else None
    failures = () if cell is None or failed is None else (f for f in cell.failures if f.kind == failed.kind)
    known = {code for failure in failures for code in failure.codes}
    return [verdict for verdict in about if code_of(verdict) not in known] or about


def _suspects(differences: Iterable[CellDifference], verdicts: Sequence[Verdict], most: int) -> list[Verdict]:
    """Return the cases that the differences are about, at most `most` of each."""
    chosen: dict[CaseKey, Verdict] = {}
    for difference in differences:
        members = [v for v in verdicts if v.source in DRAWN_SOURCES and key_of(v) in difference.keys]
        about = [v for v in members if _is_about(difference, v)]
        if any(v.outcome is Outcome.TIMEOUT for v in about):
            # Each takes its whole timeout again.
            about = about[:1]
        chosen.update((v.case_key, v) for v in about[:most])
    return list(chosen.values())


def _is_about(difference: CellDifference, verdict: Verdict) -> bool:
    if difference.finding is BaselineFinding.IMPROVEMENT:
        return passes(verdict)
    if difference.finding is BaselineFinding.DRIFT:
        return passes(verdict) and bound(verdict.max_ulp_error) > (difference.bound or 0.0)
    if not difference.finding.fails:
        return False
    if difference.failure is not None:
        return kind_of(verdict) == difference.failure.kind
    return not passes(verdict)


def _run_again(
    suspects: Sequence[Verdict], unit: Unit, supervisor: Supervisor, times: int
) -> Iterator[tuple[CaseKey, tuple[Verdict, Verdict]]]:
    """Yield the suspects that end differently, each with its first and its other ending."""
    left = {v.case_key: v for v in suspects}
    for _ in range(times):
        if not left:
            return
        again = replace(
            unit,
            backends=tuple(b for b in unit.backends if any(v.backend == b for v in left.values())),
            sources=(FromRecord(tuple(dict.fromkeys(_replayed(v) for v in left.values()))),),
            # The blame does not affect the ending.
            settings=replace(unit.settings, blame=False),
        )
        for verdicts in run_unit(again, supervisor):
            for verdict in verdicts:
                first = left.get(verdict.case_key)
                if first is not None and _differ(first, verdict):
                    del left[verdict.case_key]
                    yield verdict.case_key, (first, verdict)


def _replayed(verdict: Verdict) -> Replayed:
    exported = verdict.exported_invocation
    return Replayed(Invocation.from_json(verdict.invocation), Invocation.from_json(exported) if exported else None)


def _differ(first: Verdict, again: Verdict) -> bool:
    if first.outcome is not again.outcome or first.signature != again.signature:
        return True
    low, high = sorted((bound(first.max_ulp_error), bound(again.max_ulp_error)))
    return first.outcome is Outcome.PASS and high > DRIFT * low


def _flaky(
    endings: Iterable[tuple[Verdict, Verdict]], verdicts: Sequence[Verdict], flaky: Collection[CaseKey]
) -> Iterator[CellDifference]:
    """Yield one difference for each cell with flaky cases."""
    cells = {cell.key: cell for cell in cells_of(verdicts, flaky)}
    examples: dict[CellKey, tuple[Verdict, Verdict]] = {}
    for first, again in endings:
        examples.setdefault(key_of(first), (first, again))
    for key, (first, again) in sorted(examples.items()):
        cell = cells[key]
        words = f"{cell.flaky} of {cell.cases} cases end in two ways: one was {_ending(first)}, then {_ending(again)}"
        yield CellDifference(BaselineFinding.FLAKY, cell, (key,), None, words, case_id=first.case_id)


def _ending(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.PASS:
        return f"{verdict.outcome} within {format_bound(bound(verdict.max_ulp_error))} ULP"
    return f"{verdict.outcome} at {verdict.stage}"
