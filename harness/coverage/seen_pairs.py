"""Count the pairs of conditions that recorded cases of an operator cover, by how the cases ended.

Conditions are those of `harness.generate.pairs`: a dtype, a rank, a layout, a flag. PyTorch cannot be asked which pairs
it accepts, so any two conditions about different things count as possible. "No failure" is the more convincing the more
pairs occur in cases that were compared; a case that failed earlier proves nothing about the numbers.

`pytest harness --coverage --op NAME` prints what a run has tried, condition by condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import InvalidInvocation, Invocation
from harness.core.overloads import UnknownOperator, match
from harness.generate.pairs.table import PairTable, pair_table
from harness.record import layout, store
from harness.record.layout import ResultsError
from harness.record.run_info import newest

_COMPARED = frozenset((str(Outcome.PASS), str(Outcome.MISMATCH)))
_FAILURES = frozenset(str(outcome) for outcome in Outcome if outcome.is_failure)


class Tried(IntEnum):
    """The ending of the cases with a pair; the page uses the numbers."""

    NO_PAIR = 0
    NOT_DRAWN = 1
    FAILED_BEFORE = 2
    PASSED = 3
    SOME_FAIL = 4
    NONE_PASSES = 5


@dataclass(frozen=True)
class SeenPairs:
    """The number of pairs of conditions in compared cases, and the number of possible pairs."""

    seen: int
    possible: int

    @classmethod
    def together(cls, parts: Iterable[SeenPairs]) -> SeenPairs:
        """Return the sum over several operators."""
        summands = list(parts)
        return cls(sum(pairs.seen for pairs in summands), sum(pairs.possible for pairs in summands))

    def __str__(self) -> str:
        """``71% of pairs``; "" if no pair is possible."""
        return f"{100 * self.seen // self.possible}% of pairs" if self.possible else ""


@dataclass(frozen=True)
class TriedPairs:
    """The pairs of one operator in a record.

    Attributes:
        names: Names of the conditions, grouped by what they are about.
        about: The number of each condition's group.
        tried: Condition × condition, below the diagonal: a `Tried` for each pair.
    """

    names: tuple[str, ...]
    about: tuple[int, ...]
    tried: npt.NDArray[np.int8]

    def count(self, *which: Tried) -> int:
        """Return the number of pairs with one of these results."""
        return int(np.isin(self.tried, which).sum())

    @property
    def seen(self) -> SeenPairs:
        """The number of compared pairs, out of all possible ones."""
        compared = self.count(Tried.PASSED, Tried.SOME_FAIL, Tried.NONE_PASSES)
        return SeenPairs(compared, compared + self.count(Tried.NOT_DRAWN, Tried.FAILED_BEFORE))


@dataclass(frozen=True)
class RecordedEnd:
    """The ending of a case on one route.

    Attributes:
        structure: Id shared by cases that differ only in tensor values; the call if it is not recorded.
        call: The invocation as JSON.
        compared: Whether the backend's results were compared with PyTorch's.
        failed: Whether it failed.
        passed: Whether it passed.
    """

    structure: str
    call: str
    compared: bool
    failed: bool
    passed: bool


def recorded_ends(columns: Mapping[str, Iterable[str]]) -> Iterable[RecordedEnd]:
    """Yield the recorded cases of one operator, without those that PyTorch rejects.

    Args:
        columns: The columns ``structure_id``, ``invocation``, ``stage`` and ``outcome``.
    """
    names = ("structure_id", "invocation", "stage", "outcome")
    for structure, call, stage, outcome in zip(*(columns[name] for name in names), strict=True):
        if outcome != Outcome.SKIP:
            compared = stage == Stage.COMPARE and outcome in _COMPARED
            passed = outcome == Outcome.PASS
            yield RecordedEnd(structure or call, call, compared, outcome in _FAILURES, passed)


def tried_pairs(ends: Iterable[RecordedEnd]) -> TriedPairs:
    """Return the pairs of one operator, given its recorded cases."""
    by_structure: dict[str, tuple[str, list[bool]]] = {}
    for end in ends:
        _, marks = by_structure.setdefault(end.structure, (end.call, [True, False, False, False]))
        for place, mark in enumerate((end.compared, end.failed, end.passed), 1):
            marks[place] |= mark
    calls, marked = [], []
    for text, marks in by_structure.values():
        try:
            calls.append(Invocation.from_json(text))
        except InvalidInvocation:
            # It is a whole model instead of a call.
            continue
        marked.append(marks)
    return _from_marks(pair_table(calls), np.array(marked, bool).reshape(-1, 4))


def _from_marks(table: PairTable, marked: npt.NDArray[np.bool_]) -> TriedPairs:
    """Combine conditions with the marks of each call: drawn, compared, failed, passed."""
    pairs = table.pairs | table.pairs.T
    drawn, compared, failed, passed = (_either_way(table, marks) for marks in marked.T)
    tried = np.full(pairs.shape, Tried.NOT_DRAWN, np.int8)
    tried[drawn] = Tried.FAILED_BEFORE
    tried[compared] = Tried.PASSED
    tried[compared & failed] = Tried.SOME_FAIL
    tried[compared & failed & ~passed] = Tried.NONE_PASSES
    tried[~pairs] = Tried.NO_PAIR
    about = {name: place for place, name in enumerate(dict.fromkeys(c.about for c in table.conditions))}
    numbers = [about[condition.about] for condition in table.conditions]
    paired = [place for place in np.argsort(numbers, kind="stable").tolist() if pairs[place].any()]
    return TriedPairs(
        tuple(table.conditions[place].name for place in paired),
        tuple(numbers[place] for place in paired),
        np.tril(tried[np.ix_(paired, paired)], -1),
    )


def _either_way(table: PairTable, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    counts = table.counts(rows)
    return np.asarray((counts + counts.T) > 0, bool)


def read_tried_pairs(run: Path, overloads: Collection[str]) -> dict[str, TriedPairs]:
    """Return what a run has tried of some operators: overload → pairs.

    Raises:
        ResultsError: The run cannot be read.
    """
    if not overloads:
        return {}
    where = pc.field("overload").isin(list(overloads)) & (pc.field("outcome") != str(Outcome.SKIP))
    names = ("overload", "structure_id", "invocation", "stage", "outcome")
    rows = store.read(run, names, where)
    columns = {name: rows[name].to_pylist() for name in names}
    places_by_overload: defaultdict[str, list[int]] = defaultdict(list)
    for place, overload in enumerate(columns["overload"]):
        places_by_overload[overload].append(place)
    return {
        overload: tried_pairs(recorded_ends({name: [columns[name][place] for place in places] for name in names[1:]}))
        for overload, places in places_by_overload.items()
    }


def read_seen_pairs(run: Path, overloads: Collection[str]) -> dict[str, SeenPairs]:
    """Return how many pairs the compared cases of some operators cover: overload → pairs.

    Raises:
        ResultsError: The run cannot be read.
    """
    return {overload: pairs.seen for overload, pairs in read_tried_pairs(run, overloads).items()}


_COLUMNS = (
    (Tried.PASSED, "passing"),
    (Tried.SOME_FAIL, "some fail"),
    (Tried.NONE_PASSES, "none passes"),
    (Tried.FAILED_BEFORE, "fail before"),
    (Tried.NOT_DRAWN, "not drawn"),
)
#: Number of missing partners that are named for a condition.
_NAMED = 4


def tried_report(words: Sequence[str], run: Path | None) -> tuple[str, int]:
    """Return the text and the exit status, 4 if there is no run or it has no case of these operators.

    Args:
        words: Operators as users write them.
        run: The run; None means the newest in ``results/``.
    """
    chosen = run if run is not None else newest(Path(layout.DEFAULT_PARENT))
    if chosen is None:
        return "there is no run in results/ that has tried anything; name one with --results-dir DIR", 4
    try:
        known = sorted(set(store.read(chosen, ["overload"])["overload"].to_pylist()))
        names = sorted({name for word in words for name in _named(word, known)})
        tried = read_tried_pairs(chosen, names)
    except ResultsError as error:
        return str(error), 4
    if not tried:
        return f"{chosen} has no case of {', '.join(words)}", 4
    return "\n\n".join("\n".join(_lines(name, tried[name])) for name in names if name in tried), 0


def _named(word: str, known: Sequence[str]) -> list[str]:
    try:
        return match(word, known)
    except UnknownOperator:
        return []


def _lines(name: str, pairs: TriedPairs) -> Collection[str]:
    share = pairs.seen
    if not share.possible:
        return [f"{name}: its cases differ only in values"]
    width = max(map(len, pairs.names))
    lines = [
        f"{name}: {share} of conditions compared, {share.seen:,} of {share.possible:,}; for each condition:",
        f"  {'':<{width}}" + "".join(f"{title:>13}" for _, title in _COLUMNS),
    ]
    either = np.maximum(pairs.tried, pairs.tried.T)
    for place, condition in enumerate(pairs.names):
        counts = "".join(f"{int((either[place] == state).sum()) or '':>13}" for state, _ in _COLUMNS)
        lacking = [pairs.names[i] for i in np.flatnonzero(either[place] == Tried.NOT_DRAWN).tolist()]
        remainder = f", {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
        message = f"  {', '.join(lacking[:_NAMED])}{remainder}" if lacking else ""
        lines.append(f"  {condition:<{width}}{counts}{message}")
    return lines
