"""What changed between two runs, case by case."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from harness.record import store
from harness.record.run_info import read_run_info
from harness.verdict.verdict import Outcome

#: What is looked at of each row.
COLUMNS = [
    "case_id",
    "exported_invocation",
    "converter",
    "backend",
    "overload",
    "family",
    "dtype",
    "shape_mode",
    "stage",
    "outcome",
    "signature",
    "message",
    "max_ulp_error",
    "rule",
]

#: How much larger or smaller the largest error of a passing case must be to have moved; smaller changes come
#: with another order of the same operations.
MOVED = 2.0
#: Errors below this many ULP are rounding, whatever their ratio.
ROUNDING = 1.0

Key: TypeAlias = tuple[str, str, str, str]


class Change(StrEnum):
    """What became of one case."""

    REGRESSED = "regressed"
    FAILS_OTHERWISE = "fails otherwise"
    MOVED = "numerics moved"
    IMPROVED = "improved"
    NEW = "new"
    GONE = "gone"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class CaseChange:
    """One case that both runs have, or one of them.

    Attributes:
        change: What became of it.
        before: Its row in the first run; None for a new one.
        after: Its row in the second; None for one that is gone.
    """

    change: Change
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def row(self) -> Mapping[str, Any]:
        """The row that there is; the second run's where both are."""
        row = self.after if self.after is not None else self.before
        assert row is not None
        return row


@dataclass(frozen=True)
class OverloadChanges:
    """The changes of one overload with one converter and backend.

    Attributes:
        overload: Dotted name; with the next three it identifies the line.
        converter: Name.
        backend: Name.
        shape_mode: ``static`` or ``dynamic``.
        counts: Change → cases.
        examples: Change → a case of it, the first by case id.
    """

    overload: str
    converter: str
    backend: str
    shape_mode: str
    counts: Mapping[Change, int]
    examples: Mapping[Change, CaseChange]


@dataclass(frozen=True)
class Diff:
    """What changed from one run to another.

    Attributes:
        counts: Change → cases, over all.
        overloads: Those with a change, in the order of their names.
        versions: Name → (version before, version after) where they differ; "" for one that took no part.
    """

    counts: Mapping[Change, int]
    overloads: tuple[OverloadChanges, ...]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def regressed(self) -> bool:
        """Whether a case that passed fails, or fails in a way of its own."""
        return self.counts[Change.REGRESSED] > 0


def compare_runs(before: Path, after: Path) -> Diff:
    """What changed from the run `before` to the run `after`.

    Raises:
        ResultsError: one of them cannot be read.
    """
    old, new = read_run_info(before).versions, read_run_info(after).versions
    versions = {
        name: (old.get(name, ""), new.get(name, ""))
        for name in sorted({*old, *new})
        if old.get(name, "") != new.get(name, "")
    }
    return diff(case_changes(store.read(before, COLUMNS), store.read(after, COLUMNS)), versions)


def case_changes(before: pa.Table, after: pa.Table) -> Iterator[CaseChange]:
    """Every case of either table of `COLUMNS`, with what became of it."""
    old, new = _by_key(before), _by_key(after)
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        yield CaseChange(_change(a, b), a, b)


def diff(changes: Iterable[CaseChange], versions: Mapping[str, tuple[str, str]] | None = None) -> Diff:
    """Count changes by overload, converter, backend and shape mode."""
    total: Counter[Change] = Counter()
    counts: defaultdict[tuple[str, str, str, str], Counter[Change]] = defaultdict(Counter)
    examples: defaultdict[tuple[str, str, str, str], dict[Change, CaseChange]] = defaultdict(dict)
    for change in changes:
        row = change.row
        line = row["overload"], row["converter"], row["backend"], row["shape_mode"]
        total[change.change] += 1
        counts[line][change.change] += 1
        examples[line].setdefault(change.change, change)
    return Diff(
        counts=total,
        overloads=tuple(
            OverloadChanges(*line, counts[line], examples[line])
            for line in sorted(counts)
            if set(counts[line]) != {Change.UNCHANGED}
        ),
        versions=versions or {},
    )


def _by_key(table: pa.Table) -> dict[Key, Mapping[str, Any]]:
    rows: dict[Key, Mapping[str, Any]] = {}
    for batch in table.select(COLUMNS).to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            rows[row["case_id"], row["exported_invocation"], row["converter"], row["backend"]] = row
    return rows


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Change:
    if before is None or after is None:
        return Change.NEW if before is None else Change.GONE
    failed, fails = (Outcome(row["outcome"]).is_failure for row in (before, after))
    if failed != fails:
        return Change.REGRESSED if fails else Change.IMPROVED
    if fails:
        same = all(before[name] == after[name] for name in ("outcome", "stage", "signature"))
        return Change.UNCHANGED if same else Change.FAILS_OTHERWISE
    if before["outcome"] != after["outcome"]:
        # A pass that has become a mere `built` or `narrowed` says less than it did.
        return Change.REGRESSED if before["outcome"] == Outcome.PASS else Change.IMPROVED
    return Change.MOVED if _moved(before["max_ulp_error"], after["max_ulp_error"]) else Change.UNCHANGED


def _moved(before: float | None, after: float | None) -> bool:
    if before is None or after is None or not math.isfinite(before + after):
        return False
    low, high = sorted((before, after))
    return high > ROUNDING and high > MOVED * low
