"""A comparison of two runs, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.core.documents import count, markdown_cell, plain
from harness.gate.case_changes import ChangeKind
from harness.gate.run_diff import CaseChange, Diff, OverloadChanges

#: The kinds that are listed, most urgent first. Unchanged cases are only counted.
ORDER = tuple(change for change in ChangeKind if change is not ChangeKind.UNCHANGED)

_STYLES = {
    ChangeKind.REGRESSED: "bold red",
    ChangeKind.FAILS_OTHERWISE: "bold red",
    ChangeKind.DRIFTED: "bold red",
    ChangeKind.IMPROVED: "bold green",
}


def summary(found: Diff) -> str:
    """``3 improved, 1 regressed, 60 unchanged``."""
    parts = [f"{found.counts[kind]:,} {kind}" for kind in (*ORDER, ChangeKind.UNCHANGED) if found.counts[kind]]
    return ", ".join(parts) or "no case is in both"


def not_requested(found: Diff) -> Iterator[str]:
    """How many cases one of the runs has that the other was not asked for, a sentence for each run."""
    for kind, has, lacks in ((ChangeKind.GONE, "first", "second"), (ChangeKind.NEW, "second", "first")):
        if number := found.unasked.get(kind):
            yield f"not requested in the {lacks} run: {count(number, 'case')} of the {has}"


def render(found: Diff, title: str = "", limit: int = 20) -> RenderableType:
    """The comparison for a terminal, with at most `limit` lines of each kind of change; `title` heads it."""
    return Group(*_lines(found, title, limit))


def _lines(found: Diff, title: str, limit: int) -> Iterator[RenderableType]:
    if title:
        yield Text(f"{plain(title)}: {count(found.compared, 'case')} in both", style="bold")
    for name, (before, after) in found.options.items():
        yield Text(f"{name}: {plain(before)} → {plain(after)}")
    for name, (before, after) in found.versions.items():
        yield Text(f"{plain(name)}: {plain(before) or 'absent'} → {plain(after) or 'absent'}")
    for kind in ORDER:
        lines = [line for line in found.overloads if line.counts.get(kind)]
        if not lines:
            continue
        yield Text(f"{kind}: {count(found.counts[kind], 'case')}", style=_STYLES.get(kind, "bold"))
        for line in lines[:limit]:
            why = f" [{plain(line.why, 200)}]" if line.why else ""
            yield Text(f"  {line.counts[kind]:>4} {plain(_path(line))}{why}")
            yield Text(f"       {plain(example(line.examples[kind]), 240)}")
        if len(lines) > limit:
            yield Text(f"  and {count(len(lines) - limit, 'more operator')}")
    if found.missing:
        yield Text(f"not checked: {plain(found.missing)}", style="bold red")
    yield from map(Text, not_requested(found))
    yield Text(summary(found))


def markdown(found: Diff, *, before: str, after: str, limit: int = 50) -> str:
    """The comparison of `before` and `after` for a pull request, at most `limit` rows of each kind."""
    lines = [f"### Conformance: {markdown_cell(before)} → {markdown_cell(after)}", "", f"{summary(found)}."]
    if found.missing:
        lines += ["", f"**Not checked**: {markdown_cell(found.missing)}."]
    for words in not_requested(found):
        lines += ["", f"{words[0].upper()}{words[1:]}."]
    if found.versions or found.options:
        lines += ["", "| | before | after |", "| --- | --- | --- |"]
        lines += [
            f"| {markdown_cell(n)} | {markdown_cell(a)} | {markdown_cell(b)} |"
            for n, (a, b) in (*found.options.items(), *found.versions.items())
        ]
    for kind in ORDER:
        rows = [line for line in found.overloads if line.counts.get(kind)]
        if rows:
            lines += ["", f"#### {str(kind).capitalize()}: {found.counts[kind]:,}", ""]
            lines += ["| cases | operator | example | why |", "| ---: | --- | --- | --- |"]
            for row in rows[:limit]:
                cells = (_path(row), example(row.examples[kind]), row.why)
                lines.append(f"| {row.counts[kind]} | {' | '.join(map(markdown_cell, cells))} |")
            if len(rows) > limit:
                lines.append(f"\nand {count(len(rows) - limit, 'more operator')}")
    return "\n".join(lines) + "\n"


def example(change: CaseChange) -> str:
    """One case in words: how it ended before and after, and the case."""
    before, after = change.before, change.after
    words = f"{change.row['case_id']}: "
    if change.change in (ChangeKind.MOVED, ChangeKind.DRIFTED) and before is not None and after is not None:
        return f"{words}{before['max_ulp_error']:.3g} ULP → {after['max_ulp_error']:.3g} ULP"
    ends = [f"{row['outcome']}{' at ' + row['stage'] if row['signature'] else ''}" for row in (before, after) if row]
    said = next((row["message"] for row in (after, before) if row and row["message"]), "")
    return words + " → ".join(ends) + (f": {said}" if said else "")


def _path(line: OverloadChanges) -> str:
    mode = "" if line.shape_mode == "static" else f", {line.shape_mode}"
    return f"{line.overload}, {line.converter} → {line.backend}{mode}"


def as_json(found: Diff) -> dict[str, Any]:
    """The comparison as plain data: ``counts``, ``versions``, ``overloads`` with examples."""
    return {
        "counts": {str(kind): found.counts[kind] for kind in ChangeKind},
        "not_requested": {str(kind): number for kind, number in found.unasked.items()},
        "compared": found.compared,
        "missing": found.missing,
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
