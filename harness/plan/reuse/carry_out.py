"""A unit of work, with verdicts of earlier runs in place of what need not be done again.

Where the same cases are drawn and nothing failed in a way that may be the machine's, all of a unit is taken
over and nothing is even drawn. Else its cases are drawn, and what is taken over is whole exports, since cases
of one export decide together what is exported. Whose defect a failure is may rest on the other failures of
the unit, so that failures are taken over all or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from harness.compare import Verdict
from harness.execute import Group, Supervisor
from harness.generate import FromCorpus, FromFile, FromRecord, Notice
from harness.plan.reuse.keys import VerdictScope, drawing, witnesses
from harness.plan.reuse.library import EarlierRun, Library
from harness.plan.unit import Hold, Unit, find_groups, run_part, run_unit
from harness.record import ResultsError, RunInfo

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
