"""Judge a backend by the record of the sweep of `ci/gpu_check`: return a note, or raise the problem."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from harness.core.placement import OnCpu
from harness.present.run_counts import placement_text
from harness.record import store

#: Rows of a record.
Rows: TypeAlias = Sequence[Mapping[str, Any]]

#: The backend that runs along with those of a GPU, and helps to find the component to blame.
COMPANION = "ort-cpu"
#: Operators whose outputs have sizes that depend on data.
DEPENDENT = tuple(f"aten.{name}.default" for name in ("nonzero", "masked_select", "_unique2", "unique_consecutive"))
#: The columns that tell the cases of one backend apart.
_KEY = ("case_id", "exported_invocation", "converter", "shape_mode")
_NAMES = ("overload", "backend", "stage", "outcome", "blame", "placement", "load_ms", "run_ms")
_FAILED = ("mismatch", "error", "crash", "timeout")


class NotRun(Exception):
    """Why a check could not be made here."""


def verdicts(run: Path) -> Rows:
    """The rows of a run."""
    found: Rows = store.read(run, [*_KEY, *_NAMES]).to_pylist()
    return found


def endings(rows: Rows, operators: Collection[str]) -> Mapping[tuple[str, ...], str]:
    """Case and backend → how it ended."""
    return {(*_key(row), row["backend"]): row["outcome"] for row in rows if row["overload"] in operators}


def right(rows: Rows, name: str, *, builds: bool, mode: str = "", only: Collection[str] = ()) -> str:
    """Count the outcomes of the cases that the CPU passes: most that the backend takes have to pass, or to be built.

    Args:
        rows: Rows of all backends.
        name: The backend.
        builds: Whether it builds on this machine and does not run.
        mode: The only kind of shapes, ``static`` or ``dynamic``; "" for both.
        only: The only operators; empty for all.
    """
    passed = {_key(row) for row in rows if row["backend"] == COMPANION and row["outcome"] == "pass"}
    chosen = [row for row in _of(rows, name) if not only or row["overload"] in only]
    ended = Counter(row["outcome"] for row in chosen if mode in ("", row["shape_mode"]) and _key(row) in passed)
    note = ", ".join(f"{number:,} {outcome}" for outcome, number in ended.most_common())
    able = ended.total() - ended["narrowed"] - ended["unsupported"]
    if not able:
        raise NotRun(f"it takes none of the {ended.total():,} cases that {COMPANION} passes: {note or 'no case'}")
    if 2 * ended["built" if builds else "pass"] < able:
        raise RuntimeError(f"too few are right: {note}")
    return f"{note}, of {ended.total():,} that {COMPANION} passes"


def blamed(rows: Rows, name: str) -> str:
    """Count the failures by the component to blame; each must have a blame, or be unknown."""
    failing = [row for row in _of(rows, name) if row["outcome"] in _FAILED]
    if lost := [row["case_id"] for row in failing if not row["blame"]]:
        raise RuntimeError(f"{len(lost)} failures have no blame, such as {lost[0]}")
    told = Counter(row["blame"] for row in failing)
    return ", ".join(f"{number:,} {blame}" for blame, number in told.most_common()) or "nothing failed"


def placed(rows: Rows, name: str) -> str:
    """Count the cases that the backend did not run wholly on its device."""
    told = Counter(row["placement"] for row in _of(rows, name) if row["stage"] in ("run", "compare"))
    here = told.pop("", 0)
    if unknown := told[OnCpu.UNKNOWN]:
        raise RuntimeError(f"the placement of {unknown:,} cases is unknown")
    most = "; ".join(f"{number:,} {placement_text(text)}" for text, number in told.most_common(5))
    return f"{here:,} cases ran wholly on the device" + (f"; {most}" if most else "")


def times(rows: Rows, name: str) -> str:
    """Return a case's share of its batch's time, for the backend and for the CPU."""
    parts = []
    for backend in (name, COMPANION):
        for step in ("load", "run"):
            found = [ms for row in _of(rows, backend) if (ms := row[f"{step}_ms"]) is not None]
            if found:
                parts.append(f"{backend} {statistics.median(found):.2f} ms to {step}")
    return f"median: {', '.join(parts)}"


def _of(rows: Rows, name: str) -> Rows:
    found = [row for row in rows if row["backend"] == name]
    if not found:
        raise RuntimeError("the sweep has no verdict of it")
    return found


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in _KEY)
