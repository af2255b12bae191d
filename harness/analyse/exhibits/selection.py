"""Which exports and which failures of a run are worth writing down."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.groups import FAILED, failure_groups
from harness.compare import Outcome, Stage, Verdict
from harness.core import InvalidInvocation, Invocation
from harness.record import Minimal, read_minimal, store, to_verdicts

_COLUMNS = (
    "overload",
    "converter",
    "converter_version",
    "case_id",
    "stage",
    "outcome",
    "rule",
    "invocation",
    "exported_invocation",
    "dtype",
)
_EXPORTED = {str(stage) for stage in (Stage.CHECK, Stage.LOAD, Stage.RUN, Stage.COMPARE)}


@dataclass(frozen=True)
class WantedGraph:
    """A case whose export (of the JSON `invocation`) is shown as what a converter makes of an operator."""

    overload: str
    converter: str
    converter_version: str
    case_id: str
    invocation: str


def wanted_graphs(run: Path, overloads: Collection[str] | None = None) -> list[WantedGraph]:
    """Per operator and converter the plainest case that was exported: passing, float32, small, not empty.

    `overloads` is None for all.
    """
    best: dict[tuple[str, str], tuple[tuple[Any, ...], Mapping[str, Any]]] = {}
    for batch in store.read(run, list(_COLUMNS)).to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            if (
                row["rule"]
                or row["stage"] not in _EXPORTED
                or (overloads is not None and row["overload"] not in overloads)
            ):
                continue
            key, rank = (row["overload"], row["converter"]), _plainness(row)
            if key not in best or rank < best[key][0]:
                best[key] = rank, row
    return [
        WantedGraph(
            row["overload"],
            row["converter"],
            row["converter_version"],
            row["case_id"],
            row["exported_invocation"] or row["invocation"],
        )
        for _, (_, row) in sorted(best.items())
    ]


def _plainness(row: Mapping[str, Any]) -> tuple[Any, ...]:
    try:
        shapes = [spec.shape for spec in Invocation.from_json(row["invocation"]).tensors()]
    except InvalidInvocation:
        shapes = [()]
    empty = any(0 in shape for shape in shapes)
    return (
        row["outcome"] != Outcome.PASS,
        row["stage"] == Stage.CHECK,
        empty,
        row["dtype"] != "float32",
        # Dimensions that are not there, or of size 1, hide what becomes of them.
        any(not shape or 1 in shape for shape in shapes),
        len(row["invocation"]),
        row["case_id"],
    )


def wanted_failures(run: Path, overloads: Collection[str] | None = None) -> list[Verdict]:
    """The smallest row of each failure of each operator, or that of its shrunk case.

    Not where a user's rule took part: a script knows nothing of it. `overloads` is None for all.
    """
    table = store.read(run, where=FAILED & (pc.field("rule") == "")).combine_chunks().sort_by("overload")
    minimals = read_minimal(run)
    found: list[Verdict] = []
    start = 0
    for name, rows in itertools.groupby(table["overload"].to_pylist()):
        count = sum(1 for _ in rows)
        if overloads is None or name in overloads:
            mine = [minimal for minimal in minimals if minimal.overload == name]
            found += _of_operator(table.slice(start, count), mine)
        start += count
    return found


def _of_operator(rows: pa.Table, minimals: Sequence[Minimal]) -> Iterator[Verdict]:
    places: dict[tuple[str, str, str], int] = {}
    columns = (rows[name].to_pylist() for name in ("case_id", "converter", "backend"))
    for number, key in enumerate(zip(*columns, strict=True)):
        places.setdefault(key, number)
    for group in failure_groups(rows, minimals):
        minimal = group.minimal
        place = places.get((minimal.case_id, minimal.converter, minimal.backend)) if minimal else None
        if place is None:
            # Before any backend every backend has the same failure.
            place = next(
                number
                for (case_id, converter, backend), number in places.items()
                if (case_id, converter) == (group.case_id, group.converter) and group.backend in ("", backend)
            )
        yield next(to_verdicts(rows.slice(place, 1)))
