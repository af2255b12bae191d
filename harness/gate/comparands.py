"""What `conformance diff` compares: runs, baselines and a git revision's baseline, by the words for them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from harness.gate.baseline.difference import BaselineComparison, comparison, reported
from harness.gate.baseline.file import DEFAULT, Baseline, is_baseline, of_run, read_baseline, read_revision
from harness.gate.baseline.gate import compare
from harness.gate.case_changes import ChangeKind
from harness.gate.run_diff import Diff, compare_runs, version_changes
from harness.record import ResultsError, completeness, layout, newest

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


def find_side(word: str) -> Side:
    """What a word stands for.

    Args:
        word: A directory with a run, a baseline, or runs, of which the newest counts; ``REVISION:PATH``, a
            baseline in a git revision; or ``REVISION``, the one at ``golden/baseline`` there.

    Raises:
        ResultsError: it is nothing of these, or is damaged.
    """
    path = Path(word)
    if is_baseline(path):
        return Side(word, baseline=read_baseline(path))
    if layout.holds_run(path):
        return Side(path.name or word, run=path)
    if (run := newest(path)) is not None:
        return Side(run.name, run=run)
    if path.exists():
        raise ResultsError(
            f"{word} holds neither a run (no {layout.RUN_FILE}) nor a baseline (no baseline.json)"
        )
    revision, colon, place = word.partition(":")
    try:
        return Side(word, baseline=read_revision(revision, place or DEFAULT))
    except ResultsError as error:
        if colon:
            raise
        raise ResultsError(f"{word} is neither a run, a baseline nor a git revision: {error}") from None


def compare_as_fits(before: Side, after: Side) -> Found:
    """What differs: case by case between runs of the same cases, as `compare_sides` does it otherwise."""
    if before.run is not None and after.run is not None:
        found = compare_runs(before.run, after.run)
        new, gone = found.counts[ChangeKind.NEW], found.counts[ChangeKind.GONE]
        shared = sum(found.counts.values()) - new - gone
        # With another seed a few cases of tiny domains are the same, and all others new or gone.
        if shared >= min(new, gone):
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
    known = [(was.cells[key], now.cells[key]) for key in was.cells.keys() & now.cells.keys()]
    same = sum(a.digest == b.digest for a, b in known)
    # A run of one operator says nothing of the others; of two baselines each is whole.
    differences = compare(was, now, whole=before.run is None and after.run is None)
    found = comparison(
        was, now, [reported(d, versions) for d in differences], same=same, other=len(known) - same
    )
    return replace(found, missing=there[1].said if there[1] is not None else "")


def _without(baseline: Baseline, overloads: Collection[str]) -> Baseline:
    return replace(
        baseline, cells={key: cell for key, cell in baseline.cells.items() if cell.overload not in overloads}
    )
