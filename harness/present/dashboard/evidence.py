"""The files of operators: each shows the newest run that has it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from harness.analyse import KnownIssue
from harness.core import all_overloads
from harness.gate import CHANGES, ChangeKind
from harness.present.dashboard.built import Built
from harness.present.dashboard.operator_data import COLUMNS, Beside, operator_data
from harness.present.dashboard.runs import SiteRun
from harness.present.tolerance_report import ErrorDistribution
from harness.record import ResultsError, read_graphs, read_minimal, read_scripts, store

#: Changed cases that an operator's page lists, so that the comparison can link to them.
_CHANGED = 40


class UnreadableRun(Exception):
    """Reading on has shown that a run is damaged."""

    def __init__(self, run: SiteRun, error: Exception) -> None:
        super().__init__(str(error))
        self.run, self.error = run, error


def operator_files(
    built: Built, known: tuple[KnownIssue, ...], tolerances: list[ErrorDistribution]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(operator's place, what its page shows), run by run.

    Raises:
        UnreadableRun: a run turns out to be damaged.
    """
    schemas = _schemas(built.names)
    history = _history(built)
    wanted = _linked(built, tolerances)
    by_run: defaultdict[int, list[str]] = defaultdict(list)
    for number, run in built.newest_of.items():
        by_run[run].append(built.words.operators.words[number])
    place = {name: number for number, name in enumerate(built.names)}
    for run_number, names in sorted(by_run.items()):
        for name, data in _of_run(built.runs[run_number], names, known, wanted):
            number = place[name]
            yield (
                number,
                {"run": run_number, "schema": schemas.get(name, ""), "history": history[number], **data},
            )
    for name in set(built.names) - {name for names in by_run.values() for name in names}:
        # Every run that should have it has lost it.
        number = place[name]
        yield number, {"run": -1, "schema": schemas.get(name, ""), "history": history[number], **_NOTHING}


_NOTHING: dict[str, Any] = {"groups": [], "findings": [], "graphs": [], "cases": [], "omitted": 0}


def _of_run(
    run: SiteRun, names: list[str], known: tuple[KnownIssue, ...], wanted: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        table = store.read(run.directory, COLUMNS, pc.field("overload").isin(names)).combine_chunks()
        beside = Beside(
            minimal=read_minimal(run.directory),
            known=known,
            graphs=read_graphs(run.directory),
            scripts=read_scripts(run.directory),
        )
    except ResultsError as error:
        raise UnreadableRun(run, error) from None
    table = table.sort_by("overload")
    start = 0
    for name, rows in itertools.groupby(table["overload"].to_pylist()):
        count = sum(1 for _ in rows)
        yield name, operator_data(name, table.slice(start, count), beside, wanted.get(name, ()))
        start += count


def _schemas(names: list[str]) -> dict[str, str]:
    """What PyTorch declares of operators, where it is installed; nothing of those that it lacks."""
    if not all_overloads():
        return {}
    from harness.core import registered_schemas

    found = {}
    wanted = set(names)
    for schema in registered_schemas():
        name = f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
        if name in wanted:
            found[name] = str(schema)
    return found


def _history(built: Built) -> list[list[list[int]]]:
    """Per operator, rows of run, column, cases that passed, that could have, and that failed."""
    found: list[list[list[int]]] = [[] for _ in built.names]
    for number, one in enumerate(built.tallies):
        rank = built.rank[one.operator] if len(one.operator) else one.operator
        rows = np.stack([rank, one.column, one.passes, one.total, one.failures], axis=1)
        for operator, *rest in rows.tolist():
            found[operator].append([number, *rest])
    return found


def _linked(built: Built, tolerances: list[ErrorDistribution]) -> Mapping[str, Collection[str]]:
    """Operator → case ids that other views link to: outliers, and what changed last."""
    wanted: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for one in tolerances:
        wanted[one.overload][one.worst_case] = None
    changes = built.last_changes
    if changes is not None:
        after = built.coded[-1]
        listed: defaultdict[str, int] = defaultdict(int)
        apart = {CHANGES.index(change) for change in (ChangeKind.UNCHANGED, ChangeKind.NEW, ChangeKind.GONE)}
        for place in np.flatnonzero(~np.isin(changes.change, list(apart))).tolist():
            row = int(changes.after[place])
            name = built.words.operators.words[int(after.operator[row])]
            if listed[name] < _CHANGED:
                listed[name] += 1
                wanted[name][str(after.case[row])] = None
    return dict(wanted)
