"""The two sides of `conformance diff`, and the comparison that reports show.

Differences from a baseline are plain data here and can be sent to other processes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import pyarrow.compute as pc

from harness.compare.verdict import BEFORE_BACKEND
from harness.core.route import route_label
from harness.gate.baseline.count_cells import DRAWN_SOURCES
from harness.gate.baseline.file import DEFAULT, Baseline, baseline_of_run, is_baseline, read_baseline, read_revision
from harness.gate.baseline.gate import (
    BaselineFinding,
    CellDifference,
    Draws,
    compare,
    draws,
    mark_waived,
    other_options,
)
from harness.gate.case_changes import ChangeKind
from harness.gate.run_diff import Diff, compare_runs, version_changes, why
from harness.gate.run_request import last_of_kind, requested, shown_first
from harness.gate.waivers import COLUMNS as WAIVER_COLUMNS, NO_WAIVERS, Waivers, WaiverUse
from harness.record import layout, store
from harness.record.layout import ResultsError
from harness.record.progress import completeness
from harness.record.run_info import JSON, newest


@dataclass(frozen=True, kw_only=True)
class ReportedDifference:
    """One difference from a baseline, as reports show it.

    Attributes:
        finding: The kind of difference.
        what: A description.
        why: Possible causes, such as a rule or versions; "" if nothing relevant is known to differ.
        case_id: A case that shows it; "" if none is known.
        failure: The failure, as `harness.gate.baseline.cells.FailingCases.kind`; empty if nothing fails.
    """

    finding: BaselineFinding
    overload: str
    dtype: str
    converter: str
    backend: str
    shape_mode: str
    what: str
    why: str = ""
    case_id: str = ""
    failure: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The cell: ``aten.celu.default float32, dynamo → ort-cpu``."""
        return f"{self.overload} {self.dtype}, {route_label(self.converter, self.backend, self.shape_mode)}"


def reported(difference: CellDifference, versions: Mapping[str, tuple[str, str]]) -> ReportedDifference:
    """Return a difference with its possible causes among `harness.gate.run_diff.version_changes`."""
    cell = difference.cell
    # Without a valid model, every backend fails.
    early = difference.failure is not None and difference.failure.stage in BEFORE_BACKEND
    return ReportedDifference(
        finding=difference.finding,
        overload=cell.overload,
        dtype=cell.dtype,
        converter=cell.converter,
        backend=cell.backend,
        shape_mode=cell.shape_mode,
        what=difference.what,
        why=why(versions, cell.converter, "" if early else cell.backend, difference.rules),
        case_id=difference.case_id,
        failure=difference.failure.kind if difference.failure is not None else (),
    )


@dataclass(frozen=True, kw_only=True)
class BaselineComparison:
    """The comparison of two sides.

    Attributes:
        differences: The differences.
        versions: Name → versions before and now, if they differ; "" if it took no part.
        options: The same for the options that determine the drawn cases; None if an option was not given.
        draws: The relation between the cases of the two sides.
        same: Number of cells that were compared case by case.
        other: Number of cells that were compared statistically.
        total: Number of cells of the baseline.
        missing: A line on what the second side did not run although it was planned; nothing is known of that.
        waivers: What became of each waiver.
    """

    differences: Sequence[ReportedDifference]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    options: Mapping[str, tuple[JSON, JSON]] = field(default_factory=dict)
    draws: Draws = Draws.SAME
    same: int = 0
    other: int = 0
    total: int = 0
    missing: str = ""
    waivers: tuple[WaiverUse, ...] = ()

    @property
    def counts(self) -> dict[BaselineFinding, int]:
        """Finding → number of differences, worst first; only those that occur."""
        counts = {finding: sum(d.finding is finding for d in self.differences) for finding in BaselineFinding}
        return {finding: count for finding, count in counts.items() if count}

    @property
    def compared(self) -> int:
        """The number of cells that both sides have."""
        return self.same + self.other

    @property
    def worse(self) -> int:
        """The number of differences that fail the gate."""
        return sum(count for finding, count in self.counts.items() if finding.fails)


def comparison(
    before: Baseline, now: Baseline, differences: Sequence[ReportedDifference], *, same: int, other: int
) -> BaselineComparison:
    """Report inputs from recorded differences; the cells of `now` are not used."""
    return BaselineComparison(
        differences=differences,
        versions=version_changes(before.versions, now.versions),
        options=other_options(before, now),
        draws=draws(before, now),
        same=same,
        other=other,
        total=len(before.cells),
    )


#: The message if the two sides have nothing in common.
NOTHING_COMPARED = "nothing was compared: no operator, dtype, converter and backend is complete on both sides"

#: The differences, by case or by cell.
Found: TypeAlias = Diff | BaselineComparison


@dataclass(frozen=True)
class Side:
    """One side of a comparison, a run or a baseline, with its name for headings."""

    name: str
    run: Path | None = None
    baseline: Baseline | None = None

    @property
    def cells(self) -> Baseline:
        """Its outcomes as expectations."""
        if self.baseline is not None:
            return self.baseline
        assert self.run is not None
        return baseline_of_run(self.run)


def find_side(word: str, like: Side | None = None, *, later: bool = False) -> Side:
    """Return the side that an argument names.

    Args:
        word: A directory with a run, a baseline, or several runs, of which one is chosen; ``REVISION:PATH``, a baseline
            in a git revision; or ``REVISION``, for ``golden/baseline`` in it.
        like: The other side. If it is a run, the newest earlier run of the same kind is chosen among several.
        later: Choose a later one instead.

    Raises:
        ResultsError: The argument names none of these, it is damaged, or no run can be chosen.
    """
    path = Path(word)
    if is_baseline(path):
        return Side(word, baseline=read_baseline(path))
    if layout.holds_run(path):
        return Side(path.name or word, run=path)
    if newest(path) is not None:
        run = _chosen(path, like.run if like is not None else None, later)
        return Side(run.name, run=run)
    if path.exists():
        raise ResultsError(f"{word} holds neither a run (no {layout.RUN_FILE}) nor a baseline (no baseline.json)")
    revision, colon, place = word.partition(":")
    try:
        return Side(word, baseline=read_revision(revision, place or DEFAULT))
    except ResultsError as error:
        if colon:
            raise
        raise ResultsError(f"{word} is neither a run, a baseline nor a git revision: {error}") from None


def find_sides(before: str | None, after: str | None) -> tuple[Side, Side]:
    """Return the sides that two arguments name, as `find_side` does; a missing one means a run in ``results/``.

    Raises:
        ResultsError: As for `find_side`.
    """
    runs = Path(layout.DEFAULT_PARENT)
    if (before is None or after is None) and newest(runs) is None:
        raise ResultsError(f"there is no run in {runs}/: make one with `{layout.run_command()}`, or name both sides")
    # If both are directories of runs, the later run is chosen first.
    if before is None or (after is not None and newest(Path(before)) is not None and not _is_single(before)):
        second = find_side(after or str(runs))
        return find_side(before or str(runs), second), second
    first = find_side(before)
    return first, find_side(after or str(runs), first, later=True)


def _is_single(word: str) -> bool:
    return is_baseline(Path(word)) or layout.holds_run(Path(word))


def _chosen(parent: Path, like: Path | None, later: bool) -> Path:
    """Return the run in a directory to compare with the run `like`, preferably one of the same kind.

    Raises:
        ResultsError: There is none, or the newest is damaged.
    """
    requests = []
    for directory in sorted(parent.iterdir()):
        if layout.holds_run(directory):
            # Damaged runs are skipped here; an error names one only when it is asked for.
            with suppress(ResultsError):
                requests.append(requested(directory))
    if like is None:
        chosen = shown_first(requests)
    else:
        known = requested(like)
        if later:
            others = [r for r in requests if r.started > known.started and known.shares_route(r)]
            chosen = shown_first([other for other in others if known.is_same_kind(other)] or others)
        else:
            others = [r for r in requests if r.started < known.started and known.shares_route(r)]
            chosen = last_of_kind(known, others) or shown_first(others)
    if chosen is None:
        which = "" if like is None else f" {'later' if later else 'earlier'} than {like} with its converter and backend"
        raise ResultsError(f"{parent} holds no run{which} that can be read: name both sides")
    return chosen.directory


def compare_as_fits(before: Side, after: Side, waivers: Waivers = NO_WAIVERS) -> Found:
    """Compare case by case if the runs have the same cases, otherwise by cell, as `compare_sides` does."""
    if before.run is not None and after.run is not None:
        diff = compare_runs(before.run, after.run, waivers=waivers)
        new, gone = (diff.counts[k] + diff.unasked[k] for k in (ChangeKind.NEW, ChangeKind.GONE))
        # With another seed, only a few cases of tiny domains coincide, and all others are new or gone.
        if diff.compared and diff.compared >= min(new, gone):
            return diff
    return compare_sides(before, after, waivers)


def compare_sides(before: Side, after: Side, waivers: Waivers = NO_WAIVERS) -> BaselineComparison:
    """Compare two sides by operator, dtype, converter and backend.

    Operators for which a run lacks verdicts are left out, since some of a cell's cases do not represent it.
    """
    progress = [completeness(side.run) if side.run is not None else None for side in (before, after)]
    lacking = {name for part in progress if part is not None for name in part.unfinished}
    was, now = _remove(before.cells, lacking), _remove(after.cells, lacking)
    versions = version_changes(was.versions, now.versions)
    runs = [requested(side.run) for side in (before, after) if side.run is not None]
    options = runs[0].differences(runs[1]) if len(runs) == 2 else {}
    known = [(was.cells[key], now.cells[key]) for key in was.cells.keys() & now.cells.keys()]
    same = sum(a.digest == b.digest for a, b in known)
    # A run of some operators does not concern the others; baselines are complete.
    differences = compare(was, now, whole=before.run is None and after.run is None)
    uses: list[WaiverUse] = []
    if waivers.entries and after.run is not None:
        lenient = _remove(baseline_of_run(after.run, waivers), lacking)
        differences = mark_waived(differences, compare(was, lenient))
        uses = waivers.met_rows(store.read(after.run, WAIVER_COLUMNS, encoded=True))[1]
    shown = [reported(difference, versions) for difference in differences]
    if after.run is not None:
        shown = _add_cases(shown, after.run)
    result = comparison(was, now, shown, same=same, other=len(known) - same)
    return replace(
        result,
        missing=progress[1].summary if progress[1] is not None else "",
        options={**options, **result.options},
        waivers=tuple(uses),
    )


def _add_cases(differences: Sequence[ReportedDifference], run: Path) -> list[ReportedDifference]:
    """Return the differences, those that fail with the plainest case of a run that shows them."""
    wanted = {difference.overload for difference in differences if difference.finding.fails and difference.failure}
    if not wanted:
        return list(differences)
    names = ("overload", "dtype", "converter", "backend", "shape_mode", "outcome", "stage", "signature")
    chosen = pc.field("overload").isin(sorted(wanted)) & pc.field("source").isin(DRAWN_SOURCES)
    rows = store.read(run, [*names, "case_id", "elements"], chosen).to_pylist()
    rows.sort(key=lambda row: (row["elements"], row["case_id"]))

    def case_id(difference: ReportedDifference) -> str:
        where = (difference.overload, difference.converter, difference.backend, difference.shape_mode)
        dtypes = difference.dtype.split(", ")
        for row in rows:
            kind = (row["outcome"], row["stage"], " ".join(row["signature"].split()))
            place = (row["overload"], row["converter"], row["backend"], row["shape_mode"])
            if place == where and row["dtype"] in dtypes and kind == difference.failure:
                return str(row["case_id"])
        return ""

    return [replace(d, case_id=d.case_id or case_id(d)) if d.finding.fails and d.failure else d for d in differences]


def _remove(baseline: Baseline, overloads: Collection[str]) -> Baseline:
    return replace(
        baseline, cells={key: cell for key, cell in baseline.cells.items() if cell.overload not in overloads}
    )
