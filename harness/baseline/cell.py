"""What is expected of one operator in one dtype, with one converter and backend."""

from __future__ import annotations

import hashlib
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from harness.verdict.verdict import Outcome, Verdict

#: overload, dtype, converter, backend, shape mode.
CellKey: TypeAlias = tuple[str, str, str, str, str]

#: Longer signatures are cut, and told apart by a hash.
_SIGNATURE = 160


@dataclass(frozen=True)
class Failure:
    """Cases of a cell that fail alike.

    Attributes:
        outcome: How.
        stage: Where.
        signature: What they have in common.
        cases: How many.
        structures: How many that differ in more than values, and fail for reasons of their own.
        digest: Of the case ids.
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
class Cell:
    """The cases of one operator, dtype, converter, backend and shape mode.

    Attributes:
        overload: Dotted name; with the next four it identifies the cell.
        dtype: The cases' main dtype.
        converter: Name.
        backend: Name.
        shape_mode: ``static`` or ``dynamic``.
        family: The operator case's.
        cases: How many were run.
        structures: How many of them differ in more than values.
        digest: Of all case ids: equal for the same cases.
        passed: How many passed.
        other: Outcome → how many, of those that are neither a pass nor a failure.
        median_ulp: Over the cases that passed, of their largest errors; None where nothing was measured.
        max_ulp: Likewise the largest.
        failures: By kind.
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
    other: tuple[tuple[str, int], ...] = ()
    median_ulp: float | None = None
    max_ulp: float | None = None
    failures: tuple[Failure, ...] = ()

    @property
    def key(self) -> CellKey:
        """What identifies it."""
        return self.overload, self.dtype, self.converter, self.backend, self.shape_mode

    @property
    def failed(self) -> int:
        """How many cases failed."""
        return sum(failure.cases for failure in self.failures)


def cells_of(verdicts: Iterable[Verdict]) -> list[Cell]:
    """The cells of some verdicts, by key.

    Only drawn cases count: what else a run tries (found failures, captured calls) differs from one
    machine to the next. A failure that the specifications leave open is none.
    """
    members: defaultdict[CellKey, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.source == "generated":
            key = verdict.overload, verdict.dtype, verdict.converter, verdict.backend, verdict.shape_mode
            members[key].append(verdict)
    return [_cell(members[key]) for key in sorted(members)]


def together(cells: Sequence[Cell]) -> Cell:
    """One cell of those of one operator that differ in dtype."""
    failures: defaultdict[tuple[str, str, str], list[Failure]] = defaultdict(list)
    for cell in cells:
        for failure in cell.failures:
            failures[failure.kind].append(failure)
    medians = [cell.median_ulp for cell in cells if cell.median_ulp is not None]
    largest = [cell.max_ulp for cell in cells if cell.max_ulp is not None]
    return replace(
        cells[0],
        dtype=", ".join(cell.dtype for cell in cells),
        cases=sum(cell.cases for cell in cells),
        structures=sum(cell.structures for cell in cells),
        digest="",
        passed=sum(cell.passed for cell in cells),
        other=(),
        median_ulp=max(medians, default=None),
        max_ulp=max(largest, default=None),
        failures=tuple(
            Failure(*kind, sum(f.cases for f in alike), sum(f.structures for f in alike), "")
            for kind, alike in sorted(failures.items())
        ),
    )


def _cell(verdicts: Sequence[Verdict]) -> Cell:
    first = verdicts[0]
    failures: defaultdict[tuple[str, str, str], list[Verdict]] = defaultdict(list)
    other: defaultdict[str, int] = defaultdict(int)
    passed: list[Verdict] = []
    for verdict in verdicts:
        if verdict.outcome is Outcome.PASS or (verdict.outcome.is_failure and verdict.blame == "spec"):
            passed.append(verdict)
        elif verdict.outcome.is_failure:
            signature = _short(verdict.signature)
            failures[str(verdict.outcome), str(verdict.stage), signature].append(verdict)
        else:
            other[str(verdict.outcome)] += 1
    errors = [v.max_ulp_error for v in passed if v.max_ulp_error is not None]
    return Cell(
        overload=first.overload,
        dtype=first.dtype,
        converter=first.converter,
        backend=first.backend,
        shape_mode=first.shape_mode,
        family=first.family,
        cases=len(verdicts),
        structures=_structures(verdicts),
        digest=_digest(verdicts),
        passed=len(passed),
        other=tuple(sorted(other.items())),
        median_ulp=_rounded(statistics.median(errors)) if errors else None,
        max_ulp=_rounded(max(errors)) if errors else None,
        failures=tuple(
            Failure(*kind, len(members), _structures(members), _digest(members))
            for kind, members in sorted(failures.items())
        ),
    )


def _short(signature: str) -> str:
    if len(signature) <= _SIGNATURE:
        return signature
    return f"{signature[:_SIGNATURE]}… #{hashlib.sha256(signature.encode()).hexdigest()[:8]}"


def _structures(verdicts: Iterable[Verdict]) -> int:
    return len({(v.structure_id, v.exported_invocation) for v in verdicts})


def _digest(verdicts: Iterable[Verdict]) -> str:
    names = sorted(f"{v.case_id} {v.exported_invocation}" for v in verdicts)
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:10]


def _rounded(error: float) -> float:
    """Two significant digits, which review can read and no machine's last place changes."""
    return float(f"{error:.2g}")
