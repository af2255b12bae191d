"""Two sides compared with each other: what `conformance diff` takes for them, and what reports say.

The differences from a baseline are plain data here, which crosses processes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from harness.compare.verdict import Stage
from harness.core.route import route_label
from harness.gate.baseline.file import DEFAULT, Baseline, is_baseline, of_run, read_baseline, read_revision
from harness.gate.baseline.gate import BaselineFinding, CellDifference, Draws, compare, draws, other_options
from harness.gate.case_changes import ChangeKind
from harness.gate.run_diff import Diff, compare_runs, version_changes, why
from harness.gate.run_request import last_alike, requested, shown_first
from harness.record import layout
from harness.record.layout import ResultsError
from harness.record.progress import completeness
from harness.record.run_info import JSON, newest

_BEFORE_BACKENDS = (Stage.REFERENCE, Stage.CONVERT, Stage.CHECK)


@dataclass(frozen=True, kw_only=True)
class ReportedDifference:
    """One difference from a baseline, as reports show it.

    Attributes:
        what: In words.
        why: What it may come from: a rule, versions; "" where nothing is known to differ.
        case_id: A case of it; "" for none.
        failure: What fails, as `harness.gate.baseline.cells.Failure.kind`; empty where that is nothing.
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
        """``aten.celu.default float32, dynamo → ort-cpu``."""
        return f"{self.overload} {self.dtype}, {route_label(self.converter, self.backend, self.shape_mode)}"


def reported(difference: CellDifference, versions: Mapping[str, tuple[str, str]]) -> ReportedDifference:
    """A difference, with what it may come from among `harness.gate.run_diff.version_changes`."""
    cell = difference.cell
    # What has no valid model fails for every backend.
    early = difference.failure is not None and difference.failure.stage in _BEFORE_BACKENDS
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
    """All that a report says of two sides.

    Attributes:
        differences: What is not as expected.
        versions: Name → (before, now) where they differ; "" for what took no part.
        options: The same of the options that decide which cases are drawn; None for what was not given.
        draws: How the cases of the two sides came about.
        same: How many cells were compared case by case.
        other: How many by what chance allows.
        total: How many the baseline has.
        missing: What the second side was to run and did not, in one line: nothing is known of that.
    """

    differences: Sequence[ReportedDifference]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    options: Mapping[str, tuple[JSON, JSON]] = field(default_factory=dict)
    draws: Draws = Draws.SAME
    same: int = 0
    other: int = 0
    total: int = 0
    missing: str = ""

    @property
    def counts(self) -> dict[BaselineFinding, int]:
        """Finding → how many differences, those that there are, worst first."""
        counts = {finding: sum(d.finding is finding for d in self.differences) for finding in BaselineFinding}
        return {finding: count for finding, count in counts.items() if count}

    @property
    def compared(self) -> int:
        """How many cells both sides have."""
        return self.same + self.other

    @property
    def worse(self) -> int:
        """How many differences close the gate."""
        return sum(count for finding, count in self.counts.items() if finding.fails)


def comparison(
    before: Baseline, now: Baseline, differences: Sequence[ReportedDifference], *, same: int, other: int
) -> BaselineComparison:
    """What there is to say of what was expected and what was found, whose cells are not looked at."""
    return BaselineComparison(
        differences=differences,
        versions=version_changes(before.versions, now.versions),
        options=other_options(before, now),
        draws=draws(before, now),
        same=same,
        other=other,
        total=len(before.cells),
    )


#: Said where the two sides have nothing in common.
NOTHING_COMPARED = "nothing was compared: no operator, dtype, converter and backend is complete on both sides"

#: What differs, case by case or by operator, dtype, converter and backend.
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
        return of_run(self.run)


def find_side(word: str, like: Side | None = None, *, later: bool = False) -> Side:
    """What a word stands for.

    Args:
        word: A directory with a run, a baseline, or runs, of which one is chosen; ``REVISION:PATH``, a
            baseline in a git revision; or ``REVISION``, the one at ``golden/baseline`` there.
        like: The other side. If it is a run, the newest earlier run of the same kind is chosen among runs.
        later: Whether a later one is wanted instead.

    Raises:
        ResultsError: it is nothing of these, or is damaged, or no run can be chosen.
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
    """What the words for two sides stand for, as in `find_side`; a run in ``results/`` for a missing one.

    Raises:
        ResultsError: see `find_side`.
    """
    runs = Path(layout.DEFAULT_PARENT)
    if (before is None or after is None) and newest(runs) is None:
        raise ResultsError(f"there is no run in {runs}/: make one with `{layout.run_command()}`, or name both sides")
    # Where both are directories of runs, the one for the later run is chosen first.
    if before is None or (after is not None and newest(Path(before)) is not None and not _is_one(before)):
        second = find_side(after or str(runs))
        return find_side(before or str(runs), second), second
    first = find_side(before)
    return first, find_side(after or str(runs), first, later=True)


def _is_one(word: str) -> bool:
    return is_baseline(Path(word)) or layout.holds_run(Path(word))


def _chosen(parent: Path, like: Path | None, later: bool) -> Path:
    """The run in a directory of runs to compare with the run `like`: of the same kind, if there is one.

    Raises:
        ResultsError: there is none, or the newest is damaged.
    """
    requests = []
    for directory in sorted(parent.iterdir()):
        if layout.holds_run(directory):
            # A damaged run is named by whoever asks for it; others stay usable.
            with suppress(ResultsError):
                requests.append(requested(directory))
    if like is None:
        found = shown_first(requests)
    else:
        known = requested(like)
        if later:
            others = [r for r in requests if r.started > known.started and known.shares_way(r)]
            found = shown_first([other for other in others if known.fail_alike(other)] or others)
        else:
            others = [r for r in requests if r.started < known.started and known.shares_way(r)]
            found = last_alike(known, others) or shown_first(others)
    if found is None:
        which = "" if like is None else f" {'later' if later else 'earlier'} than {like} with its converter and backend"
        raise ResultsError(f"{parent} holds no run{which} that can be read: name both sides")
    return found.directory


def compare_as_fits(before: Side, after: Side) -> Found:
    """What differs: case by case between runs of the same cases, as `compare_sides` does it otherwise."""
    if before.run is not None and after.run is not None:
        found = compare_runs(before.run, after.run)
        new, gone = (found.counts[k] + found.unasked[k] for k in (ChangeKind.NEW, ChangeKind.GONE))
        # With another seed a few cases of tiny domains are the same, and all others new or gone.
        if found.compared and found.compared >= min(new, gone):
            return found
    return compare_sides(before, after)


def compare_sides(before: Side, after: Side) -> BaselineComparison:
    """What differs between two sides, by operator, dtype, converter and backend.

    An operator of which a run lacks verdicts is left out: a part of its cases tells nothing of its cells.
    """
    there = [completeness(side.run) if side.run is not None else None for side in (before, after)]
    lacking = {name for one in there if one is not None for name in one.unfinished}
    was, now = _without(before.cells, lacking), _without(after.cells, lacking)
    versions = version_changes(was.versions, now.versions)
    runs = [requested(side.run) for side in (before, after) if side.run is not None]
    options = runs[0].differences(runs[1]) if len(runs) == 2 else {}
    known = [(was.cells[key], now.cells[key]) for key in was.cells.keys() & now.cells.keys()]
    same = sum(a.digest == b.digest for a, b in known)
    # A run of one operator says nothing of the others; of two baselines each is whole.
    differences = compare(was, now, whole=before.run is None and after.run is None)
    found = comparison(was, now, [reported(d, versions) for d in differences], same=same, other=len(known) - same)
    return replace(
        found,
        missing=there[1].summary if there[1] is not None else "",
        options={**options, **found.options},
    )


def _without(baseline: Baseline, overloads: Collection[str]) -> Baseline:
    return replace(
        baseline, cells={key: cell for key, cell in baseline.cells.items() if cell.overload not in overloads}
    )
