"""Earlier runs to take verdicts from, and what a run took: counted, explained, the minimal cases with it.

A unit of work, with verdicts of earlier runs in place of what need not be done again.

Where the same cases are drawn and nothing failed in a way that may be the machine's, all of a unit is taken
over and nothing is even drawn. Else its cases are drawn, and what is taken over is whole exports, since cases
of one export decide together what is exported. Whose defect a failure is may rest on the other failures of
the unit, so that failures are taken over all or not at all.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from harness.compare.verdict import CaseKey, Outcome, Verdict
from harness.execute.supervisor import Supervisor
from harness.execute.task import OWN_FAULT, Group
from harness.generate.sources.corpus import FromCorpus, FromFile
from harness.generate.sources.recorded import FromRecord
from harness.generate.sources.source import Notice
from harness.plan.reuse.fingerprint import VerdictScope, differences, drawing, said, witnesses
from harness.plan.unit import Hold, Unit, find_groups, run_part, run_unit
from harness.record import layout, progress, store
from harness.record.json_lines import Minimal, append_line, read_flaky, read_minimal
from harness.record.layout import ResultsError
from harness.record.parquet import to_verdicts
from harness.record.progress import completeness
from harness.record.run_info import RULES, SOURCE, RunInfo, read_run_info, write_run_info

#: Directories below a data set in which runs are looked for.
_DEPTH = 3

#: Newest runs that are compared with this one.
_TOLD = 5

#: What a process died of, or how long it took, may have been the machine's.
_VOLATILE = frozenset({Outcome.CRASH, Outcome.TIMEOUT})


@dataclass(frozen=True)
class EarlierRun:
    """A run that was recorded; `rules` is what its basis says of those that took part, "" for none."""

    directory: Path
    info: RunInfo
    rules: str

    def allows(self, now: RunInfo, place: VerdictScope) -> bool:
        """Whether a passing verdict of `place` would come out the same in the run `now`."""
        return not differences(self.info, now, place, self.rules)

    def unit(self, overload: str, converter: str, shape_mode: str) -> list[Verdict]:
        """Its rows of one unit, in their order; none if the unit did not finish."""
        word = converter if shape_mode == "static" else f"{converter}-{shape_mode}"
        places = self._places.get(overload) if self._finished(overload, word) else None
        if places is None:
            return []
        chosen = self._table.take(pa.array(places))
        of_unit = (pc.field("converter") == converter) & (pc.field("shape_mode") == shape_mode)
        return list(to_verdicts(chosen.filter(of_unit)))

    def is_volatile(self, verdict: Verdict) -> bool:
        """Whether one of its verdicts may come out another way the next time."""
        return verdict.outcome in _VOLATILE or verdict.case_key in self._flaky or verdict.message.startswith(OWN_FAULT)

    def _finished(self, overload: str, word: str) -> bool:
        if self.info.finished is not None:
            return overload in self._whole
        return (overload, word) in self._done

    @cached_property
    def _whole(self) -> frozenset[str]:
        """Operators of which a finished run has all."""
        found = completeness(self.directory)
        return frozenset(found.operators) - frozenset(found.unfinished)

    @cached_property
    def _done(self) -> frozenset[tuple[str, str]]:
        return progress.read(self.directory).done

    @cached_property
    def _flaky(self) -> frozenset[CaseKey]:
        return read_flaky(self.directory)

    @cached_property
    def _table(self) -> pa.Table:
        return store.read(self.directory).combine_chunks()

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Overload → its rows' places."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for place, overload in enumerate(self._table["overload"].to_pylist()):
            found[overload].append(place)
        return dict(found)


class Library:
    """Earlier runs, newest first.

    Args:
        directories: Of runs, or with runs below them.

    Raises:
        ResultsError: there is no such directory.

    Attributes:
        notices: What could not be read, in lines for a person.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self.notices: list[str] = []
        found: list[EarlierRun] = []
        for directory in directories:
            if not directory.is_dir():
                raise ResultsError(
                    f"--reuse {directory}: no such directory; name a run, or a directory with runs below it"
                )
            places = list(_runs_below(directory, _DEPTH))
            if not places:
                self.notices.append(f"{directory} holds no run yet: nothing of it to reuse")
            for place in places:
                found += self._read(place)
        unique = {run.directory.resolve(): run for run in found}
        self.runs = tuple(sorted(unique.values(), key=lambda run: run.info.started, reverse=True))

    def _read(self, place: Path) -> Iterator[EarlierRun]:
        try:
            info = read_run_info(place)
        except ResultsError as error:
            self.notices.append(f"set aside: {error}")
            return
        rules = str(info.basis.get(RULES, ""))
        yield EarlierRun(place, info, rules)
        without = place / layout.WITHOUT_RULES_DIRECTORY
        if rules and layout.holds_run(without):
            yield EarlierRun(without, info, "")

    def allowing(self, now: RunInfo, place: VerdictScope) -> Iterator[EarlierRun]:
        """The runs whose verdicts of `place` hold for `now`, newest first."""
        others = (run for run in self.runs if run.info.run_id != now.run_id and SOURCE in run.info.basis)
        return (run for run in others if run.allows(now, place))


def _runs_below(directory: Path, depth: int) -> Iterator[Path]:
    if layout.holds_run(directory):
        yield directory
    elif depth:
        with os.scandir(directory) as entries:
            below = sorted(e.path for e in entries if e.is_dir() and not e.name.startswith("."))
        for path in below:
            yield from _runs_below(Path(path), depth - 1)


def notes(library: Library, now: RunInfo, units: tuple[Unit, ...]) -> list[str]:
    """What keeps verdicts of earlier runs from being reused, a line each: of the one that serves best."""
    if not library.runs:
        return library.notices
    places = [
        VerdictScope(unit.overload, unit.converter, backend, bool(unit.settings.rules))
        for unit in units
        for backend in unit.backends
    ]
    words = [said(run.info, now, places) for run in library.runs[:_TOLD]]
    return [*library.notices, *min(words, key=len)]


def conclude(results_dir: Path, library: Library, words: list[str]) -> RunInfo:
    """Note in a finished run what it took over, and why no more (`words`); take the minimal cases over too.

    Raises:
        ResultsError: the run cannot be read or written, or a file of an earlier one is damaged.
    """
    info = read_run_info(results_dir)
    rows = store.read(results_dir, ["case_id", "converter", "backend", "reused_from"]).to_pylist()
    taken = [row for row in rows if row["reused_from"]]
    runs = Counter(row["reused_from"] for row in taken)
    reused = {(row["case_id"], row["converter"], row["backend"]) for row in taken}
    _take_minimal(results_dir, library, info, reused)
    info = replace(info, reused={"verdicts": runs.total(), "of": len(rows), "runs": dict(runs), "notes": words})
    write_run_info(results_dir, info)
    return info


def _take_minimal(results_dir: Path, library: Library, now: RunInfo, reused: set[tuple[str, str, str]]) -> None:
    rules = bool(now.basis.get(RULES))
    found: dict[tuple[str, str, str], Minimal] = {}
    for run in library.runs if reused else ():
        if witnesses(run.info, now):
            continue
        for minimal in read_minimal(run.directory):
            key = minimal.case_id, minimal.converter, minimal.backend
            place = VerdictScope(minimal.overload, minimal.converter, minimal.backend, rules)
            if key in reused and key not in found and run.allows(now, place):
                found[key] = minimal
    for minimal in found.values():
        append_line(results_dir, minimal)


#: Sources that only read: asking them costs nothing.
_READING = (FromCorpus, FromFile, FromRecord)

#: Runs with other cases that are looked at before the newest of them is taken.
_TRIED = 3

#: What an export is known by: the case id of what is exported, and those of the cases that share it.
_Key: TypeAlias = tuple[str, frozenset[str]]


def run_reusing(
    unit: Unit,
    supervisor: Supervisor,
    notice: Callable[[Notice], None],
    library: Library,
    now: RunInfo,
    hold: Hold,
) -> Iterator[list[Verdict]]:
    """As `harness.plan.unit.run_unit`, with what earlier runs have; `now` is this run."""
    earlier = {backend: _recorded(unit, backend, library, now, notice) for backend in unit.backends}
    if not any(rows for _, rows in earlier.values()):
        yield from run_unit(unit, supervisor, notice, hold)
        return
    whole = _whole(unit, supervisor, notice, earlier, now)
    if whole is not None:
        yield whole
        return
    for source, groups in find_groups(unit, supervisor, notice):
        taken: dict[str, dict[int, list[Verdict]]] = {
            backend: _reusable(source, groups, run, rows, now) if run is not None else {}
            for backend, (run, rows) in earlier.items()
        }
        members = [row for found in taken.values() for rows in found.values() for row in rows]
        if members:
            yield [replace(row, source=source) for row in members]
        left: defaultdict[tuple[str, ...], list[Group]] = defaultdict(list)
        for group in groups:
            backends = tuple(b for b in unit.backends if group.index not in taken[b])
            if backends:
                left[backends].append(group)
        if left:
            chosen = {backends: tuple(groups) for backends, groups in left.items()}
            yield from run_part(unit, supervisor, source, groups, chosen, hold=hold)


def _recorded(
    unit: Unit, backend: str, library: Library, now: RunInfo, notice: Callable[[Notice], None]
) -> tuple[EarlierRun | None, list[Verdict]]:
    """A run that has verdicts of a unit that hold, and these.

    The newest of those that drew the same cases, if there are any; else the newest.
    """
    place = VerdictScope(unit.overload, unit.converter, backend, bool(unit.settings.rules))
    others: list[tuple[EarlierRun, list[Verdict]]] = []
    for run in library.allowing(now, place):
        try:
            rows = run.unit(unit.overload, unit.converter, unit.shape_mode)
        except ResultsError as error:
            notice(Notice("reuse", f"nothing of {run.directory} reused: {error}"))
            continue
        run_id = run.info.run_id
        own = [replace(r, reused_from=r.reused_from or run_id) for r in rows if r.backend == backend]
        if own and not drawing(run.info, now):
            return run, own
        if own:
            others.append((run, own))
        if len(others) == _TRIED:
            break
    return others[0] if others else (None, [])


def _whole(
    unit: Unit,
    supervisor: Supervisor,
    notice: Callable[[Notice], None],
    earlier: dict[str, tuple[EarlierRun | None, list[Verdict]]],
    now: RunInfo,
) -> list[Verdict] | None:
    """All verdicts of a unit, without drawing its cases; None where these may be others."""
    cases: set[frozenset[tuple[str, str, str, str]]] = set()
    for run, rows in earlier.values():
        if run is None or drawing(run.info, now) or any(map(run.is_volatile, rows)):
            return None
        if any(row.outcome.is_failure for row in rows) and witnesses(run.info, now):
            return None
        cases.add(frozenset((r.source, r.case_id, r.exported_id, r.exported_invocation) for r in rows))
    if len(cases) != 1:
        return None
    [recorded] = cases
    sources = unit.sources if unit.replay is None else (FromRecord(unit.replay),)
    reading = tuple(source for source in sources if isinstance(source, _READING))
    said: list[Notice] = []
    # What was kept of failures may have changed since: then what is drawn beside it is another remainder.
    found = find_groups(replace(unit, sources=reading), supervisor, said.append) if reading else []
    read = {
        (source, invocation.case_id, g.exported.case_id, g.exported.json if unit.settings.dynamic else "")
        for source, groups in found
        for g in groups
        for _, invocation in g.cases
    }
    names = {source.name for source in reading}
    if read != {case for case in recorded if case[0] in names}:
        return None
    if {case[0] for case in recorded} - {source.name for source in sources}:
        return None
    for one in said:
        notice(one)
    return [row for _, rows in earlier.values() for row in rows]


def _reusable(
    source: str, groups: Sequence[Group], run: EarlierRun, rows: Sequence[Verdict], now: RunInfo
) -> dict[int, list[Verdict]]:
    """Group index → its verdicts with one backend, of those that can be taken over."""
    recorded = _by_key(rows)
    found = {group.index: recorded[key] for group in groups if (key := _key(group)) in recorded}
    failing = {i for i, members in found.items() if any(v.outcome.is_failure for v in members)}
    same_work = _by_key(row for row in rows if row.source == source).keys() == set(map(_key, groups))
    volatile = any(run.is_volatile(v) for i in failing for v in found[i])
    if not same_work or volatile or (failing and witnesses(run.info, now)):
        found = {i: members for i, members in found.items() if i not in failing}
    return {i: v for i, v in found.items() if not any(map(run.is_volatile, v))}


def _by_key(rows: Iterable[Verdict]) -> dict[_Key, list[Verdict]]:
    together: defaultdict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for row in rows:
        together[row.source, row.exported_id].append(row)
    return {
        (exported, frozenset(row.case_id for row in members)): members
        for (_, exported), members in together.items()
        # Records of earlier versions do not say what was exported.
        if exported
    }


def _key(group: Group) -> _Key:
    return group.exported.case_id, frozenset(invocation.case_id for _, invocation in group.cases)
