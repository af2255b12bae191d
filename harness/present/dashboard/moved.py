"""What moved from the run with which a run is compared to that run, for its overview."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.gate import CHANGES, ChangeKind, version_changes, why
from harness.present.dashboard.built import Built, Compared
from harness.record import Numbers

#: Lines of what moved that the overview shows; the comparison shows all.
_LINES = 60


def moved_data(built: Built, number: int) -> dict[str, Any] | None:
    """What moved to a run from the one that it is compared with; None for the first of its kind."""
    found = built.compared(number)
    if found is None:
        return None
    versions = version_changes(built.runs[found.before].info.versions, built.runs[number].info.versions)
    lines = _lines(built, found)
    names = built.words.column_names
    for line in lines[:_LINES]:
        converter, backend = names[line["column"]]
        line["why"] = why(versions, converter, backend, _rules(built, found, line))
    counts = np.bincount(found.changes.change, minlength=len(CHANGES))
    return {
        "before": found.before,
        "after": number,
        "counts": {str(CHANGES[n]): int(c) for n, c in enumerate(counts)},
        "unasked": found.unasked,
        "lines": lines[:_LINES],
        "more": max(0, len(lines) - _LINES),
    }


def _lines(built: Built, found: Compared) -> list[dict[str, Any]]:
    """Per operator and column, what changed, worst first."""
    change = found.changes.change
    changed = np.flatnonzero(change != CHANGES.index(ChangeKind.UNCHANGED))
    line, kind = _line_of(built, found)[changed], change[changed]
    cells, firsts, counts = np.unique(line * len(CHANGES) + kind, return_index=True, return_counts=True)
    lines: dict[int, dict[str, Any]] = {}
    columns = len(built.words.column_names)
    for cell, first, count in zip(cells.tolist(), firsts.tolist(), counts.tolist(), strict=True):
        number, name = cell // len(CHANGES), CHANGES[cell % len(CHANGES)]
        operator, column = divmod(number, columns)
        empty = {"operator": operator, "column": column, "counts": {}, "examples": {}, "worse": 0}
        one = lines.setdefault(number, empty)
        one["counts"][str(name)] = count
        one["examples"][str(name)] = _case(built, found, int(changed[first]))
        one["worse"] += count if name.is_worse else 0
    order = {str(name): place for place, name in enumerate(CHANGES)}

    def urgency(one: dict[str, Any]) -> tuple[int, int, int, int]:
        return -one["worse"], min(order[name] for name in one["counts"]), one["operator"], one["column"]

    return sorted(lines.values(), key=urgency)


def _line_of(built: Built, found: Compared) -> Numbers:
    """Operator's place and column of each case, in one number."""
    after = found.changes.after >= 0
    columns = len(built.words.column_names)
    line = np.zeros(len(after), dtype=np.int64)
    for there, rows, run in (
        (after, found.changes.after, found.after),
        (~after, found.changes.before, found.before),
    ):
        coded, at = built.coded[run], rows[there]
        line[there] = built.rank[coded.operator[at]] * columns + coded.column[at]
    return line


def _case(built: Built, found: Compared, place: int) -> str:
    row = int(found.changes.after[place])
    if row >= 0:
        return str(built.coded[found.after].case[row])
    return str(built.coded[found.before].case[int(found.changes.before[place])])


def _rules(built: Built, found: Compared, line: dict[str, Any]) -> tuple[str, str] | None:
    """The user's conversion functions in a line before and after; None where they are the same."""
    states = built.words.states
    said = []
    for run in (found.before, found.after):
        coded = built.coded[run]
        mine = (built.rank[coded.operator] == line["operator"]) & (coded.column == line["column"])
        some = {states[number].rule for number in np.unique(coded.state[mine]).tolist()} - {""}
        said.append(", ".join(sorted(some)))
    before, after = said
    return None if before == after else (before, after)
