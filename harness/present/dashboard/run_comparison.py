"""What became of every case from one run to another, on the numbers of `harness.present.dashboard.coded`.

The rules are those of `harness.gate.run_diff`; in the page, `changes.js` applies them to any two runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.compare import Outcome
from harness.gate import DRIFT, MOVED, ROUNDING, ChangeKind
from harness.present.dashboard.coded import CaseState, CodedRun
from harness.present.dashboard.vocabulary import Numbers

#: The place of a change in this list is its number.
CHANGES = tuple(ChangeKind)
_NUMBER = {change: number for number, change in enumerate(CHANGES)}
_NUMERIC = -1


@dataclass(frozen=True)
class Changes:
    """Every case of two runs, those of operators apart that one of the two has lost.

    Attributes:
        change: Numbers of `CHANGES`.
        before: Row in the first run; −1 for a new case.
        after: Row in the second; −1 for one that is gone.
        key: The case's key.
    """

    change: Numbers
    before: Numbers
    after: Numbers
    key: npt.NDArray[np.uint64]


def compare(
    before: CodedRun,
    after: CodedRun,
    states: Sequence[CaseState],
    *,
    flaky: npt.NDArray[np.uint64],
    lost: Numbers,
) -> Changes:
    """Compare two runs case by case.

    Args:
        before: The first.
        after: The second.
        states: What the numbers of their states mean.
        flaky: Keys of cases that are known to end in two ways.
        lost: Operators that one of the runs has lost: of them nothing is said.
    """
    old, new = _order(before, lost), _order(after, lost)
    keys = np.union1d(before.key[old], after.key[new])
    a, b = _found(keys, before.key, old), _found(keys, after.key, new)
    change = np.full(len(keys), _NUMBER[ChangeKind.UNCHANGED], dtype=np.int64)
    change[a < 0], change[b < 0] = _NUMBER[ChangeKind.NEW], _NUMBER[ChangeKind.GONE]
    both = np.flatnonzero((a >= 0) & (b >= 0))
    change[both] = _of_states(before.state[a[both]], after.state[b[both]], states)
    numeric = np.flatnonzero(change == _NUMERIC)
    change[numeric] = _of_errors(before.ulp[a[numeric]], after.ulp[b[numeric]])
    change[both[np.isin(keys[both], flaky)]] = _NUMBER[ChangeKind.FLAKY]
    return Changes(change, a, b, keys)


def _order(run: CodedRun, lost: Numbers) -> Numbers:
    """Rows by key, without those of lost operators."""
    order = np.argsort(run.key, kind="stable")
    return order[~np.isin(run.operator[order], lost)] if len(lost) else order


def _found(keys: npt.NDArray[np.uint64], known: npt.NDArray[np.uint64], order: Numbers) -> Numbers:
    """Rows of `keys` in a run; −1 for none."""
    if not len(order):
        return np.full(len(keys), -1, dtype=np.int64)
    ordered = known[order]
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return np.where(ordered[place] == keys, order[place], -1)


def _of_states(before: Numbers, after: Numbers, states: Sequence[CaseState]) -> Numbers:
    packed = before * len(states) + after
    pairs, inverse = np.unique(packed, return_inverse=True)
    told = [_of_pair(states[pair // len(states)], states[pair % len(states)]) for pair in pairs.tolist()]
    return np.array(told, dtype=np.int64)[inverse] if told else np.zeros(0, dtype=np.int64)


def _of_pair(before: CaseState, after: CaseState) -> int:
    if before.fails != after.fails:
        return _NUMBER[ChangeKind.REGRESSED if after.fails else ChangeKind.IMPROVED]
    if after.fails:
        same = all(
            getattr(before, name) == getattr(after, name) for name in ("outcome", "stage", "signature")
        )
        return _NUMBER[ChangeKind.UNCHANGED if same else ChangeKind.FAILS_OTHERWISE]
    if any(Outcome(state.outcome).is_failure for state in (before, after)):
        return _NUMBER[ChangeKind.UNCHANGED]
    if before.outcome != after.outcome:
        return _NUMBER[ChangeKind.REGRESSED if before.outcome == Outcome.PASS else ChangeKind.IMPROVED]
    return _NUMERIC


def _of_errors(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> Numbers:
    low, high = np.minimum(before, after), np.maximum(before, after)
    with np.errstate(invalid="ignore"):
        moved = np.isfinite(low + high) & (high > ROUNDING) & (high > MOVED * low)
        drifted = moved & (after > DRIFT * np.maximum(before, ROUNDING))
    change = np.where(moved, _NUMBER[ChangeKind.MOVED], _NUMBER[ChangeKind.UNCHANGED])
    return np.where(drifted, _NUMBER[ChangeKind.DRIFTED], change)
