"""Changes between two runs, row by row: the comparison on numbers is checked against them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from harness.compare.verdict import Outcome
from harness.gate.case_changes import ChangeKind

Row = Mapping[str, Any]
Key = tuple[str, str, str, str]


def row_changes(before: pa.Table, after: pa.Table, flaky: Collection[Key] = ()) -> dict[Key, ChangeKind]:
    """Every case of either table, by its key and in the order of the keys."""
    old, new = _index_rows(before), _index_rows(after)
    found = {}
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        found[key] = ChangeKind.FLAKY if key in flaky and a and b else _change(a, b)
    return found


def _index_rows(table: pa.Table) -> dict[Key, Row]:
    names = ("case_id", "exported_invocation", "converter", "backend")
    return {tuple(row[name] for name in names): row for row in table.to_pylist()}


def _change(before: Row | None, after: Row | None) -> ChangeKind:
    if before is None or after is None:
        return ChangeKind.NEW if before is None else ChangeKind.GONE
    failed, fails = (Outcome(row["outcome"]).is_failure and row["blame"] != "spec" for row in (before, after))
    if failed != fails:
        return ChangeKind.REGRESSED if fails else ChangeKind.IMPROVED
    if fails:
        same = all(before[name] == after[name] for name in ("outcome", "stage", "signature"))
        return ChangeKind.UNCHANGED if same else ChangeKind.FAILS_OTHERWISE
    if any(Outcome(row["outcome"]).is_failure for row in (before, after)):
        return ChangeKind.UNCHANGED
    if before["outcome"] != after["outcome"]:
        return ChangeKind.REGRESSED if before["outcome"] == Outcome.PASS else ChangeKind.IMPROVED
    old, new = before["max_ulp_error"], after["max_ulp_error"]
    if old is None or new is None or not math.isfinite(old + new):
        return ChangeKind.UNCHANGED
    low, high = sorted((old, new))
    if high <= 1.0 or high <= 2.0 * low:
        return ChangeKind.UNCHANGED
    return ChangeKind.DRIFTED if new > 4.0 * max(old, 1.0) else ChangeKind.MOVED
