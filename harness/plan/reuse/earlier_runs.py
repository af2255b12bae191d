"""Earlier runs to take verdicts from, and what a run took: counted, explained, the minimal cases with it.

All verdicts of a unit with one backend are taken over, or none: they are where the same cases would be drawn and
nothing failed in a way that may be the machine's. Nothing is drawn then.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.compare.verdict import CaseKey, Outcome, Verdict
from harness.execute.supervisor import Supervisor
from harness.execute.task import OWN_FAULT
from harness.generate.sources.corpus import FromCorpus, FromFile
from harness.generate.sources.recorded import FromRecord
from harness.generate.sources.source import Notice
from harness.plan.reuse.fingerprint import VerdictScope, differences, drawing, said, witnesses
from harness.plan.unit import Hold, Unit, find_groups, run_unit
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


class EarlierRuns:
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


def notes(library: EarlierRuns, now: RunInfo, units: tuple[Unit, ...]) -> list[str]:
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


def conclude(results_dir: Path, library: EarlierRuns, words: list[str]) -> RunInfo:
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


def _take_minimal(results_dir: Path, library: EarlierRuns, now: RunInfo, reused: set[tuple[str, str, str]]) -> None:
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


def run_reusing(
    unit: Unit,
    supervisor: Supervisor,
    notice: Callable[[Notice], None],
    library: EarlierRuns,
    now: RunInfo,
    hold: Hold,
) -> Iterator[list[Verdict]]:
    """As `harness.plan.unit.run_unit`, with what earlier runs have; `now` is this run."""
    known = {b: rows for b in unit.backends if (rows := _recorded(unit, b, library, now, notice))}
    if known and _draws_the_same(unit, supervisor, notice, known.values()):
        yield [row for rows in known.values() for row in rows]
        unit = replace(unit, backends=tuple(backend for backend in unit.backends if backend not in known))
    if unit.backends:
        yield from run_unit(unit, supervisor, notice, hold)


def _recorded(
    unit: Unit, backend: str, library: EarlierRuns, now: RunInfo, notice: Callable[[Notice], None]
) -> list[Verdict]:
    """The verdicts of a unit that the newest run has which drew the same cases and whose verdicts all hold."""
    place = VerdictScope(unit.overload, unit.converter, backend, bool(unit.settings.rules))
    for run in library.allowing(now, place):
        if drawing(run.info, now):
            continue
        try:
            rows = run.unit(unit.overload, unit.converter, unit.shape_mode)
        except ResultsError as error:
            notice(Notice("reuse", f"nothing of {run.directory} reused: {error}"))
            continue
        own = [replace(r, reused_from=r.reused_from or run.info.run_id) for r in rows if r.backend == backend]
        if not own or any(map(run.is_volatile, own)):
            continue
        # Whose defect a failure is depends on who was asked.
        if not (any(row.outcome.is_failure for row in own) and witnesses(run.info, now)):
            return own
    return []


def _draws_the_same(
    unit: Unit, supervisor: Supervisor, notice: Callable[[Notice], None], known: Iterable[Sequence[Verdict]]
) -> bool:
    """Whether the unit would have the cases of all these verdicts, found out without drawing any."""
    cases = {frozenset((r.source, r.case_id, r.exported_id, r.exported_invocation) for r in rows) for rows in known}
    if len(cases) != 1:
        return False
    [recorded] = cases
    sources = unit.sources if unit.replay is None else (FromRecord(unit.replay),)
    reading = tuple(source for source in sources if isinstance(source, _READING))
    notices: list[Notice] = []
    # What was kept of failures may have changed since: then what is drawn in addition is another remainder.
    found = find_groups(replace(unit, sources=reading), supervisor, notices.append) if reading else []
    read = {
        (source, invocation.case_id, g.exported.case_id, g.exported.json if unit.settings.dynamic else "")
        for source, groups in found
        for g in groups
        for _, invocation in g.cases
    }
    names = {source.name for source in reading}
    if read != {case for case in recorded if case[0] in names}:
        return False
    if {case[0] for case in recorded} - {source.name for source in sources}:
        return False
    for message in notices:
        notice(message)
    return True
