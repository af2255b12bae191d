"""A run as pandas DataFrames, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.causes import groups
from harness.core.invocation import Invocation
from harness.present.evidence import fault_text, group_place
from harness.record import store
from harness.record.json_lines import read_minimal

if TYPE_CHECKING:
    import pandas


def read_verdicts(run: str | Path, columns: Sequence[str] | None = None) -> pandas.DataFrame:
    """Return the verdicts of a run, a row for each case and route.

    Args:
        run: The directory of the run.
        columns: The columns to read; None for all.

    Raises:
        ModuleNotFoundError: pandas is not installed.
        ResultsError: the directory has no run, or a file of it is damaged.
    """
    frame: pandas.DataFrame = store.read(Path(run), columns, encoded=True).to_pandas()
    return frame


def read_failures(run: str | Path) -> pandas.DataFrame:
    """Return the distinct failures of a run, a row for each root cause, worst first.

    The columns are place, fault, outcome, stage, blame, cases, ordinary_cases, operators, dtypes, converters, backends,
    models (whose calls fail so), priority (0 to 1), case and call (the smallest), message and known (URLs of issues).

    Raises: see `read_verdicts`.
    """
    import pandas

    rows = store.read(Path(run), groups.COLUMNS, groups.FAILED, encoded=True)
    found = groups.failure_groups(rows, read_minimal(Path(run)))
    return pandas.DataFrame([_row(group) for group in found], columns=_COLUMNS)


def _row(group: groups.FailureGroup) -> dict[str, Any]:
    return {
        "place": group_place(group),
        "fault": fault_text(group.cause),
        "outcome": str(group.outcome),
        "stage": str(group.stage),
        "blame": group.blame,
        "cases": group.cases,
        "ordinary_cases": group.ordinary_cases,
        "operators": list(group.overloads),
        "dtypes": list(group.dtypes),
        "converters": list(group.converters),
        "backends": list(group.backends),
        "models": group.callers,
        "priority": group.priority,
        "case": group.case_id,
        "call": str(Invocation.from_json(group.invocation)),
        "message": group.message,
        "known": [issue.link for issue in group.known],
    }


_COLUMNS = (
    *("place", "fault", "outcome", "stage", "blame", "cases", "ordinary_cases", "operators", "dtypes", "converters"),
    *("backends", "models", "priority", "case", "call", "message", "known"),
)
