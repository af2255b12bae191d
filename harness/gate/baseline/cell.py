"""What is expected of one operator in one dtype, with one converter and backend."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from harness.compare import Outcome, Verdict
from harness.gate.baseline.ulps import Ulps

#: overload, dtype, converter, backend, shape mode.
CellKey: TypeAlias = tuple[str, str, str, str, str]

#: What `BaselineCell.other` calls cases that ended in two ways.
FLAKY = "flaky"


@dataclass(frozen=True)
class Failure:
    """Cases of a cell that fail alike.

    Attributes:
        structures: How many that differ in more than values, and fail for reasons of their own.
    """

    outcome: str
    stage: str
    signature: str
    cases: int
    structures: int
    digest: str

    @property
    def kind(self) -> tuple[str, str, str]:
        """What makes two failures the same one."""
        return self.outcome, self.stage, self.signature


@dataclass(frozen=True, kw_only=True)
class BaselineCell:
    """The cases of one operator, dtype, converter, backend and shape mode.

    A structure is what cases share that differ in the values of tensors only; in a dynamic export it is what
    was exported, whatever sizes it was run with. Structures, not cases, are what chance draws one by one.

    Attributes:
        cases: How many were run.
        structures: Of how many structures.
        digest: Of all case ids: equal for the same cases; "" for several cells taken together.
        ulps: The structures with a case that passed, by their largest error among these.
        failing: How many structures have a case that failed.
        other: Outcome → how many cases, of those that are neither a pass nor a failure, flaky ones too.
        rule: The user's conversion functions that took part; "" for none.
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
    failures: tuple[Failure, ...] = ()
    other: tuple[tuple[str, int], ...] = ()
    rule: str = ""

    @property
    def key(self) -> CellKey:
        """What identifies it."""
        return self.overload, self.dtype, self.converter, self.backend, self.shape_mode

    @property
    def passing(self) -> int:
        """How many structures have a case that passed."""
        return sum(count for _, count in self.ulps)

    @property
    def failed(self) -> int:
        """How many cases failed."""
        return sum(failure.cases for failure in self.failures)

    @property
    def flaky(self) -> int:
        """How many cases ended in two ways."""
        return dict(self.other).get(FLAKY, 0)


def scope(key: CellKey) -> tuple[str, ...]:
    """All of a cell's key but the dtype: overload, converter, backend, shape mode."""
    return key[0], *key[2:]


def key_of(verdict: Verdict) -> CellKey:
    """The cell that a verdict belongs to."""
    return verdict.overload, verdict.dtype, verdict.converter, verdict.backend, verdict.shape_mode


def kind_of(verdict: Verdict) -> tuple[str, str, str] | None:
    """`Failure.kind` of a verdict; None for no failure, and for one that the specifications leave open."""
    if not verdict.outcome.is_failure or verdict.is_open:
        return None
    return str(verdict.outcome), str(verdict.stage), " ".join(verdict.signature.split())


def passes(verdict: Verdict) -> bool:
    """Whether a verdict counts as a pass here."""
    return verdict.outcome is Outcome.PASS or verdict.is_open


def together(cells: Sequence[BaselineCell]) -> BaselineCell:
    """One cell of those of one operator that differ in dtype."""
    failures: defaultdict[tuple[str, str, str], list[Failure]] = defaultdict(list)
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
            Failure(*kind, sum(f.cases for f in alike), sum(f.structures for f in alike), "")
            for kind, alike in sorted(failures.items())
        ),
        other=tuple(sorted(other.items())),
        rule=", ".join(sorted({cell.rule for cell in cells} - {""})),
    )
