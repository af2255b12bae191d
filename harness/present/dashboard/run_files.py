"""The files of one run: its overview with the changes from the run before, failures, tolerances and matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.groups import COLUMNS, FAILED, FailureGroup, failure_groups
from harness.causes.known_issues import KnownIssue
from harness.compare.verdict import SPEC
from harness.coverage.seen_pairs import SeenPairs, read_seen_pairs
from harness.gate.case_changes import CHANGES, ChangeKind
from harness.gate.run_diff import version_changes, why
from harness.present.dashboard.case_files import CaseIndex
from harness.present.dashboard.cells import STANDINGS, WHOLE, matrix_data
from harness.present.dashboard.embed import write_script
from harness.present.dashboard.evidence import UnreadableRun
from harness.present.dashboard.figures import read_distributions, tolerance_data, weighted_data
from harness.present.dashboard.runs import asked_for, runs_of_like_cases
from harness.present.dashboard.site_model import Compared, SiteModel
from harness.present.evidence import fault_text, group_place
from harness.present.tolerance_report import ErrorDistribution
from harness.record import store
from harness.record.dictionary_encoding import Numbers
from harness.record.json_lines import read_minimal
from harness.record.layout import ResultsError

#: Failures of a kind that the overview shows.
_FAILURES = 8
#: Characters of a text in the list; all of it stands on the page of its operator.
_LONGEST = 200
_LISTED = (
    "outcome",
    "stage",
    "blame",
    "owner",
    "place",
    "cause",
    "cases",
    "overloads",
    "dtypes",
    "converters",
    "backends",
    "known",
)


def failures_of(built: SiteModel, number: int, known: tuple[KnownIssue, ...]) -> list[FailureGroup]:
    """Return the failures of a run, worst first, without those of operators that it has lost.

    Raises:
        ResultsError: the run is damaged.
    """
    run = built.runs[number]
    rows = store.read(run.directory, COLUMNS, FAILED, encoded=True)
    lost = {built.words.operators.words[operator] for operator in built.lost[number].tolist()}
    if lost:
        rows = rows.filter(pc.invert(pc.is_in(rows["overload"].cast(pa.string()), pa.array(sorted(lost)))))
    return failure_groups(rows, read_minimal(run.directory), known)


def listed(group: FailureGroup) -> dict[str, Any]:
    """Return a failure as a line."""
    data = {**group.to_data(), "place": group_place(group), "cause": fault_text(group.cause)}
    return {
        **{name: data[name] for name in _LISTED},
        "kind": str(group.kind),
        "signature": group.signature[:_LONGEST],
        "message": (group.minimal.message if group.minimal else group.message)[:_LONGEST],
        "case": group.case_id,
        # Its page, which may be another than that of the first operator of the group.
        "overload": group.overload,
        "call": group.call[:_LONGEST],
        "ordinary": group.ordinary_cases,
        "callers": group.callers,
    }


def failure_overview(failures: Sequence[FailureGroup]) -> dict[str, Any]:
    """Return the overview's data on all failures of a run; what a specification leaves open is none."""
    somebodys = [group for group in failures if group.blame != SPEC]
    ordinary = sum(group.ordinary is not None for group in somebodys)
    return {"failures": _first(somebodys), "failureCount": len(somebodys), "ordinaryFailureCount": ordinary}


def _first(failures: Sequence[FailureGroup]) -> list[dict[str, Any]]:
    """Return the failures that the overview shows: those that ordinary use meets, with such a call, and others."""
    ordinary = [group for group in failures if group.ordinary]
    edge = [group for group in failures if not group.ordinary]
    shown = [listed(group) for group in (*ordinary[:_FAILURES], *edge[:_FAILURES])]
    for data, group in zip(shown, ordinary[:_FAILURES], strict=False):
        if group.ordinary:
            usual = group.ordinary
            data |= {"call": usual.call[:_LONGEST], "message": usual.message[:_LONGEST], "case": usual.case_id}
            data |= {"overload": usual.overload, "stage": usual.stage, "outcome": usual.outcome}
    return shown


#: Lines of changes that the overview shows; the comparison shows all.
_LINES = 60


def moved_data(built: SiteModel, number: int) -> dict[str, Any] | None:
    """Return the changes from the run that a run is compared with; None for the first run of its kind."""
    found = built.compared(number)
    if found is None:
        return None
    versions = version_changes(built.runs[found.before].info.versions, built.runs[number].info.versions)
    lines = _lines(built, found)
    names = built.words.column_names
    for line in lines[:_LINES]:
        converter, backend = names[line["column"]]
        line["why"] = why(versions, converter, backend, _rules(built, found, line))
    counts = np.bincount(found.changes.change, minlength=len(CHANGES))
    return {
        "before": found.before,
        "after": number,
        "counts": {str(CHANGES[n]): int(c) for n, c in enumerate(counts)},
        "unasked": found.unasked,
        "lines": lines[:_LINES],
        "more": max(0, len(lines) - _LINES),
    }


def _lines(built: SiteModel, found: Compared) -> list[dict[str, Any]]:
    """Return the changes per operator and column, worst first."""
    change = found.changes.change
    changed = np.flatnonzero(change != CHANGES.index(ChangeKind.UNCHANGED))
    line, kind = _line_of(built, found)[changed], change[changed]
    cells, firsts, counts = np.unique(line * len(CHANGES) + kind, return_index=True, return_counts=True)
    lines: dict[int, dict[str, Any]] = {}
    columns = len(built.words.column_names)
    for cell, first, count in zip(cells.tolist(), firsts.tolist(), counts.tolist(), strict=True):
        number, name = cell // len(CHANGES), CHANGES[cell % len(CHANGES)]
        operator, column = divmod(number, columns)
        empty = {"operator": operator, "column": column, "counts": {}, "examples": {}, "worse": 0}
        one = lines.setdefault(number, empty)
        one["counts"][str(name)] = count
        one["examples"][str(name)] = _case(built, found, int(changed[first]))
        one["worse"] += count if name.is_worse else 0
    order = {str(name): place for place, name in enumerate(CHANGES)}

    def urgency(one: dict[str, Any]) -> tuple[int, int, int, int]:
        return -one["worse"], min(order[name] for name in one["counts"]), one["operator"], one["column"]

    return sorted(lines.values(), key=urgency)


def _line_of(built: SiteModel, found: Compared) -> Numbers:
    """Operator's place and column of each case, in one number."""
    after = found.changes.after >= 0
    columns = len(built.words.column_names)
    line = np.zeros(len(after), dtype=np.int64)
    for there, rows, run in (
        (after, found.changes.after, found.after),
        (~after, found.changes.before, found.before),
    ):
        coded, at = built.coded[run], rows[there]
        line[there] = built.rank[coded.operator[at]] * columns + coded.column[at]
    return line


def _case(built: SiteModel, found: Compared, place: int) -> str:
    row = int(found.changes.after[place])
    if row >= 0:
        return str(built.coded[found.after].case[row])
    return str(built.coded[found.before].case[int(found.changes.before[place])])


def _rules(built: SiteModel, found: Compared, line: dict[str, Any]) -> tuple[str, str] | None:
    """Return the user's conversion functions in a line before and after; None if they are the same."""
    states = built.words.states
    rules = []
    for run in (found.before, found.after):
        coded = built.coded[run]
        mine = (built.rank[coded.operator] == line["operator"]) & (coded.column == line["column"])
        some = {states[number].rule for number in np.unique(coded.state[mine]).tolist()} - {""}
        rules.append(", ".join(sorted(some)))
    before, after = rules
    return None if before == after else (before, after)


@dataclass(frozen=True)
class RunFindings:
    """The results computed from a run's rows, apart from counts.

    Attributes:
        tolerances: Error distributions of all cases.
        ordinary_tolerances: Error distributions of the ordinary cases.
    """

    tolerances: Sequence[ErrorDistribution] = ()
    ordinary_tolerances: Sequence[ErrorDistribution] = ()
    failures: Sequence[FailureGroup] = ()


def write_findings(
    place: Path, built: SiteModel, known: tuple[KnownIssue, ...], progress: Callable[[str], None]
) -> dict[int, RunFindings]:
    """Write ``overview``, ``failures`` and ``tolerances`` of every run; return the findings of runs with evidence.

    Raises:
        UnreadableRun: a run turns out to be damaged.
    """
    kept = {}
    for number, run in enumerate(built.runs):
        progress(f"grouping failures of {run.directory.name}")
        try:
            found = RunFindings(*read_distributions(built, number), failures_of(built, number, known))
        except ResultsError as error:
            raise UnreadableRun(run, error) from None
        write_script(
            place, f"tolerances/{number}", tolerance_data(built, number, found.tolerances, found.ordinary_tolerances)
        )
        write_script(place, f"failures/{number}", list(map(listed, found.failures)))
        write_script(place, f"overview/{number}", _overview(built, number, found.failures))
        if number in built.evidence.runs:
            kept[number] = found
    return kept


def _overview(built: SiteModel, number: int, failures: Sequence[FailureGroup]) -> dict[str, Any]:
    return {
        "moved": moved_data(built, number),
        **failure_overview(failures),
        "familyShares": _family_shares(built, number),
        "weighted": weighted_data(built, number),
        "trend": runs_of_like_cases(built.requests, number),
    }


def _family_shares(built: SiteModel, number: int) -> list[list[int]]:
    """Return rows of counts of a run: family and column, then the numbers of operators, of those that pass all
    cases, of missing ones, of passing ordinary cases, of ordinary cases, and of all cases."""
    names = sorted(set(built.families))
    family_of = np.array([names.index(name) for name in built.families], dtype=np.int64)[built.rank]
    columns = built.columns_of(number)
    found, usual = built.tallies[number], built.ordinary_tallies[number]
    lost = family_of[built.lost[number]]
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


def _seen_pairs(built: SiteModel, number: int) -> dict[int, SeenPairs]:
    """Return the pairs seen in operators that have a column without failures, by their places in the page's list;
    none for runs without pages of their own, whose calls are not read again.

    Raises:
        UnreadableRun: the run turns out to be damaged.
    """
    if number not in built.evidence.runs:
        return {}
    found = built.tallies[number]
    whole = np.unique(found.operator[found.standing == STANDINGS.index(WHOLE)]).tolist()
    places = {built.words.operators.words[operator]: int(built.rank[operator]) for operator in whole}
    run = built.runs[number]
    try:
        return {places[name]: pairs for name, pairs in read_seen_pairs(run.directory, list(places)).items()}
    except ResultsError as error:
        raise UnreadableRun(run, error) from None


def write_cases(place: Path, built: SiteModel) -> None:
    """Write ``matrix``, ``ends`` and ``asked`` of every run, and the cases and states that these count by.

    Raises:
        UnreadableRun: a run turns out to be damaged.
    """
    cases = CaseIndex()
    for number, run in enumerate(built.coded):
        missing = built.rank[built.lost[number]].tolist() if len(built.lost[number]) else []
        pages = {
            "own": built.rank[built.evidence.own[number]].tolist(),
            "unlike": built.rank[built.evidence.unlike[number]].tolist(),
        }
        matrix = matrix_data(run, built.rank, missing, _seen_pairs(built, number))
        write_script(place, f"matrix/{number}", {**matrix, **pages})
        ends = cases.add(run, built.rank, built.flaky(number))
        write_script(place, f"ends/{number}", {**ends, "missing": missing})
    for number in range(len(built.coded)):
        write_script(place, f"asked/{number}", _asked(built, number, cases))
    for number, chunk in enumerate(cases.chunks()):
        write_script(place, f"cases/{number}", chunk)
    for name, ids in cases.ids():
        write_script(place, f"ids/{name}", ids)
    states = [
        [s.outcome, s.stage, s.signature, int(s.left_open), int(s.measured), s.rule, int(s.fails)]
        for s in built.words.states
    ]
    write_script(place, "states", states)


def _asked(built: SiteModel, number: int, cases: CaseIndex) -> list[list[int]]:
    """Per chunk, which of its cells a run was asked for: run lengths of 0 and 1."""

    def of(run: int, *cells: Numbers) -> Numbers:
        words = built.words.cells(*cells)
        return asked_for(built.requests[number], built.requests[run], words).astype(np.int64)

    return cases.marked(of)
