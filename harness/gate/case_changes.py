"""What became of every case from one run to another: the comparison that all views of two runs share.

It works on numbers, so that runs of a hundred thousand rows take a second. In the page of the dashboard,
`changes.js` applies the same rules.
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

#: Columns that identify a case: those of `CaseKey`.
KEY_COLUMNS = ("case_id", "exported_invocation", "converter", "backend")

#: How much larger or smaller the largest error of a passing case must be to have moved; smaller changes come
#: with another order of the same operations.
MOVED = 2.0
#: Errors below this many ULP are rounding, whatever their ratio.
ROUNDING = 1.0
#: How much larger it must be to be a regression, here and in a baseline. A power of two: kernels that sum in
#: another order stay well below.
DRIFT = 4.0


class ChangeKind(StrEnum):
    """What became of one case; `FLAKY`: it is known to end in two ways."""

    REGRESSED = "regressed"
    FAILS_OTHERWISE = "fails otherwise"
    DRIFTED = "error above bound"
    MOVED = "numerics moved"
    IMPROVED = "improved"
    NEW = "new"
    GONE = "gone"
    FLAKY = "flaky"
    UNCHANGED = "unchanged"

    @property
    def is_worse(self) -> bool:
        """Whether a regression gate closes for it, as for the same difference from a baseline."""
        return self in (ChangeKind.REGRESSED, ChangeKind.FAILS_OTHERWISE, ChangeKind.DRIFTED)


#: The place of a kind in this list is its number.
CHANGES = tuple(ChangeKind)
_NUMBER = {change: number for number, change in enumerate(CHANGES)}
_BY_ERROR = -1


@dataclass(frozen=True)
class CaseState:
    """How a case ended, as far as two runs are compared by it.

    Attributes:
        open: Whether a specification leaves the result open.
    """

    outcome: str
    stage: str
    signature: str
    open: bool

    @property
    def fails(self) -> bool:
        """Whether it is a failure of a component."""
        return Outcome(self.outcome).is_failure and not self.open


@dataclass(frozen=True)
class EndedCases:
    """How the cases of one run ended, a row per place in each array.

    Attributes:
        key: What identifies a case, the same in both runs; of two rows with one key the last one counts.
        state: Numbers of `CaseState`.
        ulp: Largest error in units in the last place; NaN where none was measured.
    """

    key: npt.NDArray[np.integer]
    state: Numbers
    ulp: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Changes:
    """Every case of two runs, in the order of the keys.

    Attributes:
        change: Numbers of `CHANGES`.
        before: Row in the first run; −1 for a new case.
        after: Row in the second; −1 for one that is gone.
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
        states: What the numbers of their states mean.
        flaky: Keys of cases that are known to end in two ways.
        left_out: Per run, the rows of which nothing is to be said.
    """
    keys, a, b = paired(before.key, after.key, left_out)
    change = np.full(len(keys), _NUMBER[ChangeKind.UNCHANGED], dtype=np.int64)
    change[a < 0], change[b < 0] = _NUMBER[ChangeKind.NEW], _NUMBER[ChangeKind.GONE]
    both = np.flatnonzero((a >= 0) & (b >= 0))
    change[both] = _by_state(before.state[a[both]], after.state[b[both]], states)
    numeric = np.flatnonzero(change == _BY_ERROR)
    change[numeric] = _by_error(before.ulp[a[numeric]], after.ulp[b[numeric]])
    change[both[np.isin(keys[both], flaky)]] = _NUMBER[ChangeKind.FLAKY]
    return Changes(change, a, b)


def paired(
    before: npt.NDArray[np.integer],
    after: npt.NDArray[np.integer],
    left_out: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None,
) -> tuple[npt.NDArray[np.integer], Numbers, Numbers]:
    """The keys of two runs in order, and the row of each in both; −1 where a run lacks it."""
    rows = [np.argsort(keys, kind="stable") for keys in (before, after)]
    if left_out is not None:
        rows = [order[~out[order]] for order, out in zip(rows, left_out, strict=True)]
    # Two sorted pieces are merged by a stable sort; without order, half a second would go by.
    keys = np.sort(np.concatenate([before[rows[0]], after[rows[1]]]), kind="stable")
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    return keys, _found(keys, before, rows[0]), _found(keys, after, rows[1])


def case_keys(rows: pa.Table) -> Numbers:
    """What identifies each row's case, as numbers in the order of the names; needs `KEY_COLUMNS`."""
    return ordered_numbers([rows[name] for name in KEY_COLUMNS])


def _found(keys: npt.NDArray[np.integer], known: npt.NDArray[np.integer], order: Numbers) -> Numbers:
    """Rows of `keys` among the rows `order`, which are sorted by key; −1 for none."""
    if not len(order):
        return np.full(len(keys), -1, dtype=np.int64)
    ordered = known[order]
    place = np.searchsorted(ordered, keys, side="right") - 1
    return np.where(ordered[place] == keys, order[place], -1)


def _by_state(before: Numbers, after: Numbers, states: Sequence[CaseState]) -> Numbers:
    pairs, inverse = np.unique(before * len(states) + after, return_inverse=True)
    found = [_of_pair(states[pair // len(states)], states[pair % len(states)]) for pair in pairs.tolist()]
    return np.array(found, dtype=np.int64)[inverse]


def _of_pair(before: CaseState, after: CaseState) -> int:
    """What became of a case that went from one state to another; `_BY_ERROR` where its error decides."""
    if before.fails != after.fails:
        return _NUMBER[ChangeKind.REGRESSED if after.fails else ChangeKind.IMPROVED]
    if after.fails:
        names = ("outcome", "stage", "signature")
        same = all(getattr(before, name) == getattr(after, name) for name in names)
        return _NUMBER[ChangeKind.UNCHANGED if same else ChangeKind.FAILS_OTHERWISE]
    if any(Outcome(state.outcome).is_failure for state in (before, after)):
        # What the specification leaves open was or is another answer, and never a worse one.
        return _NUMBER[ChangeKind.UNCHANGED]
    if before.outcome != after.outcome:
        # A pass that has become a mere `built` or `narrowed` says less than it did.
        return _NUMBER[ChangeKind.REGRESSED if before.outcome == Outcome.PASS else ChangeKind.IMPROVED]
    return _BY_ERROR


def _by_error(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> Numbers:
    low, high = np.minimum(before, after), np.maximum(before, after)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.isfinite(low + high) & (high > ROUNDING) & (high > MOVED * low)
        drifted = moved & (after > DRIFT * np.maximum(before, ROUNDING))
    change = np.where(moved, _NUMBER[ChangeKind.MOVED], _NUMBER[ChangeKind.UNCHANGED])
    return np.where(drifted, _NUMBER[ChangeKind.DRIFTED], change)
