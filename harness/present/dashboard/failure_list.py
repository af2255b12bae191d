"""The distinct failures of a run as its views list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.causes import COLUMNS, FAILED, FailureGroup, KnownIssue, failure_groups
from harness.compare import SPEC
from harness.present.dashboard.built import Built
from harness.present.evidence import fault_text, group_place
from harness.record import read_located, read_minimal, store

#: Failures of a kind that the overview shows.
_FAILURES = 8
#: Characters of a text in the list; all of it stands on the page of its operator.
_LONGEST = 200
_LISTED = (
    "outcome",
    "stage",
    "blame",
    "place",
    "cases",
    "overloads",
    "dtypes",
    "converters",
    "backends",
    "known",
)


def failures_of(built: Built, number: int, known: tuple[KnownIssue, ...]) -> list[FailureGroup]:
    """The failures of a run, worst first, without those of operators that it has lost.

    Raises:
        ResultsError: the run is damaged.
    """
    run = built.runs[number]
    rows = store.read(run.directory, COLUMNS, FAILED, encoded=True)
    lost = {built.words.operators.words[operator] for operator in built.lost[number].tolist()}
    if lost:
        rows = rows.filter(pc.invert(pc.is_in(rows["overload"].cast(pa.string()), pa.array(sorted(lost)))))
    located = read_located(run.directory)
    return failure_groups(rows, read_minimal(run.directory), known, located=located)


def listed(group: FailureGroup) -> dict[str, Any]:
    """A failure as a line."""
    data = {**group.to_data(), "place": group_place(group), "cause": fault_text(group.cause)}
    return {
        **{name: data[name] for name in _LISTED},
        "signature": group.signature[:_LONGEST],
        "message": (group.minimal.message if group.minimal else group.message)[:_LONGEST],
        "case": group.case_id,
        "call": group.call[:_LONGEST],
        "ordinary": group.ordinary_cases,
        "callers": group.callers,
    }


def failure_overview(failures: Sequence[FailureGroup]) -> dict[str, Any]:
    """What the overview shows of all failures of a run."""
    ordinary = sum(group.ordinary is not None for group in failures)
    return {"failures": _first(failures), "failureCount": len(failures), "ordinaryFailureCount": ordinary}


def _first(failures: Sequence[FailureGroup]) -> list[dict[str, Any]]:
    """The failures that the overview shows: those that ordinary use meets, with such a call, and others."""
    somebodys = [group for group in failures if group.blame != SPEC]
    ordinary = [group for group in somebodys if group.ordinary]
    edge = [group for group in somebodys if not group.ordinary]
    shown = [listed(group) for group in (*ordinary[:_FAILURES], *edge[:_FAILURES])]
    for data, group in zip(shown, ordinary[:_FAILURES], strict=False):
        if group.ordinary:
            data |= {"call": group.ordinary.call[:_LONGEST], "message": group.ordinary.message[:_LONGEST]}
    return shown
