"""The files of operators: each shows the evidence of one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from harness.causes.groups import COLUMNS as GROUPED, FAILED, FailureGroup, failure_groups
from harness.causes.known_issues import KnownIssue
from harness.core.overloads import all_overloads
from harness.gate.case_changes import CHANGES, ChangeKind
from harness.present.dashboard.operator_data import COLUMNS, Attachments, Rows, decoded, operator_data
from harness.present.dashboard.runs import SiteRun
from harness.present.dashboard.site_model import SiteModel
from harness.present.tolerance_report import ErrorDistribution
from harness.record import store
from harness.record.dictionary_encoding import numbered_column
from harness.record.json_lines import read_graphs, read_minimal, read_scripts
from harness.record.layout import ResultsError

#: Changed cases that an operator's page lists, so that the comparison can link to them.
_CHANGED = 40


class UnreadableRun(Exception):
    """Reading on has shown that a run is damaged."""

    def __init__(self, run: SiteRun, error: Exception) -> None:
        super().__init__(str(error))
        self.run, self.error = run, error


def operator_files(
    built: SiteModel,
    known: tuple[KnownIssue, ...],
    tolerances: Mapping[int, Sequence[ErrorDistribution]],
    failures: Mapping[int, Sequence[FailureGroup]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each file and the content of an operator's page, run by run.

    An operator's place is the name; before it stands the number of a run with a page of its own.

    Args:
        tolerances: Run → error distributions.
        failures: Run → its failures, whose cases other views link to.

    Raises:
        UnreadableRun: a run turns out to be damaged.
    """
    schemas = _schemas(built.names)
    history = _history(built)
    place = {name: number for number, name in enumerate(built.names)}

    def page(run: int, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"run": run, "schema": schemas.get(name, ""), "history": history[place[name]], **data}

    words = built.words.operators.words
    by_run: defaultdict[int, list[str]] = defaultdict(list)
    for number, run in built.evidence.of.items():
        by_run[run].append(words[number])
    for run, names in sorted(by_run.items()):
        wanted = _linked(built, run, tolerances[run], failures[run])
        for name, data in _run_pages(built.runs[run], names, known, wanted):
            yield str(place[name]), page(run, name, data)
    for run, others in built.evidence.own.items():
        if others:
            wanted = _linked(built, run, tolerances[run], failures[run])
            for name, data in _run_pages(built.runs[run], [words[number] for number in others], known, wanted):
                yield f"{run}-{place[name]}", page(run, name, data)
    for name in set(built.names) - {name for names in by_run.values() for name in names}:
        # Every run that should have it has lost it.
        yield str(place[name]), page(-1, name, _NOTHING)


_NOTHING: dict[str, Any] = {
    "groups": [],
    "findings": [],
    "pairs": None,
    "graphs": [],
    "cases": [],
    "omitted": 0,
}


def _run_pages(
    run: SiteRun, names: list[str], known: tuple[KnownIssue, ...], wanted: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        rows = store.read(run.directory, GROUPED, FAILED & pc.field("overload").isin(names), encoded=True)
        groups: defaultdict[str, list[FailureGroup]] = defaultdict(list)
        for group in failure_groups(rows, read_minimal(run.directory), known, by_overload=True):
            groups[group.overloads[0]].append(group)
        attachments = Attachments(groups, read_graphs(run.directory), read_scripts(run.directory))
        del rows
        for name, theirs in _group_by_operator(run.directory, frozenset(names)):
            yield name, operator_data(name, theirs, attachments, wanted.get(name, ()))
    except ResultsError as error:
        raise UnreadableRun(run, error) from None


def _group_by_operator(directory: Path, names: Collection[str]) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of each operator once all are read, so that few operators are in memory at once."""
    numbers, words = numbered_column(store.read(directory, ["overload"], encoded=True)["overload"])
    missing = dict(zip(words.to_pylist(), np.bincount(numbers).tolist(), strict=True))
    waiting: defaultdict[str, list[Rows]] = defaultdict(list)
    for piece in store.pieces(directory, ["overload", *COLUMNS], encoded=True):
        numbers, words = numbered_column(piece["overload"])
        order = np.argsort(numbers, kind="stable")
        columns = {name: values[order] for name, values in decoded(piece).items()}
        ends = np.cumsum(np.bincount(numbers, minlength=len(words))).tolist()
        for name, start, end in zip(words.to_pylist(), [0, *ends], ends, strict=False):
            if name not in names:
                continue
            waiting[name].append({column: values[start:end] for column, values in columns.items()})
            missing[name] -= end - start
            if not missing[name]:
                parts = waiting.pop(name)
                yield name, {column: np.concatenate([part[column] for part in parts]) for column in COLUMNS}


def _schemas(names: list[str]) -> dict[str, str]:
    """Return PyTorch's schemas of operators, if it is installed and has them."""
    if not all_overloads():
        return {}
    from harness.core.torch_operators import registered_schemas

    found = {}
    wanted = set(names)
    for schema in registered_schemas():
        name = f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
        if name in wanted:
            found[name] = str(schema)
    return found


def _history(built: SiteModel) -> list[list[list[int]]]:
    """Per operator, rows of run, column, cases that passed, that could have, and that failed."""
    found: list[list[list[int]]] = [[] for _ in built.names]
    for number, one in enumerate(built.tallies):
        rank = built.rank[one.operator] if len(one.operator) else one.operator
        rows = np.stack([rank, one.column, one.passes, one.total, one.failures], axis=1)
        for operator, *rest in rows.tolist():
            found[operator].append([number, *rest])
    return found


def _linked(
    built: SiteModel, run: int, tolerances: Sequence[ErrorDistribution], failures: Sequence[FailureGroup]
) -> Mapping[str, Collection[str]]:
    """Return operator → case ids that other views of a run link to: failures, outliers, and the latest changes."""
    wanted: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for group in failures:
        wanted[group.overload][group.case_id] = None
        if group.ordinary:
            wanted[group.ordinary.overload][group.ordinary.case_id] = None
    for tolerance in tolerances:
        wanted[tolerance.overload][tolerance.worst_case] = None
    found = built.compared(run)
    if found is not None:
        after = built.coded[run]
        listed: defaultdict[str, int] = defaultdict(int)
        apart = {CHANGES.index(change) for change in (ChangeKind.UNCHANGED, ChangeKind.NEW, ChangeKind.GONE)}
        for place in np.flatnonzero(~np.isin(found.changes.change, list(apart))).tolist():
            row = int(found.changes.after[place])
            name = built.words.operators.words[int(after.operator[row])]
            if listed[name] < _CHANGED:
                listed[name] += 1
                wanted[name][str(after.case[row])] = None
    return dict(wanted)
