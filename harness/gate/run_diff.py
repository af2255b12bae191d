"""What changed between two runs, case by case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.compare.verdict import SPEC, CaseKey
from harness.gate.baseline.file import DRAWING
from harness.gate.case_changes import (
    CHANGES,
    KEY_COLUMNS,
    CaseState,
    ChangeKind,
    Changes,
    EndedCases,
    case_keys,
    compare_cases,
)
from harness.gate.run_request import requested
from harness.record import store
from harness.record.dictionary_encoding import (
    Numbers,
    Vocabulary,
    column_numbers,
    combined_numbers,
    numbered_column,
    ordered_numbers,
)
from harness.record.json_lines import read_flaky
from harness.record.progress import completeness
from harness.record.run_info import read_run_info

#: What is looked at of each row.
COLUMNS = [
    *KEY_COLUMNS,
    *("overload", "shape_mode", "stage", "outcome", "signature", "blame", "message", "max_ulp_error", "rule"),
    *("dtype", "source"),
]
#: What makes a line of a report.
_LINE = ("overload", "converter", "backend", "shape_mode")
_KEY_SCHEMA = pa.schema([(name, pa.string()) for name in KEY_COLUMNS])

#: Every outcome depends on these, beside its converter and its backend.
_COMMON = ("torch", "numpy", "onnx", "onnxscript", "onnx-ir", "harness")


@dataclass(frozen=True)
class CaseChange:
    """One case that both runs have, or one of them.

    Attributes:
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
        options: What the two were asked for that differs: name → (before, after).
        unasked: Cases of one run that the other was not asked for: `NEW` → of the second run, `GONE` → of
            the first. They are not changes, and are not in `counts`.
    """

    counts: Mapping[ChangeKind, int]
    overloads: tuple[OverloadChanges, ...]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    missing: str = ""
    options: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    unasked: Mapping[ChangeKind, int] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        """How many cases both runs have."""
        return sum(n for kind, n in self.counts.items() if kind not in (ChangeKind.NEW, ChangeKind.GONE))

    @property
    def regressed(self) -> bool:
        """Whether something is worse than it was."""
        return any(self.counts[change] for change in ChangeKind if change.is_worse)


def compare_runs(before: Path, after: Path) -> Diff:
    """What changed from the run `before` to the run `after`, by overload, converter, backend and shape mode.

    What a run was to run and did not is not a change, and neither is what it was not asked for. Where each run has one
    converter and one backend, and they are not the same, their cases are compared all the same.
    """
    there = completeness(after)
    lost = {ChangeKind.NEW: completeness(before).unfinished, ChangeKind.GONE: there.unfinished}
    versions = version_changes(read_run_info(before).versions, read_run_info(after).versions)
    tables, ways_differ = _unify_ways([store.read(run, COLUMNS, encoded=True) for run in (before, after)])
    rows, first = pa.concat_tables(tables).unify_dictionaries(), tables[0].num_rows
    changes = _changes(rows, first, read_flaky(before) | read_flaky(after))
    was, now = changes.before, np.where(changes.after < 0, -1, changes.after + first)
    row = np.where(now < 0, was, now)
    kept = np.ones(len(row), dtype=bool)
    for kind, names in lost.items():
        numbers, operators = numbered_column(rows["overload"])
        of_lost = np.isin(operators.to_pylist(), list(names))[numbers]
        kept &= ~(of_lost[row] & (changes.change == CHANGES.index(kind)))
    asked = {ChangeKind.NEW: requested(before), ChangeKind.GONE: requested(after)}
    options = asked[ChangeKind.NEW].differences(asked[ChangeKind.GONE])
    unasked = {}
    for kind, request in asked.items():
        if ways_differ:
            request = replace(request, converters=frozenset(), backends=frozenset())
        # With other draws no single case is asked for.
        asks = np.zeros(rows.num_rows, bool) if options.keys() & set(DRAWING) else request.asks(rows)
        apart = kept & ~asks[row] & (changes.change == CHANGES.index(kind))
        kept &= ~apart
        unasked[kind] = int(apart.sum())
    change, was, now, row = (values[kept] for values in (changes.change, was, now, row))
    line = ordered_numbers([rows[name] for name in _LINE])[row]
    rules = [_rules(rows, line, side) for side in (was, now)]
    cells, firsts, sizes = np.unique(line * len(CHANGES) + change, return_index=True, return_counts=True)
    changed = np.unique(cells[cells % len(CHANGES) != CHANGES.index(ChangeKind.UNCHANGED)] // len(CHANGES))
    shown = np.isin(cells // len(CHANGES), changed)
    decoded = [_rows(rows, side[firsts[shown]]) for side in (was, now)]
    counts: defaultdict[int, dict[ChangeKind, int]] = defaultdict(dict)
    examples: defaultdict[int, dict[ChangeKind, CaseChange]] = defaultdict(dict)
    for cell, size, *sides in zip(cells[shown].tolist(), sizes[shown].tolist(), *decoded, strict=True):
        number, kind = cell // len(CHANGES), CHANGES[cell % len(CHANGES)]
        counts[number][kind] = size
        examples[number][kind] = CaseChange(kind, *sides)
    overloads = []
    for number, theirs in counts.items():
        example = next(iter(examples[number].values())).row
        overload, converter, backend, mode = (example[name] for name in _LINE)
        before_rules, after_rules = (side[number] for side in rules)
        other = None if before_rules == after_rules else (before_rules, after_rules)
        reason = why(versions, converter, backend, other)
        found = OverloadChanges(overload, converter, backend, mode, theirs, examples[number], reason)
        overloads.append(found)
    total = Counter({CHANGES[kind]: int(n) for kind, n in enumerate(np.bincount(change)) if n})
    return Diff(total, tuple(overloads), versions, there.summary, options, unasked)


def _unify_ways(tables: Sequence[pa.Table]) -> tuple[list[pa.Table], bool]:
    """Give two runs a common converter and backend where each has one way only and the two differ.

    The second value says whether that was so.
    """
    names = ["converter", "backend"]
    ways = [table.select(names).unify_dictionaries().group_by(names).aggregate([]).to_pylist() for table in tables]
    if any(len(found) != 1 for found in ways) or ways[0] == ways[1]:
        return list(tables), False
    for name in names:
        both = ", ".join(dict.fromkeys(way[name] for (way,) in ways))
        place, field_of = tables[0].schema.get_field_index(name), tables[0].schema.field(name)
        tables = [
            table.set_column(place, field_of, pa.array([both] * table.num_rows, pa.string()).cast(field_of.type))
            for table in tables
        ]
    return list(tables), True


def _changes(rows: pa.Table, first: int, flaky: Collection[CaseKey]) -> Changes:
    """What became of the cases of two runs, of which the second begins at row `first`."""
    listed = pa.table([[case[n] for case in flaky] for n in range(len(KEY_COLUMNS))], _KEY_SCHEMA)
    keys = rows.select(KEY_COLUMNS)
    key = case_keys(pa.concat_tables([keys, listed.cast(keys.schema)]))
    words, packed = Vocabulary[str](), Vocabulary[tuple[int, ...]]()
    ended = [column_numbers(rows[name], words) for name in ("outcome", "stage", "signature")]
    left_open = (column_numbers(rows["blame"], words) == words.number(SPEC)).astype(np.int64)
    state = combined_numbers([*ended, left_open], packed)
    text = words.words
    states = [CaseState(text[o], text[s], text[f], bool(left)) for o, s, f, left in packed.words]
    ulp = rows["max_ulp_error"].to_numpy().astype(np.float64)
    end = rows.num_rows
    before, after = (EndedCases(key[a:b], state[a:b], ulp[a:b]) for a, b in ((0, first), (first, end)))
    return compare_cases(before, after, states, flaky=key[end:])


def _rules(rows: pa.Table, line: Numbers, side: Numbers) -> defaultdict[int, str]:
    """Line → the user's conversion functions that took part on one side, with commas."""
    numbers, words = numbered_column(rows["rule"])
    named = np.array([bool(word) for word in words.to_pylist()], dtype=bool)
    # Most rows have none.
    with_rule = (side >= 0) & named[numbers[side]]
    pairs = np.unique(np.stack([line[with_rule], numbers[side[with_rule]]]), axis=1).T
    found: defaultdict[int, list[str]] = defaultdict(list)
    for number, rule in pairs.tolist():
        found[number].append(words[rule].as_py())
    return defaultdict(str, {number: ", ".join(sorted(some)) for number, some in found.items()})


def _rows(rows: pa.Table, places: Numbers) -> list[Mapping[str, Any] | None]:
    """The rows at some places; None for −1."""
    there = iter(rows.take(pa.array(places[places >= 0])).to_pylist())
    return [None if place < 0 else next(there) for place in places.tolist()]


def version_changes(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Name → (version before, version now) where they differ, by name; "" for what took no part.

    Nothing where one of the two says nothing of versions at all.
    """
    if not before or not now:
        return {}
    return {
        name: (before.get(name, ""), now.get(name, ""))
        for name in sorted({*before, *now})
        if before.get(name, "") != now.get(name, "")
    }


def why(
    versions: Mapping[str, tuple[str, str]],
    converter: str,
    backend: str,
    rules: tuple[str, str] | None = None,
) -> str:
    """What differs that a change with one converter and backend may come from; "" for nothing known.

    Args:
        backend: Name; "" if none took part.
        rules: The user's conversion functions before and now, where they differ; "" for the converter's own.
    """
    parts = []
    if rules is not None:
        before, now = (rule or "the converter's own" for rule in rules)
        parts.append(f"rule: {before} → {now}")
    both = [name for name, (a, b) in versions.items() if a and b]
    names = [n for n in (*_COMMON, f"converter {converter}", f"backend {backend}") if n in both]
    if names:
        parts.append(f"other versions: {', '.join(names)}")
    return "; ".join(parts)
