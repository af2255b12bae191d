"""The files of one run: what its overview, its failures, its tolerances and its matrix show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.analyse import SeenPairs, read_seen_pairs
from harness.causes import FailureGroup, KnownIssue
from harness.present.dashboard.built import Built
from harness.present.dashboard.case_files import CaseIndex
from harness.present.dashboard.cells import STANDINGS, WHOLE, matrix_data
from harness.present.dashboard.embed import write_script
from harness.present.dashboard.evidence import UnreadableRun
from harness.present.dashboard.failure_list import failure_overview, failures_of, listed
from harness.present.dashboard.moved import moved_data
from harness.present.dashboard.run_choice import asked_for, runs_of_like_cases
from harness.present.dashboard.tolerance_data import read_distributions, tolerance_data
from harness.present.dashboard.use_data import weighted_data
from harness.present.tolerance_report import ErrorDistribution
from harness.record import Numbers, ResultsError


@dataclass(frozen=True)
class RunFindings:
    """What is computed of a run's rows beside counts."""

    tolerances: Sequence[ErrorDistribution] = ()
    failures: Sequence[FailureGroup] = ()


def write_findings(
    place: Path, built: Built, known: tuple[KnownIssue, ...], progress: Callable[[str], None]
) -> dict[int, RunFindings]:
    """Write ``overview``, ``failures`` and ``tolerances`` of every run; give what runs with evidence have.

    Raises:
        UnreadableRun: a run turns out to be damaged.
    """
    kept = {}
    for number, run in enumerate(built.runs):
        progress(f"grouping failures of {run.directory.name}")
        try:
            found = RunFindings(read_distributions(built, number), failures_of(built, number, known))
        except ResultsError as error:
            raise UnreadableRun(run, error) from None
        write_script(place, f"tolerances/{number}", tolerance_data(built, number, found.tolerances))
        write_script(place, f"failures/{number}", list(map(listed, found.failures)))
        write_script(place, f"overview/{number}", _overview(built, number, found.failures))
        if number in built.evidence.runs:
            kept[number] = found
    return kept


def _overview(built: Built, number: int, failures: Sequence[FailureGroup]) -> dict[str, Any]:
    return {
        "moved": moved_data(built, number),
        **failure_overview(failures),
        "familyShares": _family_shares(built, number),
        "weighted": weighted_data(built, number),
        "trend": runs_of_like_cases(built.requests, number),
    }


def _family_shares(built: Built, number: int) -> list[list[int]]:
    """Of a run: family and column, then how many operators there are, of how many all cases pass and how many
    are missing, then how many ordinary cases passed of how many, and how many of all."""
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


def _seen_pairs(built: Built, number: int) -> dict[int, SeenPairs]:
    """Of the operators of a run in which no failure was found somewhere, by their places in the page's list;
    none of runs without pages of their own: their calls are not read again.

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


def write_cases(place: Path, built: Built) -> None:
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
        [s.outcome, s.stage, s.signature, int(s.open), int(s.measured), s.rule, int(s.fails)]
        for s in built.words.states
    ]
    write_script(place, "states", states)


def _asked(built: Built, number: int, cases: CaseIndex) -> list[list[int]]:
    """Per chunk, which of its cells a run was asked for: run lengths of 0 and 1."""

    def of(run: int, *cells: Numbers) -> Numbers:
        words = built.words.cells(*cells)
        return asked_for(built.requests[number], built.requests[run], words).astype(np.int64)

    return cases.marked(of)
