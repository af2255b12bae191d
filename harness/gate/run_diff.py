"""What changed between two runs, case by case."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.compare import CaseKey, Outcome
from harness.gate.run_causes import version_changes, why
from harness.record import completeness, read_flaky, read_run_info, store

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
    "blame",
    "message",
    "max_ulp_error",
    "rule",
]

#: How much larger or smaller the largest error of a passing case must be to have moved; smaller changes come
#: with another order of the same operations.
MOVED = 2.0
#: Errors below this many ULP are rounding, whatever their ratio.
ROUNDING = 1.0
#: How much larger it must be to be a regression: as much as in a baseline.
DRIFT = 4.0


class ChangeKind(StrEnum):
    """What became of one case; `FLAKY`: it is known to end in two ways."""

    REGRESSED = "regressed"
    FAILS_OTHERWISE = "fails otherwise"
    DRIFTED = "error beyond bound"
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


@dataclass(frozen=True)
class CaseChange:
    """One case that both runs have, or one of them.

    Attributes:
        change: What became of it.
        before: Its row in the first run; None for a new one.
        after: Its row in the second; None for one that is gone.
    """

    change: ChangeKind
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
        why: What the changes may come from: a rule, versions; "" where nothing is known to differ.
    """

    overload: str
    converter: str
    backend: str
    shape_mode: str
    counts: Mapping[ChangeKind, int]
    examples: Mapping[ChangeKind, CaseChange]
    why: str = ""


@dataclass(frozen=True)
class Diff:
    """What changed from one run to another.

    Attributes:
        counts: Change → cases, over all.
        overloads: Those with a change, in the order of their names.
        versions: Name → (version before, version after) where they differ; "" for one that took no part.
        missing: What the second run was to run and did not, in one line: nothing is known of that.
    """

    counts: Mapping[ChangeKind, int]
    overloads: tuple[OverloadChanges, ...]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    missing: str = ""

    @property
    def regressed(self) -> bool:
        """Whether something is worse than it was."""
        return any(self.counts[change] for change in ChangeKind if change.is_worse)


def compare_runs(before: Path, after: Path) -> Diff:
    """What changed from the run `before` to the run `after`.

    What a run was to run and did not is no change.

    Raises:
        ResultsError: one of them cannot be read.
    """
    versions = version_changes(read_run_info(before).versions, read_run_info(after).versions)
    flaky = read_flaky(before) | read_flaky(after)
    there = completeness(after)
    lacking = {ChangeKind.NEW: completeness(before).unfinished, ChangeKind.GONE: there.unfinished}
    changes = (
        change
        for change in case_changes(store.read(before, COLUMNS), store.read(after, COLUMNS), flaky)
        if change.row["overload"] not in lacking.get(change.change, ())
    )
    return replace(diff(changes, versions), missing=there.said)


def case_changes(before: pa.Table, after: pa.Table, flaky: Collection[CaseKey] = ()) -> Iterator[CaseChange]:
    """Every case of either table of `COLUMNS`, with what became of it.

    Args:
        before: Of the first run.
        after: Of the second.
        flaky: Cases that are known to end in two ways.
    """
    old, new = _by_key(before), _by_key(after)
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        change = _change(a, b)
        yield CaseChange(ChangeKind.FLAKY if key in flaky and a and b else change, a, b)


def diff(changes: Iterable[CaseChange], versions: Mapping[str, tuple[str, str]] | None = None) -> Diff:
    """Count changes by overload, converter, backend and shape mode."""
    total: Counter[ChangeKind] = Counter()
    counts: defaultdict[tuple[str, str, str, str], Counter[ChangeKind]] = defaultdict(Counter)
    examples: defaultdict[tuple[str, str, str, str], dict[ChangeKind, CaseChange]] = defaultdict(dict)
    rules: defaultdict[tuple[str, str, str, str], tuple[set[str], set[str]]]
    rules = defaultdict(lambda: (set(), set()))
    for change in changes:
        row = change.row
        line = row["overload"], row["converter"], row["backend"], row["shape_mode"]
        total[change.change] += 1
        counts[line][change.change] += 1
        examples[line].setdefault(change.change, change)
        for side, one in zip(rules[line], (change.before, change.after), strict=True):
            side.update([one["rule"]] if one and one["rule"] else ())
    return Diff(
        counts=total,
        overloads=tuple(
            OverloadChanges(
                *line,
                counts[line],
                examples[line],
                why(versions or {}, line[1], line[2], _rules(*rules[line])),
            )
            for line in sorted(counts)
            if set(counts[line]) != {ChangeKind.UNCHANGED}
        ),
        versions=versions or {},
    )


def _rules(before: set[str], after: set[str]) -> tuple[str, str] | None:
    return None if before == after else (", ".join(sorted(before)), ", ".join(sorted(after)))


def _by_key(table: pa.Table) -> dict[CaseKey, Mapping[str, Any]]:
    rows: dict[CaseKey, Mapping[str, Any]] = {}
    for batch in table.select(COLUMNS).to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            rows[row["case_id"], row["exported_invocation"], row["converter"], row["backend"]] = row
    return rows


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> ChangeKind:
    if before is None or after is None:
        return ChangeKind.NEW if before is None else ChangeKind.GONE
    failed, fails = (_fails(row) for row in (before, after))
    if failed != fails:
        return ChangeKind.REGRESSED if fails else ChangeKind.IMPROVED
    if fails:
        same = all(before[name] == after[name] for name in ("outcome", "stage", "signature"))
        return ChangeKind.UNCHANGED if same else ChangeKind.FAILS_OTHERWISE
    if any(Outcome(row["outcome"]).is_failure for row in (before, after)):
        # What the specification leaves open was or is another answer, and never a worse one.
        return ChangeKind.UNCHANGED
    if before["outcome"] != after["outcome"]:
        # A pass that has become a mere `built` or `narrowed` says less than it did.
        return ChangeKind.REGRESSED if before["outcome"] == Outcome.PASS else ChangeKind.IMPROVED
    return _numerics(before["max_ulp_error"], after["max_ulp_error"])


def _fails(row: Mapping[str, Any]) -> bool:
    return Outcome(row["outcome"]).is_failure and row["blame"] != "spec"


def _numerics(before: float | None, after: float | None) -> ChangeKind:
    if before is None or after is None or not math.isfinite(before + after):
        return ChangeKind.UNCHANGED
    low, high = sorted((before, after))
    if high <= ROUNDING or high <= MOVED * low:
        return ChangeKind.UNCHANGED
    return ChangeKind.DRIFTED if after > DRIFT * max(before, ROUNDING) else ChangeKind.MOVED
