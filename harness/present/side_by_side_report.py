"""Two ways from PyTorch to a runtime side by side, as a report and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.core.documents import count
from harness.gate.side_by_side import OnlyOne, SideBySide
from harness.present.report import Note, Report, Row, Section


def report(found: SideBySide) -> Report:
    """The report: how many cases each passes, and which operators one alone passes."""
    totals = [sum(one.cases for one in ones) for ones in found.only]
    shares = (
        f"both pass {_percent(found.both, found)}",
        *(f"{way} alone passes {_percent(n, found)}" for way, n in zip(found.ways, totals, strict=True)),
        f"neither passes {_percent(found.neither, found)}",
    )
    return Report(
        title=f"{found.ways[0]} beside {found.ways[1]}",
        before=(Note(f"{count(found.cases, 'case')} in both runs"), Note(", ".join(shares))),
        sections=tuple(
            Section(
                title=f"{way} alone passes {count(total, 'case')} of {count(len(ones), 'operator')}",
                rows=tuple(map(_row, ones)),
                noun="operator",
            )
            for way, ones, total in zip(found.ways, found.only, totals, strict=True)
            if ones
        ),
    )


def _row(one: OnlyOne) -> Row:
    return Row(one.overload, f"{one.how} (case {one.example})", number=one.cases)


def _percent(number: int, found: SideBySide) -> str:
    return f"{100 * number / found.cases:.1f}%"


def as_json(found: SideBySide) -> dict[str, Any]:
    """The same as JSON."""
    return asdict(found)
