"""Looking for the lines of a run's converter defects, which `places.jsonl` beside the run keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from harness.analyse.places.of_failure import can_be_placed, places_of
from harness.analyse.places.suspect import Suspect
from harness.causes.groups import COLUMNS, FAILED, FailureGroup, failure_groups
from harness.compare import CONVERTER, Outcome, Verdict
from harness.record import LocatedFailure, append_line, read_located, read_run_info, store


def locate_failures(run: Path, seconds: float, progress: Callable[[str], None] = lambda words: None) -> tuple[int, int]:
    """Look for the lines of a case of each root cause of a converter, those that models meet first.

    Args:
        seconds: After so many, no further case is begun.
        progress: Called with a label of what is looked at next.

    Returns:
        How many cases were looked at now, and for how many causes nobody has looked.

    Raises:
        ResultsError: the run cannot be read, or its directory not written.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    end = time.monotonic() + seconds
    given = read_run_info(run).options.get("opset")
    opset = given if isinstance(given, int) else None
    done = {(one.case_id, one.converter) for one in read_located(run)}
    left = [
        group
        for group in failure_groups(store.read(run, COLUMNS, FAILED, encoded=True))
        if group.blame == CONVERTER
        and group.outcome is not Outcome.UNSUPPORTED
        and not group.rule
        and (group.case_id, group.converter) not in done
    ]
    for looked, group in enumerate(left):
        if time.monotonic() >= end:
            return looked, len(left) - looked
        verdict = next(filter(can_be_placed, _rows(run, group)), None)
        if verdict is None:
            continue
        progress(f"{group.case_id}, {group.converter}")
        suspects = places_of(run, verdict, opset=opset)
        append_line(run, _located(verdict, *suspects[:1]))
    return len(left), 0


def _located(verdict: Verdict, first: Suspect | None = None) -> LocatedFailure:
    nobody = LocatedFailure(
        case_id=verdict.case_id,
        converter=verdict.converter,
        backend=verdict.backend,
        signature=verdict.signature,
    )
    if first is None:
        return nobody
    return replace(
        nobody,
        function=first.function,
        file=first.file,
        line=first.line,
        text=first.text,
        reason=first.reason,
    )


def _rows(run: Path, group: FailureGroup) -> Iterator[Verdict]:
    """The rows of a group's smallest case; before any backend, every backend has the same."""
    here = (pc.field("case_id") == group.case_id) & (pc.field("converter") == group.converter)
    if group.backend:
        here &= pc.field("backend") == group.backend
    yield from store.verdicts(run, here)
