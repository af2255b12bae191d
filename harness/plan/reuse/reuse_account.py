"""What a run took over from earlier ones: counted, explained, and their minimal cases with it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from harness.core import count, plain
from harness.plan.reuse.keys import VerdictScope, said, witnesses
from harness.plan.reuse.library import Library
from harness.plan.unit import Unit
from harness.record import (
    RULES,
    Minimal,
    RunInfo,
    append_line,
    read_minimal,
    read_run_info,
    store,
    write_run_info,
)

#: Newest runs that are compared with this one.
_TOLD = 5


def notes(library: Library, now: RunInfo, units: tuple[Unit, ...]) -> list[str]:
    """What keeps verdicts of earlier runs from being reused, a line each: of the one that serves best."""
    if not library.runs:
        return library.notices
    places = [
        VerdictScope(unit.overload, unit.converter, backend, bool(unit.settings.rules))
        for unit in units
        for backend in unit.backends
    ]
    words = [said(run.info, now, places) for run in library.runs[:_TOLD]]
    return [*library.notices, *min(words, key=len)]


def conclude(results_dir: Path, library: Library, words: list[str]) -> RunInfo:
    """Note in a finished run what it took over, and take the minimal cases over too.

    Args:
        results_dir: The run.
        library: What it took from.
        words: Why not more.

    Raises:
        ResultsError: the run cannot be read or written, or a file of an earlier one is damaged.
    """
    info = read_run_info(results_dir)
    rows = store.read(results_dir, ["case_id", "converter", "backend", "reused_from"]).to_pylist()
    runs = Counter(row["reused_from"] for row in rows if row["reused_from"])
    _take_minimal(
        results_dir,
        library,
        info,
        {(row["case_id"], row["converter"], row["backend"]) for row in rows if row["reused_from"]},
    )
    info = dataclasses.replace(
        info, reused={"verdicts": runs.total(), "of": len(rows), "runs": dict(runs), "notes": words}
    )
    write_run_info(results_dir, info)
    return info


def _take_minimal(
    results_dir: Path, library: Library, now: RunInfo, reused: set[tuple[str, str, str]]
) -> None:
    rules = bool(now.basis.get(RULES))
    found: dict[tuple[str, str, str], Minimal] = {}
    for run in library.runs if reused else ():
        if witnesses(run.info, now):
            continue
        for minimal in read_minimal(run.directory):
            key = minimal.case_id, minimal.converter, minimal.backend
            place = VerdictScope(minimal.overload, minimal.converter, minimal.backend, rules)
            if key in reused and key not in found and run.allows(now, place):
                found[key] = minimal
    for minimal in found.values():
        append_line(results_dir, minimal)


def reuse_lines(info: RunInfo) -> list[str]:
    """What to say at the end of a run; empty where nothing was to be reused."""
    report: Any = info.reused
    if not report:
        return []
    runs = report["runs"]
    words = f"reused: {report['verdicts']:,} of {count(report['of'], 'verdict')}"
    if runs:
        newest = max(runs)
        more = f" and {count(len(runs) - 1, 'earlier run')}" if len(runs) > 1 else ""
        words += f", found in {newest}{more}"
    return [words, *(f"  {plain(note, 300)}" for note in report["notes"])]
