"""Differences from a baseline as plain data: what crosses processes, and what reports are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.compare import Stage
from harness.gate.baseline.file import DRAWING, Baseline
from harness.gate.baseline.gate import BaselineFinding, CellDifference, Draws, draws
from harness.gate.run_diff import version_changes, why
from harness.record import JSON

_BEFORE_BACKENDS = (Stage.REFERENCE, Stage.CONVERT, Stage.CHECK)


@dataclass(frozen=True, kw_only=True)
class ReportedDifference:
    """One difference from a baseline, as reports show it.

    Attributes:
        what: In words.
        why: What it may come from: a rule, versions; "" where nothing is known to differ.
        case_id: A case of it; "" for none.
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

    @property
    def where(self) -> str:
        """``aten.celu.default float32, dynamo → ort-cpu``."""
        mode = "" if self.shape_mode == "static" else f", {self.shape_mode}"
        return f"{self.overload} {self.dtype}, {self.converter} → {self.backend}{mode}"


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
        options={
            name: (before.options.get(name), now.options.get(name))
            for name in DRAWING
            if before.options.get(name) != now.options.get(name)
        },
        draws=draws(before, now),
        same=same,
        other=other,
        total=len(before.cells),
    )
