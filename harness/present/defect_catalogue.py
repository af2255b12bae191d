"""The catalogue of defects: the root causes that one or several runs found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.causes import COLUMNS, FAILED, CodedRows, FailureGroup, KnownIssue, each_problem, failure_groups
from harness.compare import SPEC, Outcome
from harness.present.evidence import group_data
from harness.record import (
    LocatedFailure,
    Minimal,
    RunInfo,
    read_located,
    read_minimal,
    read_run_info,
    store,
)

#: A declared gap is no defect.
GAP = Outcome.UNSUPPORTED


@dataclass(frozen=True)
class CataloguedRun:
    """A run that the catalogue rests on: its directory's name, and its distinct cases and operators."""

    name: str
    info: RunInfo
    cases: int
    overloads: int


@dataclass(frozen=True)
class CatalogueEntry:
    """One root cause.

    Attributes:
        runs: The names of the runs that found it, in the order in which they were given.
        shown_in: The run in which the case that is shown failed so.
    """

    group: FailureGroup
    runs: tuple[str, ...]
    shown_in: str

    @property
    def case_id(self) -> str:
        """Of the case that is shown: the minimal one, else the smallest."""
        return self.group.minimal.minimal_id if self.group.minimal else self.group.case_id

    @property
    def recorded(self) -> tuple[str, ...]:
        """The id of the case that is shown, or that it was shrunk from, and its converter."""
        return _recorded(self.group)

    @property
    def is_gap(self) -> bool:
        """Whether somebody declares that something is missing, which is no defect."""
        return self.group.outcome is GAP


@dataclass(frozen=True)
class Catalogue:
    """The root causes that some runs found, worst first; what specifications leave open is last."""

    runs: tuple[CataloguedRun, ...]
    entries: tuple[CatalogueEntry, ...]

    def defects(self, run: str | None = None) -> list[CatalogueEntry]:
        """Those of a run or of all that are somebody's: no declared gaps, nothing left open or undecided."""
        return [
            entry
            for entry in self.entries
            if entry.group.blame not in (SPEC, "unknown") and not entry.is_gap and (run is None or run in entry.runs)
        ]

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "runs": [
                {
                    "run": run.name,
                    "seed": run.info.seed,
                    "options": dict(run.info.options),
                    "versions": dict(run.info.versions),
                    "cases": run.cases,
                    "overloads": run.overloads,
                    "defects": len(self.defects(run.name)),
                }
                for run in self.runs
            ],
            "defects": len(self.defects()),
            "entries": [{**group_data(entry.group), "runs": list(entry.runs)} for entry in self.entries],
        }


def catalogue(directories: Sequence[Path], known: Sequence[KnownIssue] = ()) -> Catalogue:
    """Group the failures of all runs together, and say which run found which.

    Raises:
        ResultsError: a run cannot be read.
    """
    tables: dict[str, pa.Table] = {}
    minimals: list[Minimal] = []
    located: list[LocatedFailure] = []
    runs: list[CataloguedRun] = []
    for directory in directories:
        name = directory.resolve().name
        tables[name] = store.read(directory, COLUMNS, FAILED, encoded=True)
        minimals += read_minimal(directory)
        located += read_located(directory)
        runs.append(
            CataloguedRun(
                name,
                read_run_info(directory),
                len(store.words(directory, "case_id")),
                len(store.words(directory, "overload")),
            )
        )
    coded = {name: CodedRows(each_problem(table)[0]) for name, table in tables.items()}
    found = {name: set(rows.causes[0]) for name, rows in coded.items()}
    failures = {name: _failures(table) for name, table in tables.items()}
    groups = failure_groups(pa.concat_tables(tables.values()), minimals, known, located=located)
    return Catalogue(
        tuple(runs),
        tuple(
            CatalogueEntry(
                group,
                tuple(name for name in tables if group.causes & found[name]),
                next(name for name in tables if _recorded(group) in failures[name]),
            )
            for group in groups
        ),
    )


def _failures(table: pa.Table) -> set[tuple[str, ...]]:
    """Which case failed with which converter: two runs may have a case in common."""
    columns = (table[name].to_pylist() for name in ("case_id", "converter"))
    return set(zip(*columns, strict=True))


def _recorded(group: FailureGroup) -> tuple[str, ...]:
    """The case that is shown or that it was shrunk from, and the converter that it failed with."""
    shown = group.minimal or group
    return shown.case_id, shown.converter
