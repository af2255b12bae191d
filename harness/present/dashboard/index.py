"""What the page loads first: the runs, the names that all other files count by, and the overview."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

import harness
from harness.gate import CHANGES, DRIFT, MOVED, ROUNDING, ChangeKind, Changes, version_changes, why
from harness.present.dashboard.built import Built
from harness.present.dashboard.cells import STANDINGS, WHOLE
from harness.present.dashboard.runs import SiteRun

#: Lines of what moved that the overview shows; the comparison shows all.
_LINES = 60


def index_data(built: Built) -> dict[str, Any]:
    """The page's first file, but for the failures."""
    words = built.words
    return {
        "harness": harness.__version__,
        "standings": list(STANDINGS),
        "changes": [{"name": str(change), "worse": change.is_worse} for change in CHANGES],
        "bounds": {"moved": MOVED, "rounding": ROUNDING, "drift": DRIFT},
        "runs": [_run(built, number, run) for number, run in enumerate(built.runs)],
        "aside": [{"name": one.name, "message": one.message} for one in built.gathered.aside],
        "operators": built.names,
        "families": _indexed(built.families),
        "columns": [list(name) for name in words.column_names],
        "dtypes": built.dtypes,
        "dtypeOrder": built.dtype_order,
        "buckets": [[b.outcome, b.stage, b.blame, int(b.fails), int(b.ordinary)] for b in words.buckets],
        "evidence": _evidence(built),
        "moved": moved_data(built),
        "familyShares": _family_shares(built),
    }


def _run(built: Built, number: int, run: SiteRun) -> dict[str, Any]:
    info, coded = run.info, built.coded[number]
    columns = built.columns_of(number)
    return {
        "id": info.run_id,
        "name": run.directory.name,
        "started": info.started,
        "finished": info.finished,
        "state": run.state,
        "notes": run.notes,
        "seed": info.seed,
        "options": {k: v for k, v in info.options.items() if v not in (None, [], False, "")},
        "versions": {str(k): str(v) for k, v in info.versions.items()},
        "host": {str(k): str(v) for k, v in info.host.items()},
        "rows": len(coded),
        "cases": len(np.unique(coded.case)),
        "operators": len(np.unique(coded.operator)),
        "missing": len(built.lost[number]),
        # Operators that this run or the newest has and the other has not: its shares are of another set.
        "unlike": len(np.setxor1d(built.operators_of(number), built.operators_of(len(built.runs) - 1))),
        "columns": columns,
        "standings": [counts.to_data() for counts in built.counts_of(number)],
    }


def _indexed(words: list[str]) -> dict[str, Any]:
    names = sorted(set(words))
    place = {name: number for number, name in enumerate(names)}
    return {"names": names, "of": [place[word] for word in words]}


def _evidence(built: Built) -> list[int]:
    """Per operator as the page lists them, the run that its page shows the evidence of; −1 for none."""
    found = [-1] * len(built.names)
    for number, run in built.newest_of.items():
        found[built.rank[number]] = run
    return found


def moved_data(built: Built) -> dict[str, Any] | None:
    """What moved from the last run but one to the last; None for one run."""
    changes = built.last_changes
    if changes is None:
        return None
    before, after = built.runs[-2].info, built.runs[-1].info
    versions = version_changes(before.versions, after.versions)
    lines = _lines(built, changes)
    names = built.words.column_names
    for line in lines:
        line["why"] = why(versions, *names[line["column"]])
    return {
        "before": len(built.runs) - 2,
        "after": len(built.runs) - 1,
        "counts": {
            str(CHANGES[n]): int(c) for n, c in enumerate(np.bincount(changes.change, minlength=len(CHANGES)))
        },
        "versions": [[name, *pair] for name, pair in versions.items()],
        "lines": lines[:_LINES],
        "more": max(0, len(lines) - _LINES),
    }


def _lines(built: Built, changes: Changes) -> list[dict[str, Any]]:
    """Per operator and column, what changed, worst first."""
    before, after = built.coded[-2], built.coded[-1]
    counts: dict[tuple[int, int], Counter[ChangeKind]] = {}
    examples: dict[tuple[int, int], dict[ChangeKind, str]] = {}
    changed = np.flatnonzero(changes.change != CHANGES.index(ChangeKind.UNCHANGED))
    for place in changed.tolist():
        old, new = int(changes.before[place]), int(changes.after[place])
        run, row = (after, new) if new >= 0 else (before, old)
        change = CHANGES[changes.change[place]]
        line = int(built.rank[run.operator[row]]), int(run.column[row])
        counts.setdefault(line, Counter())[change] += 1
        examples.setdefault(line, {}).setdefault(change, str(run.case[row]))
    found: list[dict[str, Any]] = [
        {
            "operator": operator,
            "column": column,
            "counts": {str(change): number for change, number in theirs.items()},
            "examples": {str(change): case for change, case in examples[operator, column].items()},
            "worse": sum(number for change, number in theirs.items() if change.is_worse),
        }
        for (operator, column), theirs in counts.items()
    ]
    order = {str(change): number for number, change in enumerate(ChangeKind)}
    found.sort(
        key=lambda line: (
            -line["worse"],
            min(order[c] for c in line["counts"]),
            line["operator"],
            line["column"],
        )
    )
    return found


def _family_shares(built: Built) -> list[list[int]]:
    """Of the newest run: family and column, then how many operators there are, of how many all cases pass and
    how many are missing, then how many ordinary cases passed of how many, and how many of all."""
    if not built.coded:
        return []
    names = sorted(set(built.families))
    family_of = np.array([names.index(name) for name in built.families], dtype=np.int64)[built.rank]
    columns = built.columns_of(len(built.coded) - 1)
    found, usual, lost = built.tallies[-1], built.ordinary_tallies[-1], family_of[built.lost[-1]]
    table = []
    for family in range(len(names)):
        missing = int(np.sum(lost == family))
        for column in columns:
            mine, ordinary = (
                (which.column == column) & (family_of[which.operator] == family) for which in (found, usual)
            )
            operators = int(np.sum(mine)) + missing
            if not operators:
                continue
            whole = int(np.sum(found.standing[mine] == STANDINGS.index(WHOLE)))
            sums = (
                values[rows].sum()
                for which, rows in ((usual, ordinary), (found, mine))
                for values in (which.passes, which.total)
            )
            table.append([family, column, operators, whole, missing, *map(int, sums)])
    return table
