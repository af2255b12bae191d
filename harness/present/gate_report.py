"""The differences from a baseline: for a terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.core.documents import as_data, count, markdown_cell, plain
from harness.gate.baseline.gate import BaselineFinding, Draws
from harness.gate.diff_inputs import NOTHING_COMPARED, BaselineComparison, ReportedDifference

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


def render(
    found: BaselineComparison, title: str, advice: str = "", limit: int = 20, versions: bool = True
) -> RenderableType:
    """The differences by kind, worst first, and whether the gate is open.

    Args:
        found: The differences.
        title: What was compared.
        advice: What to do if something is worse.
        limit: Most lines of each kind.
        versions: Whether to list versions that differ.
    """
    return Group(*_lines(found, title, advice, limit, versions))


def summary(found: BaselineComparison) -> str:
    """``2 regression, 1 flaky``, or ``nothing differs``."""
    parts = [f"{n:,} {finding}" for finding, n in found.counts.items() if finding is not BaselineFinding.NEW_FINDING]
    return ", ".join(parts) or ("nothing differs" if found.compared else "nothing was compared")


def _lines(found: BaselineComparison, title: str, advice: str, limit: int, versions: bool) -> Iterator[RenderableType]:
    yield Text(f"{plain(title)}: {_compared(found)}", style="bold")
    for name, (before, now) in found.versions.items() if versions else ():
        yield Text(f"  {plain(name)}: {plain(before) or 'absent'} → {plain(now) or 'absent'}")
    for words in _options(found):
        yield Text(f"  {words}")
    for finding in found.counts:
        lines = [one for one in found.differences if one.finding is finding]
        if finding is BaselineFinding.NEW_FINDING:
            continue
        yield Text(f"  {finding}: {len(lines)}", style=_STYLES.get(finding, "bold"))
        for one in lines[:limit]:
            yield Text(f"    {plain(one.where, 120)}: {plain(one.what, 300)}{_case(one)}")
            if one.why:
                yield Text(f"      [{plain(one.why, 200)}]")
        if len(lines) > limit:
            yield Text(f"    and {len(lines) - limit} more")
    if found.missing:
        yield Text(f"  not checked: {plain(found.missing)}", style="bold red")
    if not found.compared:
        yield Text(f"  {NOTHING_COMPARED}", style="bold red")
    if found.worse:
        yield Text(f"  {found.worse} worse than expected" + (f": {advice}" if advice else ""))
    elif (
        found.compared
        and not found.missing
        and not any(finding is not BaselineFinding.NEW_FINDING for finding in found.counts)
    ):
        yield Text("  nothing differs", style="green")
    yield from (Text(f"  {words}") for words in _within_chance(found))


def _case(one: ReportedDifference) -> str:
    return f"; case {one.case_id}" if one.case_id else ""


def _compared(found: BaselineComparison) -> str:
    cells = f"{found.same + found.other:,} of {count(found.total, 'cell')}"
    return cells if not found.other else f"{cells}, {found.other:,} of them with other cases"


def _options(found: BaselineComparison) -> Iterator[str]:
    for name, (before, now) in found.options.items():
        yield f"{name}: {_said(before)} → {_said(now)}"
    if found.other and found.draws in _HOW:
        yield _HOW[found.draws]


def _said(value: object) -> str:
    return "none given" if value is None else plain(str(value))


def _within_chance(found: BaselineComparison) -> Iterator[str]:
    chance = found.counts.get(BaselineFinding.NEW_FINDING, 0)
    if chance:
        yield f"{count(chance, 'further kind')} of failure in cases new to the baseline: within chance"


def markdown(found: BaselineComparison, *, before: str, after: str, limit: int = 50) -> str:
    """The differences between `before` and `after` for a pull request, at most `limit` rows of each kind."""
    lines = [f"### Conformance: {markdown_cell(before)} → {markdown_cell(after)}", ""]
    lines.append(f"{summary(found)}; compared {_compared(found)}.")
    if found.missing:
        lines += ["", f"**Not checked**: {markdown_cell(found.missing)}.", ""]
    if not found.compared:
        lines += ["", f"**{NOTHING_COMPARED.capitalize()}.**", ""]
    lines += [f"{markdown_cell(words)}." for words in (*_options(found), *_within_chance(found))]
    if found.versions:
        lines += ["", "| | before | after |", "| --- | --- | --- |"]
        lines += [
            f"| {markdown_cell(name)} | {markdown_cell(a)} | {markdown_cell(b)} |"
            for name, (a, b) in found.versions.items()
        ]
    for finding in found.counts:
        rows = [one for one in found.differences if one.finding is finding]
        if finding is BaselineFinding.NEW_FINDING:
            continue
        lines += ["", f"#### {str(finding).capitalize()}: {len(rows):,}", ""]
        lines += ["| where | what | why |", "| --- | --- | --- |"]
        lines += [_row(one) for one in rows[:limit]]
        if len(rows) > limit:
            lines.append(f"\nand {len(rows) - limit:,} more")
    return "\n".join(lines) + "\n"


def _row(one: ReportedDifference) -> str:
    return f"| {' | '.join(map(markdown_cell, (one.where, one.what + _case(one), one.why)))} |"


def as_json(found: BaselineComparison) -> dict[str, Any]:
    """The differences as plain data: ``counts``, ``versions``, ``options``, ``differences``."""
    return {
        "counts": {str(finding): found.counts.get(finding, 0) for finding in BaselineFinding},
        "worse": found.worse,
        "missing": found.missing,
        "compared": {"same_cases": found.same, "other_cases": found.other, "expected": found.total},
        "versions": {name: {"before": a, "after": b} for name, (a, b) in found.versions.items()},
        "options": {name: {"before": a, "after": b} for name, (a, b) in found.options.items()},
        "differences": as_data(found.differences),
    }
