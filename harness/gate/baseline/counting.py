"""The rows of a record as cells, counted by columns: a run of half a million rows has seventeen thousand."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.compare import SPEC, CaseKey, Outcome, Verdict
from harness.gate.baseline import ulps
from harness.gate.baseline.cell import FLAKY, BaselineCell, Failure
from harness.gate.case_changes import KEY_COLUMNS
from harness.record import Numbers, numbered_column, ordered_numbers, to_table

#: What makes a cell.
_KEY = ("overload", "dtype", "converter", "backend", "shape_mode")
#: What is looked at of a row.
COLUMNS = (
    *(*_KEY, "family", "source", "case_id", "exported_invocation", "structure_id", "outcome", "stage"),
    *("signature", "blame", "max_ulp_error", "rule"),
)


def cells_of(verdicts: Iterable[Verdict], flaky: Collection[CaseKey] = ()) -> list[BaselineCell]:
    """The cells of some verdicts, as `cells_in` counts them."""
    return cells_in(to_table(verdicts, ""), flaky)


def digest_of(verdicts: Iterable[Verdict]) -> str:
    """A hash of the ids of some cases, in any order."""
    return _digest([f"{v.case_id} {v.exported_invocation}" for v in verdicts])


def _digest(names: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:8]


def cells_in(rows: pa.Table, flaky: Collection[CaseKey] = ()) -> list[BaselineCell]:
    """The cells of a record's rows, by key.

    Only drawn cases count: what else a run tries (found failures, captured calls) differs from one
    machine to the next. A failure that the specifications leave open is none.

    Args:
        rows: With `COLUMNS`, dictionary-encoded or not.
        flaky: Cases that are known to have ended in two ways.
    """
    rows = rows.select(COLUMNS).unify_dictionaries()
    drawn = _holds(rows, "source", lambda word: word == "generated")
    rows = rows if drawn.all() else rows.filter(pa.array(drawn))
    if not rows.num_rows:
        return []
    _, first, cell = np.unique(ordered_numbers([rows[name] for name in _KEY]), return_index=True, return_inverse=True)
    heads = rows.select([*_KEY, "family"]).take(pa.array(first)).to_pylist()
    left_open = _holds(rows, "blame", lambda word: word == SPEC) & _failing(rows)
    passes = _holds(rows, "outcome", lambda word: word == Outcome.PASS) | left_open
    unsteady = _flaky(rows, flaky)
    fails = _failing(rows) & ~passes & ~unsteady
    passes &= ~unsteady
    structure, names = _structures(rows), _names(rows)
    failures = _failures(rows, np.flatnonzero(fails), cell, structure, names)
    other = _counted(np.flatnonzero(~fails & ~passes), cell, _words(rows, "outcome", unsteady))
    rule = _counted(np.arange(len(cell)), cell, _words(rows, "rule"))
    bounds = _bounds(rows, np.flatnonzero(passes), left_open, cell, structure)
    size = len(heads)
    counts = [np.bincount(cell[which], minlength=size).tolist() for which in (slice(None), passes)]
    spread = [_distinct(cell[which], structure[which], size) for which in (slice(None), fails)]
    members = _split(cell, np.arange(len(cell)), size)
    return [
        BaselineCell(
            **head,
            cases=counts[0][n],
            structures=spread[0][n],
            digest=_digest([names[row] for row in members[n]]),
            passed=counts[1][n],
            ulps=tuple(sorted(bounds[n].items())),
            failing=spread[1][n],
            failures=tuple(sorted(failures[n], key=lambda failure: failure.kind)),
            other=tuple(sorted(other[n].items())),
            rule=", ".join(sorted({label for word in rule[n] if word for label in word.split(", ")})),
        )
        for n, head in enumerate(heads)
    ]


def _holds(rows: pa.Table, name: str, holds: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    numbers, words = numbered_column(rows[name])
    return np.array([holds(word) for word in words.to_pylist()], dtype=bool)[numbers]


def _failing(rows: pa.Table) -> npt.NDArray[np.bool_]:
    return _holds(rows, "outcome", lambda word: Outcome(word).is_failure)


def _flaky(rows: pa.Table, flaky: Collection[CaseKey]) -> npt.NDArray[np.bool_]:
    found = np.zeros(rows.num_rows, dtype=bool)
    ids = {case[0] for case in flaky}
    places = np.flatnonzero(_holds(rows, "case_id", ids.__contains__))
    for place, row in zip(places, rows.select(KEY_COLUMNS).take(pa.array(places)).to_pylist(), strict=True):
        found[place] = tuple(row[name] for name in KEY_COLUMNS) in flaky
    return found


def _structures(rows: pa.Table) -> Numbers:
    """Of each row, as numbers: what was exported of a dynamic export, else the structure's id."""
    exported, words = numbered_column(rows["exported_invocation"])
    plain = np.array([not word for word in words.to_pylist()], dtype=bool)[exported]
    return np.where(plain, numbered_column(rows["structure_id"])[0] + len(words), exported)


def _names(rows: pa.Table) -> list[str]:
    """What each case is called in a digest."""
    numbers, words = numbered_column(rows["exported_invocation"])
    ends = [f" {word}" for word in words.to_pylist()]
    return [case + ends[n] for case, n in zip(rows["case_id"].to_pylist(), numbers.tolist(), strict=True)]


def _words(rows: pa.Table, name: str, unsteady: npt.NDArray[np.bool_] | None = None) -> tuple[Numbers, list[str]]:
    numbers, words = numbered_column(rows[name])
    listed = words.to_pylist()
    return (numbers if unsteady is None else np.where(unsteady, len(listed), numbers)), [*listed, FLAKY]


def _counted(places: Numbers, cell: Numbers, coded: tuple[Numbers, list[str]]) -> defaultdict[int, dict[str, int]]:
    """Cell → word → how many of some rows have it."""
    numbers, words = coded
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    pairs, sizes = np.unique(cell[places] * len(words) + numbers[places], return_counts=True)
    for pair, size in zip(pairs.tolist(), sizes.tolist(), strict=True):
        found[pair // len(words)][words[pair % len(words)]] = size
    return found


def _distinct(group: Numbers, values: Numbers, size: int) -> list[int]:
    """How many different values each of so many groups has."""
    most = int(values.max()) + 1 if len(values) else 1
    counts: list[int] = np.bincount(np.unique(group * most + values) // most, minlength=size).tolist()
    return counts


def _split(group: Numbers, values: Numbers, size: int) -> list[list[int]]:
    """The values of each of so many groups."""
    order = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[order], np.arange(1, size))
    return [some.tolist() for some in np.split(values[order], ends)]


def _bounds(
    rows: pa.Table, places: Numbers, left_open: npt.NDArray[np.bool_], cell: Numbers, structure: Numbers
) -> defaultdict[int, dict[float, int]]:
    """Cell → bound in ULP → structures whose largest error among the rows at some places keeps to it."""
    error = np.nan_to_num(rows["max_ulp_error"].to_numpy().astype(np.float64), nan=0.0, posinf=np.inf)
    # How far from PyTorch a result is that is left open says nothing.
    error = np.where(left_open, 0.0, error)[places]
    most = int(structure.max()) + 1
    pairs, which = np.unique(cell[places] * most + structure[places], return_inverse=True)
    largest = np.zeros(len(pairs))
    np.maximum.at(largest, which, error)
    found: defaultdict[int, dict[float, int]] = defaultdict(dict)
    values, which = np.unique(largest, return_inverse=True)
    limits = np.array([ulps.bound(value) for value in values.tolist()])
    for number, limit in zip((pairs // most).tolist(), limits[which].tolist(), strict=True):
        found[number][limit] = found[number].get(limit, 0) + 1
    return found


def _failures(
    rows: pa.Table, places: Numbers, cell: Numbers, structure: Numbers, names: list[str]
) -> defaultdict[int, list[Failure]]:
    """Cell → what fails alike among the rows at some places."""
    found: defaultdict[int, list[Failure]] = defaultdict(list)
    if not len(places):
        return found
    (outcome, outcomes), (stage, stages), (text, texts) = (
        _words(rows, name) for name in ("outcome", "stage", "signature")
    )
    plain: dict[str, int] = {}
    of_text = np.array([plain.setdefault(" ".join(word.split()), len(plain)) for word in texts])
    words, packed = list(plain), cell[places]
    for numbers, count in ((outcome, len(outcomes)), (stage, len(stages)), (of_text[text], len(words))):
        packed = packed * count + numbers[places]
    kinds, first, which = np.unique(packed, return_index=True, return_inverse=True)
    spread = _distinct(which, structure[places], len(kinds))
    for one, some in enumerate(_split(which, places, len(kinds))):
        row = places[first[one]]
        kind = outcomes[outcome[row]], stages[stage[row]], words[of_text[text[row]]]
        digest = _digest([names[n] for n in some])
        found[int(cell[row])].append(Failure(*kind, len(some), spread[one], digest))
    return found
