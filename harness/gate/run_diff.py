"""Compare two runs case by case, and summarise the changes by operator."""

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
from harness.gate.waivers import COLUMNS as WAIVER_COLUMNS, NO_WAIVERS, Waivers, WaiverUse
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

#: The columns that are read.
COLUMNS = [
    *KEY_COLUMNS,
    *("overload", "shape_mode", "stage", "outcome", "signature", "blame", "message", "max_ulp_error", "rule"),
    *("dtype", "source"),
]
#: The columns that identify a line of a report.
_LINE = ("overload", "converter", "backend", "shape_mode")
_KEY_SCHEMA = pa.schema([(name, pa.string()) for name in KEY_COLUMNS])

#: Versions that every outcome depends on, in addition to the converter's and the backend's.
_COMMON = ("torch", "numpy", "onnx", "onnxscript", "onnx-ir", "harness")


@dataclass(frozen=True)
class CaseChange:
    """The change of one case.

    Attributes:
        change: The kind of change.
        before: Its row in the first run; None for a new case.
        after: Its row in the second run; None for a case that is gone.
    """

    change: ChangeKind
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def row(self) -> Mapping[str, Any]:
        """The row in the second run, or in the first one if the second lacks it."""
        row = self.after if self.after is not None else self.before
        assert row is not None
        return row


@dataclass(frozen=True)
class OverloadChanges:
    """The changes of one overload on one route.

    Attributes:
        counts: Change → number of cases.
        examples: Change → the case with the smallest id.
        why: Possible causes, such as a rule or versions; "" if nothing relevant is known to differ.
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
    """The changes from one run to another.

    Attributes:
        counts: Change → number of cases in all.
        overloads: Overloads with a change, in the order of their names.
        versions: Name → versions before and after, if they differ; "" if it took no part.
        missing: A line on what the second run did not run although it was planned; nothing is known of that.
        options: Requests that differ: name → before and after.
        unasked: Cases of one run that the other was not asked to run: `NEW` → of the second run, `GONE` → of the first.
            They are not changes and not in `counts`.
        waivers: What became of each waiver.
    """

    counts: Mapping[ChangeKind, int]
    overloads: tuple[OverloadChanges, ...]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    missing: str = ""
    options: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    unasked: Mapping[ChangeKind, int] = field(default_factory=dict)
    waivers: tuple[WaiverUse, ...] = ()

    @property
    def compared(self) -> int:
        """The number of cases that both runs have."""
        return sum(n for kind, n in self.counts.items() if kind not in (ChangeKind.NEW, ChangeKind.GONE))

    @property
    def regressed(self) -> bool:
        """Whether any case is worse than before."""
        return any(self.counts[change] for change in ChangeKind if change.is_worse)


def compare_runs(before: Path, after: Path, *, waivers: Waivers = NO_WAIVERS) -> Diff:
    """Compare two runs and summarise the changes by overload, converter, backend and shape mode.

    Cases that a run planned but did not run, or was not asked to run, are not changes. If each run has a single route
    and the two routes differ, their cases are compared anyway.
    """
    progress = completeness(after)
    lost = {ChangeKind.NEW: completeness(before).unfinished, ChangeKind.GONE: progress.unfinished}
    versions = version_changes(read_run_info(before).versions, read_run_info(after).versions)
    columns = COLUMNS if not waivers.entries else list(dict.fromkeys([*COLUMNS, *WAIVER_COLUMNS]))
    tables, routes_differ = _unify_routes([store.read(run, columns, encoded=True) for run in (before, after)])
    rows, first = pa.concat_tables(tables).unify_dictionaries(), tables[0].num_rows
    flaky, uses = read_flaky(before) | read_flaky(after), list[WaiverUse]()
    changes = _changes(rows, first, flaky)
    if waivers.entries:
        excused, uses = waivers.excuse_rows(tables[1])
        lenient = _changes(pa.concat_tables([tables[0], excused]).unify_dictionaries(), first, flaky)
        changes = replace(changes, change=_waived(changes.change, lenient.change))
    was, now = changes.before, np.where(changes.after < 0, -1, changes.after + first)
    row = np.where(now < 0, was, now)
    kept = np.ones(len(row), dtype=bool)
    for kind, names in lost.items():
        numbers, operators = numbered_column(rows["overload"])
        is_lost = np.isin(operators.to_pylist(), list(names))[numbers]
        kept &= ~(is_lost[row] & (changes.change == CHANGES.index(kind)))
    asked = {ChangeKind.NEW: requested(before), ChangeKind.GONE: requested(after)}
    options = asked[ChangeKind.NEW].differences(asked[ChangeKind.GONE])
    unasked = {}
    for kind, request in asked.items():
        if routes_differ:
            request = replace(request, converters=frozenset(), backends=frozenset())
        # With other draws, no individual case was asked for.
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
        overloads.append(OverloadChanges(overload, converter, backend, mode, theirs, examples[number], reason))
    total = Counter({CHANGES[kind]: int(n) for kind, n in enumerate(np.bincount(change)) if n})
    return Diff(total, tuple(overloads), versions, progress.summary, options, unasked, tuple(uses))


def _waived(change: Numbers, lenient: Numbers) -> Numbers:
    """Return the kinds of change, of which those are waived that are no worse where excused cases count as passing."""
    worse = np.array([kind.is_worse for kind in CHANGES])
    waived: Numbers = np.where(worse[change] & ~worse[lenient], CHANGES.index(ChangeKind.WAIVED), change)
    return waived


def _unify_routes(tables: Sequence[pa.Table]) -> tuple[list[pa.Table], bool]:
    """Give two runs a common converter and backend if each has a single route and the routes differ.

    The second value tells whether that was done.
    """
    names = ["converter", "backend"]
    routes = [table.select(names).unify_dictionaries().group_by(names).aggregate([]).to_pylist() for table in tables]
    if any(len(route) != 1 for route in routes) or routes[0] == routes[1]:
        return list(tables), False
    for name in names:
        both = ", ".join(dict.fromkeys(route[name] for (route,) in routes))
        place, field_of = tables[0].schema.get_field_index(name), tables[0].schema.field(name)
        tables = [
            table.set_column(place, field_of, pa.array([both] * table.num_rows, pa.string()).cast(field_of.type))
            for table in tables
        ]
    return list(tables), True


def _changes(rows: pa.Table, first: int, flaky: Collection[CaseKey]) -> Changes:
    """Compare the cases of two runs, of which the second begins at row `first`."""
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
    """Return for each line the user's conversion functions that took part on one side, joined by commas."""
    numbers, words = numbered_column(rows["rule"])
    named = np.array([bool(word) for word in words.to_pylist()], dtype=bool)
    # Most rows have no rule.
    with_rule = (side >= 0) & named[numbers[side]]
    pairs = np.unique(np.stack([line[with_rule], numbers[side[with_rule]]]), axis=1).T
    by_line: defaultdict[int, list[str]] = defaultdict(list)
    for number, rule in pairs.tolist():
        by_line[number].append(words[rule].as_py())
    return defaultdict(str, {number: ", ".join(sorted(rules)) for number, rules in by_line.items()})


def _rows(rows: pa.Table, places: Numbers) -> list[Mapping[str, Any] | None]:
    """Return the rows at some places; None for −1."""
    present = iter(rows.take(pa.array(places[places >= 0])).to_pylist())
    return [None if place < 0 else next(present) for place in places.tolist()]


def version_changes(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the versions that differ: name → before and now, sorted; "" if it took no part.

    Empty if one of the two has no versions at all.
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
    """Return the differences that may have caused a change on one route; "" if none is known.

    Args:
        versions: The versions that differ.
        converter: The converter of the route.
        backend: The backend of the route; "" if none took part.
        rules: The user's conversion functions before and now, if they differ; "" means the converter's own.
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
