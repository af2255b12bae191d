"""What the page loads first: the runs, and the names that all other files count by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import harness
from harness.gate import CHANGES, DRIFT, MOVED, ROUNDING
from harness.present.dashboard.built import Built
from harness.present.dashboard.cells import STANDINGS
from harness.present.dashboard.run_choice import differences, earlier_run
from harness.present.dashboard.runs import SiteRun
from harness.present.dashboard.use_data import use_data
from harness.record import OPTION, RULES, SOURCE, RunInfo


def index_data(built: Built) -> dict[str, Any]:
    """The page's first file."""
    words = built.words
    return {
        "harness": harness.__version__,
        "standings": list(STANDINGS),
        "changes": [{"name": str(change), "worse": change.is_worse} for change in CHANGES],
        "bounds": {"moved": MOVED, "rounding": ROUNDING, "drift": DRIFT},
        # The run that is shown where none is asked for.
        "shown": built.shown,
        "runs": [_run(built, number, run) for number, run in enumerate(built.runs)],
        "aside": [{"name": one.name, "message": one.message} for one in built.gathered.aside],
        "operators": built.names,
        "use": use_data(built),
        "families": _indexed(built.families),
        "columns": [list(name) for name in words.column_names],
        "dtypes": built.dtypes,
        "dtypeOrder": built.dtype_order,
        "buckets": [[b.outcome, b.stage, b.blame, int(b.fails), int(b.ordinary)] for b in words.buckets],
        # Per operator, the run that its page shows the evidence of; −1 for none.
        "evidence": _evidence(built),
        "differences": differences(built.requests),
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
        "rules": _rules(info),
        "source": info.basis.get(SOURCE, ""),
        "rows": len(coded),
        "cases": len(np.unique(coded.case)),
        "operators": len(np.unique(coded.operator)),
        "missing": len(built.lost[number]),
        # The run with which it is compared.
        "before": earlier_run(built.requests, number),
        # Operators that this run or the one shown first has and the other has not.
        "unlike": len(np.setxor1d(built.operators_of(number), built.operators_of(built.shown))),
        "columns": columns,
        "standings": [counts.to_data() for counts in built.counts_of(number)],
    }


def _indexed(words: list[str]) -> dict[str, Any]:
    names = sorted(set(words))
    place = {name: number for number, name in enumerate(names)}
    return {"names": names, "of": [place[word] for word in words]}


def _evidence(built: Built) -> list[int]:
    found = [-1] * len(built.names)
    for number, run in built.evidence.of.items():
        found[built.rank[number]] = run
    return found


def _rules(info: RunInfo) -> dict[str, Any]:
    """The user's conversion functions: the names of their files, and what their content is told by."""
    files = info.options.get(OPTION)
    names = [Path(str(file)).name for file in files] if isinstance(files, list) else []
    return {"files": names, "digest": info.basis.get(RULES, "")}
