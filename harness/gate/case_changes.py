"""Compare two runs case by case: the comparison that all views of two runs share.

It works on numbers, so that runs of a hundred thousand rows take a second. On the dashboard's page, `changes.js`
applies the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.compare.verdict import Outcome
from harness.record.dictionary_encoding import Numbers, ordered_numbers

#: The columns that identify a case: those of `CaseKey`.
KEY_COLUMNS = ("case_id", "exported_invocation", "converter", "backend")

#: The factor by which the largest error of a passing case must change to count as moved; smaller changes result from
#: another order of the same operations.
MOVED = 2.0
#: Errors below this many ULP are rounding, whatever their ratio.
ROUNDING = 1.0
#: The factor by which an error must grow to be a regression, here and in a baseline. It is a power of two; kernels that
#: sum in another order stay well below.
DRIFT = 4.0


class ChangeKind(StrEnum):
    """The change of one case; `FLAKY`: it is known to end in two ways; `WAIVED`: it is worse, as a waiver expects."""

    REGRESSED = "regressed"
    FAILS_OTHERWISE = "fails differently"
    DRIFTED = "error above bound"
    MOVED = "numerics moved"
    IMPROVED = "improved"
    NEW = "new"
    GONE = "gone"
    FLAKY = "flaky"
    WAIVED = "waived"
    UNCHANGED = "unchanged"

    @property
    def is_worse(self) -> bool:
        """Whether it fails a regression gate, as the same difference from a baseline does."""
        return self in (ChangeKind.REGRESSED, ChangeKind.FAILS_OTHERWISE, ChangeKind.DRIFTED)


#: All kinds; a kind's index is its number.
CHANGES = tuple(ChangeKind)
_NUMBER = {change: number for number, change in enumerate(CHANGES)}
_BY_ERROR = -1


@dataclass(frozen=True)
class CaseState:
    """The ending of a case, as far as it is compared.

    Attributes:
        outcome: The outcome.
        stage: The stage.
        signature: The signature of a failure.
        left_open: Whether a specification leaves the result undefined.
    """

    outcome: str
    stage: str
    signature: str
    left_open: bool

    @property
    def fails(self) -> bool:
        """Whether it is a failure of a component."""
        return Outcome(self.outcome).is_failure and not self.left_open


@dataclass(frozen=True)
class EndedCases:
    """The endings of all cases of a run, as arrays of equal length.

    Attributes:
        key: Identifies a case in both runs; if two rows have the same key, the last one counts.
        state: Indices of `CaseState`s.
        ulp: The largest error in units in the last place; NaN if it was not measured.
    """

    key: npt.NDArray[np.integer]
    state: Numbers
    ulp: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Changes:
    """The changes of all cases of two runs, in the order of their keys.

    Attributes:
        change: Indices into `CHANGES`.
        before: Row in the first run; −1 for a new case.
        after: Row in the second run; −1 for a case that is gone.
    """

    change: Numbers
    before: Numbers
    after: Numbers


def compare_cases(
    before: EndedCases,
    after: EndedCases,
    states: Sequence[CaseState],
    *,
    flaky: npt.NDArray[np.integer],
    left_out: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None,
) -> Changes:
    """Compare two runs case by case.

    Args:
        before: The first run.
        after: The second run.
        states: The states that both runs' indices refer to.
        flaky: Keys of cases that are known to end in two ways.
        left_out: For each run, a mask of rows to ignore.
    """
    keys, a, b = paired(before.key, after.key, left_out)
    change = np.full(len(keys), _NUMBER[ChangeKind.UNCHANGED], dtype=np.int64)
    change[a < 0], change[b < 0] = _NUMBER[ChangeKind.NEW], _NUMBER[ChangeKind.GONE]
    both = np.flatnonzero((a >= 0) & (b >= 0))
    change[both] = _compare_states(before.state[a[both]], after.state[b[both]], states)
    numeric = np.flatnonzero(change == _BY_ERROR)
    change[numeric] = _compare_errors(before.ulp[a[numeric]], after.ulp[b[numeric]])
    change[both[np.isin(keys[both], flaky)]] = _NUMBER[ChangeKind.FLAKY]
    return Changes(change, a, b)


def paired(
    before: npt.NDArray[np.integer],
    after: npt.NDArray[np.integer],
    left_out: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None,
) -> tuple[npt.NDArray[np.integer], Numbers, Numbers]:
    """Return the keys of two runs in order, and the row of each in both; −1 if a run lacks it."""
    rows = [np.argsort(keys, kind="stable") for keys in (before, after)]
    if left_out is not None:
        rows = [order[~out[order]] for order, out in zip(rows, left_out, strict=True)]
    # A stable sort merges two sorted pieces; on unsorted ones it would take half a second longer.
    keys = np.sort(np.concatenate([before[rows[0]], after[rows[1]]]), kind="stable")
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    return keys, _find_rows(keys, before, rows[0]), _find_rows(keys, after, rows[1])


def case_keys(rows: pa.Table) -> Numbers:
    """Number the cases of rows with `KEY_COLUMNS`, such that the numbers sort as the keys do."""
    return ordered_numbers([rows[name] for name in KEY_COLUMNS])


def _find_rows(keys: npt.NDArray[np.integer], known: npt.NDArray[np.integer], order: Numbers) -> Numbers:
    """Return the row of each key among the rows `order`, which are sorted by key; −1 if there is none."""
    if not len(order):
        return np.full(len(keys), -1, dtype=np.int64)
    ordered = known[order]
    place = np.searchsorted(ordered, keys, side="right") - 1
    return np.where(ordered[place] == keys, order[place], -1)


def _compare_states(before: Numbers, after: Numbers, states: Sequence[CaseState]) -> Numbers:
    pairs, inverse = np.unique(before * len(states) + after, return_inverse=True)
    changes = [_compare_pair(states[pair // len(states)], states[pair % len(states)]) for pair in pairs.tolist()]
    return np.array(changes, dtype=np.int64)[inverse]


def _compare_pair(before: CaseState, after: CaseState) -> int:
    """Return the change of a case from one state to another; `_BY_ERROR` if its error decides."""
    if before.fails != after.fails:
        return _NUMBER[ChangeKind.REGRESSED if after.fails else ChangeKind.IMPROVED]
    if after.fails:
        names = ("outcome", "stage", "signature")
        same = all(getattr(before, name) == getattr(after, name) for name in names)
        return _NUMBER[ChangeKind.UNCHANGED if same else ChangeKind.FAILS_OTHERWISE]
    if any(Outcome(state.outcome).is_failure for state in (before, after)):
        # A result that the specification leaves undefined may change, but not for the worse.
        return _NUMBER[ChangeKind.UNCHANGED]
    if before.outcome != after.outcome:
        # `built` or `narrowed` instead of a pass proves less.
        return _NUMBER[ChangeKind.REGRESSED if before.outcome == Outcome.PASS else ChangeKind.IMPROVED]
    return _BY_ERROR


def _compare_errors(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> Numbers:
    low, high = np.minimum(before, after), np.maximum(before, after)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.isfinite(low + high) & (high > ROUNDING) & (high > MOVED * low)
        drifted = moved & (after > DRIFT * np.maximum(before, ROUNDING))
    change = np.where(moved, _NUMBER[ChangeKind.MOVED], _NUMBER[ChangeKind.UNCHANGED])
    return np.where(drifted, _NUMBER[ChangeKind.DRIFTED], change)
