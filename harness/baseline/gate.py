"""Whether a run is worse than expected.

Where a run has the very cases of the baseline (the same digest of case ids), a cell is compared exactly: any
failure that is not among the expected ones is a regression, and so is one more case of an expected failure.

Where it has others (another seed, a changed strategy), chance decides which triggers are drawn, and a rare
one that was never drawn before is no regression. The cells of an operator are taken together then, and a
difference counts if Fisher's exact test of the numbers of structures gives it a probability below `CHANCE`
(R. A. Fisher, The Logic of Inductive Inference, J. R. Stat. Soc. 98, 1935): an operator that stops exporting
does, a single new mismatch does not; it is told as a new finding.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from harness.baseline.cell import Cell, Failure, together
from harness.baseline.file import Baseline, scope

#: Below this probability a difference between draws is no accident: among a thousand operators with a few
#: kinds of failures each, less than one run in two hundred has one by chance.
CHANCE = 1e-6

#: The largest error among the same cases may grow by this factor; kernels that sum in another order stay
#: well below.
DRIFT = 4.0
#: Other cases have other errors: their median must exceed the largest of the baseline by this factor.
DRIFT_OF_OTHER_CASES = 8.0
#: Errors up to this many ULP are rounding.
ROUNDING = 1.0


class Finding(StrEnum):
    """What differs from the baseline."""

    REGRESSION = "regression"
    NEW_FAILURE = "new failure"
    DRIFT = "error beyond bound"
    FLAKY = "flaky"
    IMPROVEMENT = "improvement"
    NEW_FINDING = "new finding"
    NEW_CELL = "not in the baseline"

    @property
    def fails(self) -> bool:
        """Whether the gate closes for it."""
        return self in (Finding.REGRESSION, Finding.NEW_FAILURE, Finding.DRIFT)


@dataclass(frozen=True)
class Difference:
    """One difference of one cell.

    Attributes:
        finding: What it is.
        cell: As it is now.
        failure: The failure that it is about; None for none.
        message: One line for a person.
    """

    finding: Finding
    cell: Cell
    failure: Failure | None
    message: str


def compare_cells(baseline: Baseline, cells: Iterable[Cell]) -> list[Difference]:
    """How `cells` differ from what the baseline expects of them, in their order."""
    others: defaultdict[tuple[str, ...], list[Cell]] = defaultdict(list)
    found: list[Difference] = []
    for cell in cells:
        expected = baseline.cells.get(cell.key)
        if expected is not None and expected.digest == cell.digest:
            found += _compare(expected, cell)
        else:
            others[scope(cell.key)].append(cell)
    for drawn in others.values():
        known = [baseline.cells[cell.key] for cell in drawn if cell.key in baseline.cells]
        found += _compare(together(known) if known else None, together(drawn))
    return found


def _compare(expected: Cell | None, cell: Cell) -> Iterator[Difference]:
    if expected is None:
        yield Difference(
            Finding.NEW_CELL,
            cell,
            None,
            f"{_name(cell)}: not in the baseline ({cell.passed} of {cell.cases} pass)",
        )
        return
    same = bool(cell.digest)
    before = {failure.kind: failure for failure in expected.failures}
    now = {failure.kind: failure for failure in cell.failures}
    for kind, failure in now.items():
        known = before.get(kind)
        yield from _worse(expected, cell, known, failure, same=same)
    for kind, failure in before.items():
        yield from _better(expected, cell, failure, now.get(kind), same=same)
    yield from _drift(expected, cell, same=same)
    lost = dict(cell.other)
    if same and cell.passed < expected.passed and cell.failed == expected.failed:
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in lost.items())
        yield Difference(
            Finding.REGRESSION,
            cell,
            None,
            f"{_name(cell)}: {expected.passed} passed, now {cell.passed} ({outcomes})",
        )


def _worse(
    expected: Cell, cell: Cell, known: Failure | None, failure: Failure, *, same: bool
) -> Iterator[Difference]:
    was = known.cases if known else 0
    words = (
        f"{_name(cell)}: {_kind(failure)}: {was} of {expected.cases} cases, "
        f"now {failure.cases} of {cell.cases}"
    )
    if same:
        if failure.cases > was:
            # The same case may fail in another way than it did: then it was no pass that was lost.
            finding = Finding.REGRESSION if cell.passed < expected.passed else Finding.NEW_FAILURE
            yield Difference(finding, cell, failure, words)
        elif known is not None and failure.cases == was and failure.digest != known.digest:
            yield Difference(Finding.REGRESSION, cell, failure, f"{words}, but other ones")
        return
    structures = known.structures if known else 0
    if probability(structures, expected.structures, failure.structures, cell.structures) < CHANCE:
        yield Difference(Finding.REGRESSION if was else Finding.NEW_FAILURE, cell, failure, words)
    elif known is None:
        yield Difference(Finding.NEW_FINDING, cell, failure, f"{words}, which other draws may have missed")


def _better(
    expected: Cell, cell: Cell, failure: Failure, left: Failure | None, *, same: bool
) -> Iterator[Difference]:
    cases, structures = (left.cases, left.structures) if left else (0, 0)
    if same:
        gone = cases < failure.cases and cell.passed > expected.passed
    else:
        gone = probability(structures, cell.structures, failure.structures, expected.structures) < CHANCE
    if gone:
        yield Difference(
            Finding.IMPROVEMENT,
            cell,
            failure,
            f"{_name(cell)}: {_kind(failure)}: {failure.cases} of {expected.cases} cases, "
            f"now {cases} of {cell.cases}",
        )


def _drift(expected: Cell, cell: Cell, *, same: bool) -> Iterator[Difference]:
    bound = expected.max_ulp
    measured, factor = (cell.max_ulp, DRIFT) if same else (cell.median_ulp, DRIFT_OF_OTHER_CASES)
    if bound is None or measured is None or not math.isfinite(measured + bound):
        return
    if measured > ROUNDING and measured > factor * max(bound, ROUNDING):
        which = "largest" if same else "median"
        yield Difference(
            Finding.DRIFT,
            cell,
            None,
            f"{_name(cell)}: {which} error {measured:g} ULP, expected at most {factor:g} × {bound:g} ULP",
        )


def probability(few: int, of_few: int, many: int, of_many: int) -> float:
    """One-sided p-value of Fisher's exact test that the second share is no larger than the first.

    Args:
        few: Events in the first sample.
        of_few: Its size.
        many: Events in the second.
        of_many: Its size.
    """
    events, total = few + many, of_few + of_many
    if not of_few or not of_many:
        return 1.0
    least = max(many, events - of_few)
    ways = sum(
        math.comb(of_many, k) * math.comb(of_few, events - k) for k in range(least, min(events, of_many) + 1)
    )
    return ways / math.comb(total, events)


def _name(cell: Cell) -> str:
    mode = "" if cell.shape_mode == "static" else f", {cell.shape_mode}"
    return f"{cell.overload} {cell.dtype}, {cell.converter} → {cell.backend}{mode}"


def _kind(failure: Failure) -> str:
    return f"{failure.outcome} at {failure.stage} ({failure.signature})"
