"""The cells of a baseline: the expectation for one operator in one dtype on one route."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from harness.compare.verdict import Outcome, Verdict
from harness.gate.baseline.error_bounds import Ulps

#: Overload, dtype, converter, backend, shape mode.
CellKey: TypeAlias = tuple[str, str, str, str, str]

#: The key in `BaselineCell.other` of cases that ended in two ways.
FLAKY = "flaky"


@dataclass(frozen=True)
class FailingCases:
    """Cases of a cell that fail in the same way.

    Attributes:
        outcome: Their outcome.
        stage: The stage at which they end.
        signature: Their signature.
        cases: The number of cases.
        structures: The number of structures, each of which fails for its own reason.
        codes: The cases' codes, see `count_cells.code_of`; empty if the failure covers all cases of the cell, or in
            baselines of early versions.
    """

    outcome: str
    stage: str
    signature: str
    cases: int
    structures: int
    codes: tuple[str, ...]

    @property
    def kind(self) -> tuple[str, str, str]:
        """Identifies the failure within its cell."""
        return self.outcome, self.stage, self.signature


@dataclass(frozen=True, kw_only=True)
class BaselineCell:
    """The cases of one operator, dtype, converter, backend and shape mode.

    Cases that differ only in tensor values share a structure; in a dynamic export, cases that share an exported case
    do. Structures, not cases, are drawn independently.

    Attributes:
        family: The operator's family.
        cases: The number of cases.
        structures: The number of structures.
        digest: A hash of all case ids, equal for the same cases; "" for merged cells.
        passed: The number of passing cases.
        ulps: Structures with a passing case, by the largest error of their passing cases.
        failing: The number of structures with a failing case.
        failures: The failures.
        other: Outcome → number of cases that neither pass nor fail, including flaky ones.
        rule: The user's conversion functions that took part; "" if there are none.
    """

    overload: str
    dtype: str
    converter: str
    backend: str
    shape_mode: str
    family: str
    cases: int
    structures: int
    digest: str
    passed: int
    ulps: Ulps = ()
    failing: int = 0
    failures: tuple[FailingCases, ...] = ()
    other: tuple[tuple[str, int], ...] = ()
    rule: str = ""

    @property
    def key(self) -> CellKey:
        """Identifies the cell."""
        return self.overload, self.dtype, self.converter, self.backend, self.shape_mode

    @property
    def passing(self) -> int:
        """The number of structures with a passing case."""
        return sum(count for _, count in self.ulps)

    @property
    def failed(self) -> int:
        """The number of failing cases."""
        return sum(failure.cases for failure in self.failures)

    @property
    def flaky(self) -> int:
        """The number of cases that ended in two ways."""
        return dict(self.other).get(FLAKY, 0)


def scope(key: CellKey) -> tuple[str, ...]:
    """Return a cell's key without the dtype: overload, converter, backend, shape mode."""
    return key[0], *key[2:]


def key_of(verdict: Verdict) -> CellKey:
    """Return the key of the cell that a verdict belongs to."""
    return verdict.overload, verdict.dtype, verdict.converter, verdict.backend, verdict.shape_mode


def kind_of(verdict: Verdict) -> tuple[str, str, str] | None:
    """Return `FailingCases.kind` of a verdict; None if it does not fail or its result is left open."""
    if not verdict.outcome.is_failure or verdict.is_open:
        return None
    return str(verdict.outcome), str(verdict.stage), " ".join(verdict.signature.split())


def passes(verdict: Verdict) -> bool:
    """Whether a verdict counts as passing in a baseline."""
    return verdict.outcome is Outcome.PASS or verdict.is_open


def merge_cells(cells: Sequence[BaselineCell]) -> BaselineCell:
    """Merge the cells of one operator over its dtypes."""
    failures: defaultdict[tuple[str, str, str], list[FailingCases]] = defaultdict(list)
    other: Counter[str] = Counter()
    errors: Counter[float] = Counter()
    for cell in cells:
        other.update(dict(cell.other))
        errors.update(dict(cell.ulps))
        for failure in cell.failures:
            failures[failure.kind].append(failure)
    return replace(
        cells[0],
        dtype=", ".join(cell.dtype for cell in cells),
        cases=sum(cell.cases for cell in cells),
        structures=sum(cell.structures for cell in cells),
        digest="",
        passed=sum(cell.passed for cell in cells),
        ulps=tuple(sorted(errors.items())),
        failing=sum(cell.failing for cell in cells),
        failures=tuple(
            FailingCases(*kind, sum(f.cases for f in alike), sum(f.structures for f in alike), ())
            for kind, alike in sorted(failures.items())
        ),
        other=tuple(sorted(other.items())),
        rule=", ".join(sorted({cell.rule for cell in cells} - {""})),
    )
