"""A run in a few lines, for the page of a CI job and for a chat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harness.causes import FailureGroup, groups as failures, known_issues, with_ordinary
from harness.compare import SPEC
from harness.core import count
from harness.gate import BaselineComparison, Diff, Found, Side, compare_as_fits, find_side
from harness.present import gate_report as gate, matrix, run_changes as changes, weighted_rates
from harness.present.fallbacks import Fallback, fallbacks
from harness.record import (
    Completeness,
    RunInfo,
    completeness,
    read_located,
    read_minimal,
    read_run_info,
    store,
)


class Standing(StrEnum):
    """The status of an operator in one column; only `WHOLE` is a pass.

    `UNJUDGED`: none of its cases passed and none failed, such as an engine that was built and not run.
    """

    WHOLE = "no failure found"
    PART = "some pass"
    NONE = "none pass"
    UNJUDGED = "not judged"

    @classmethod
    def of(cls, cell: matrix.MatrixCell) -> Standing:
        """The status of the operator of a cell."""
        if not cell.passes:
            return cls.NONE if cell.failures else cls.UNJUDGED
        return cls.WHOLE if cell.passes == cell.total else cls.PART


@dataclass(frozen=True)
class DigestColumn:
    """One converter and backend.

    Attributes:
        operators: Status → operators, without those that are missing.
        passed: Cases, out of the `total` that could have passed.
        ordinary_passed: Those of ordinary use, out of `ordinary_total`.
        weighted: The share of ordinary cases that pass, weighted by use; None where no model calls any.
    """

    converter: str
    backend: str
    operators: Counter[Standing]
    passed: int
    total: int
    ordinary_passed: int
    ordinary_total: int
    weighted: float | None

    @property
    def name(self) -> str:
        """``dynamo → ort-cpu``."""
        return f"{self.converter} → {self.backend}"


@dataclass(frozen=True, kw_only=True)
class Digest:
    """A run in a few lines.

    Attributes:
        there: What it has, and what is missing.
        groups: The distinct failures, worst first, without what a specification leaves open.
        against: The name of what it was compared with; "" for nothing.
        found: The differences; None without a comparison.
        fallbacks: What did not run on the backends' devices.
    """

    info: RunInfo
    there: Completeness
    columns: tuple[DigestColumn, ...]
    groups: tuple[FailureGroup, ...]
    against: str = ""
    found: Found | None = None
    fallbacks: tuple[Fallback, ...] = ()

    @property
    def worse(self) -> int:
        """How much is worse than what it was compared with."""
        if isinstance(self.found, BaselineComparison):
            return self.found.worse
        if isinstance(self.found, Diff):
            return sum(number for change, number in self.found.counts.items() if change.is_worse)
        return 0

    @property
    def red(self) -> bool:
        """Whether something is worse or missing, or there is nothing to compare with."""
        return bool(self.worse) or not self.there.complete or self._apart

    @property
    def _apart(self) -> bool:
        """Whether it has nothing in common with what it was to be compared with."""
        return self.found is not None and not self.found.compared

    @property
    def headline(self) -> str:
        """``red: shard 2/4 is missing; 2 worse than golden/baseline``."""
        parts = [] if self.there.complete else [self.there.said.partition(" (")[0]]
        if self.worse:
            parts.append(f"{self.worse:,} worse than {self.against}")
        elif self._apart:
            parts.append(f"it has nothing in common with {self.against}")
        elif self.against:
            parts.append("nothing else is worse" if parts else "nothing is worse")
        else:
            parts.append(count(len(self.groups), "distinct failure"))
        word = "red" if self.red else "green" if self.against else "not compared"
        return f"{word}: {'; '.join(parts)}"

    @property
    def differences(self) -> str:
        """``2 regression, 1 flaky``; "" where nothing was compared."""
        if isinstance(self.found, BaselineComparison):
            return gate.summary(self.found)
        return changes.summary(self.found) if isinstance(self.found, Diff) else ""


def digest(run: Path, against: str | None = None) -> Digest:
    """Sum up a run, compared with a run, a baseline or a git revision, as `conformance diff` takes it.

    Raises:
        ResultsError: one of them cannot be read.
    """
    there = completeness(run)
    columns = sorted({*matrix.COLUMNS, *weighted_rates.COLUMNS})
    rows = store.read(run, columns, encoded=True, made=with_ordinary).unify_dictionaries()
    weighted = {(one.converter, one.backend): one.ordinary for one in weighted_rates.weighted_rates(rows)}
    groups = failures.failure_groups(
        store.read(run, failures.COLUMNS, failures.FAILED, encoded=True),
        read_minimal(run),
        known_issues.read_known_issues(),
        located=read_located(run),
    )
    own = Side(run.name, run=run)
    side = find_side(against, own) if against is not None else None
    return Digest(
        info=read_run_info(run),
        there=there,
        columns=tuple(_columns(matrix.matrix(rows), weighted, set(there.unfinished))),
        groups=tuple(group for group in groups if group.blame != SPEC),
        against=side.name if side else "",
        found=compare_as_fits(side, own) if side else None,
        fallbacks=tuple(fallbacks(run)),
    )


def _columns(
    counts: matrix.Matrix, weighted: Mapping[matrix.Column, float | None], lacking: Collection[str]
) -> Iterator[DigestColumn]:
    for name in counts.columns:
        rows = [row for row in counts.rows if name in row.cells and row.overload not in lacking]
        cells = [row.cells[name] for row in rows]
        ordinary = [row.ordinary[name] for row in rows if name in row.ordinary]
        yield DigestColumn(
            *name,
            operators=Counter(map(Standing.of, cells)),
            passed=sum(cell.passes for cell in cells),
            total=sum(cell.total for cell in cells),
            ordinary_passed=sum(cell.passes for cell in ordinary),
            ordinary_total=sum(cell.total for cell in ordinary),
            weighted=weighted.get(name),
        )
