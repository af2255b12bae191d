"""A comparison of two runs, as a report and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.core.route import route_label
from harness.core.text import count
from harness.gate.case_changes import ChangeKind
from harness.gate.run_diff import CaseChange, Diff, OverloadChanges
from harness.present.report import Note, Report, Row, Section
from harness.present.waiver_text import waiver_data, waiver_lines

#: The kinds that are listed, most urgent first. Unchanged cases are only counted.
ORDER = tuple(change for change in ChangeKind if change is not ChangeKind.UNCHANGED)

_STYLES = {
    ChangeKind.REGRESSED: "bold red",
    ChangeKind.FAILS_OTHERWISE: "bold red",
    ChangeKind.DRIFTED: "bold red",
    ChangeKind.IMPROVED: "bold green",
}


def summary(found: Diff) -> str:
    """Return ``3 improved, 1 regressed, 60 unchanged``."""
    parts = [f"{found.counts[kind]:,} {kind}" for kind in (*ORDER, ChangeKind.UNCHANGED) if found.counts[kind]]
    return ", ".join(parts) or "no case is in both"


def not_requested(found: Diff) -> Iterator[str]:
    """Yield a sentence for each run about the cases that the other run was not asked for."""
    for kind, has, lacks in ((ChangeKind.GONE, "first", "second"), (ChangeKind.NEW, "second", "first")):
        if number := found.unasked.get(kind):
            yield f"only in the {has} run: {count(number, 'case')} that the {lacks} did not request"


def report(found: Diff, title: str = "") -> Report:
    """Return the changes by kind, most urgent first; `title` names the two sides."""
    both = (Note(f"{count(found.compared, 'case')} in both"),) if title else ()
    missing = (Note(f"not checked: {found.missing}", "bold red"),) if found.missing else ()
    return Report(
        title=title,
        before=both,
        differences={**found.options, **found.versions},
        sections=tuple(_sections(found)),
        after=(*missing, *map(Note, (*not_requested(found), *waiver_lines(found.waivers), summary(found)))),
    )


def _sections(found: Diff) -> Iterator[Section]:
    for kind in ORDER:
        lines = [line for line in found.overloads if line.counts.get(kind)]
        if not lines:
            continue
        rows = tuple(Row(_path(line), example(line.examples[kind]), line.why, line.counts[kind]) for line in lines)
        title = f"{kind}: {count(found.counts[kind], 'case')}"
        yield Section(title=title, rows=rows, style=_STYLES.get(kind, "bold"), noun="operator")


def example(change: CaseChange) -> str:
    """Describe one case: its outcome before and after, and the call."""
    before, after = change.before, change.after
    words = f"{change.row['case_id']}: "
    if change.change in (ChangeKind.MOVED, ChangeKind.DRIFTED) and before is not None and after is not None:
        return f"{words}{before['max_ulp_error']:.3g} ULP → {after['max_ulp_error']:.3g} ULP"
    ends = [f"{row['outcome']}{' at ' + row['stage'] if row['signature'] else ''}" for row in (before, after) if row]
    message = next((row["message"] for row in (after, before) if row and row["message"]), "")
    return words + " → ".join(ends) + (f": {message}" if message else "")


def _path(line: OverloadChanges) -> str:
    return f"{line.overload}, {route_label(line.converter, line.backend, line.shape_mode)}"


def diff_data(found: Diff) -> dict[str, Any]:
    """Return the comparison as plain data: ``counts``, ``versions``, ``overloads`` with examples."""
    return {
        "counts": {str(kind): found.counts[kind] for kind in ChangeKind},
        "not_requested": {str(kind): number for kind, number in found.unasked.items()},
        "compared": found.compared,
        "missing": found.missing,
        "waivers": waiver_data(found.waivers),
        "options": {name: {"before": a, "after": b} for name, (a, b) in found.options.items()},
        "versions": {name: {"before": a, "after": b} for name, (a, b) in found.versions.items()},
        "overloads": [
            {
                "overload": line.overload,
                "converter": line.converter,
                "backend": line.backend,
                "shape_mode": line.shape_mode,
                "counts": {str(kind): n for kind, n in line.counts.items()},
                "examples": {str(k): example(c) for k, c in line.examples.items() if k in ORDER},
                "why": line.why,
            }
            for line in found.overloads
        ],
    }
