"""The differences from a baseline, as a report and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.core.documents import to_data
from harness.core.text import count
from harness.gate.baseline.gate import BaselineFinding, Draws
from harness.gate.diff_inputs import NOTHING_COMPARED, BaselineComparison, ReportedDifference
from harness.present.report import Note, Report, Row, Section
from harness.present.waiver_text import waiver_data, waiver_lines

_STYLES = {
    BaselineFinding.REGRESSION: "bold red",
    BaselineFinding.NEW_FAILURE: "bold red",
    BaselineFinding.DRIFT: "bold red",
    BaselineFinding.FLAKY: "yellow",
    BaselineFinding.MACHINE: "yellow",
    BaselineFinding.IMPROVEMENT: "bold green",
}
_HOW = {
    Draws.OTHER_SEED: "not the baseline's cases: a difference counts only if chance does not explain it",
    Draws.OTHER_BUDGET: "not the baseline's budget: among other cases, only all or nothing counts",
}


def report(found: BaselineComparison, title: str, advice: str = "") -> Report:
    """Return the differences by kind, worst first, and whether the gate is open.

    Args:
        found: The differences.
        title: Title of the comparison.
        advice: Advice in case something is worse.
    """
    options = {name: (_option_text(a), _option_text(b)) for name, (a, b) in found.options.items()}
    how = (_HOW[found.draws],) if found.other and found.draws in _HOW else ()
    return Report(
        title=title,
        before=tuple(map(Note, (_compared(found), *how))),
        differences={**found.versions, **options},
        sections=tuple(_sections(found)),
        after=tuple(_conclusions(found, advice)),
    )


def summary(found: BaselineComparison) -> str:
    """Return ``2 regression, 1 flaky``, or ``nothing differs``."""
    parts = [f"{n:,} {finding}" for finding, n in _counts(found).items()]
    return ", ".join(parts) or ("nothing differs" if found.compared else "nothing was compared")


def _counts(found: BaselineComparison) -> dict[BaselineFinding, int]:
    return {finding: n for finding, n in found.counts.items() if finding is not BaselineFinding.WITHIN_CHANCE}


def _sections(found: BaselineComparison) -> Iterator[Section]:
    for finding, number in _counts(found).items():
        rows = tuple(_row(difference) for difference in found.differences if difference.finding is finding)
        yield Section(title=f"{finding}: {number:,}", rows=rows, style=_STYLES.get(finding, "bold"), noun="difference")


def _row(one: ReportedDifference) -> Row:
    return Row(one.where, one.what + (f"; case {one.case_id}" if one.case_id else ""), one.why)


def _conclusions(found: BaselineComparison, advice: str) -> Iterator[Note]:
    yield from map(Note, waiver_lines(found.waivers))
    if found.missing:
        yield Note(f"not checked: {found.missing}", "bold red")
    if not found.compared:
        yield Note(NOTHING_COMPARED, "bold red")
    if found.worse:
        yield Note(f"{found.worse} worse than expected" + (f": {advice}" if advice else ""), "bold red")
    elif found.compared and not found.missing and not _counts(found):
        yield Note("nothing differs", "green")
    chance = found.counts.get(BaselineFinding.WITHIN_CHANCE, 0)
    if chance:
        yield Note(f"{count(chance, 'further kind')} of failure in cases new to the baseline: within chance")


def _compared(found: BaselineComparison) -> str:
    cells = f"{found.same + found.other:,} of {found.total:,} operator/dtype entries"
    return cells if not found.other else f"{cells}, {found.other:,} of them with other cases"


def _option_text(value: object) -> str:
    return "none given" if value is None else str(value)


def comparison_data(found: BaselineComparison) -> dict[str, Any]:
    """Return the differences as plain data: ``counts``, ``versions``, ``options``, ``differences``."""
    return {
        "counts": {str(finding): found.counts.get(finding, 0) for finding in BaselineFinding},
        "worse": found.worse,
        "missing": found.missing,
        "compared": {"same_cases": found.same, "other_cases": found.other, "expected": found.total},
        "versions": {name: {"before": a, "after": b} for name, (a, b) in found.versions.items()},
        "options": {name: {"before": a, "after": b} for name, (a, b) in found.options.items()},
        "differences": to_data(found.differences),
        "waivers": waiver_data(found.waivers),
    }
