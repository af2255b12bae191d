"""How many pairs of conditions the recorded cases of an operator have, and what became of them.

Conditions are those of `harness.generate.pairs`: a dtype, a rank, a layout, a flag. A record cannot ask PyTorch
which pairs it takes: any two conditions of two different things count as possible here. "No failure found" says
the more, the more of these pairs some case has that got as far as to be compared: one that failed before says
nothing of the numbers.

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
    """What became of the cases that have a pair; the page knows the numbers."""

    NO_PAIR = 0
    NOT_DRAWN = 1
    FAILED_BEFORE = 2
    PASSED = 3
    SOME_FAIL = 4
    NONE_PASSES = 5


@dataclass(frozen=True)
class SeenPairs:
    """Pairs of conditions that some compared case has, out of the possible ones."""

    seen: int
    possible: int

    @classmethod
    def together(cls, parts: Iterable[SeenPairs]) -> SeenPairs:
        """Of several operators."""
        known = list(parts)
        return cls(sum(one.seen for one in known), sum(one.possible for one in known))

    def __str__(self) -> str:
        """``71% of pairs``; "" where nothing varies."""
        return f"{100 * self.seen // self.possible}% of pairs" if self.possible else ""


@dataclass(frozen=True)
class TriedPairs:
    """The pairs of one operator in a record.

    Attributes:
        names: Of the conditions, those that are about the same beside each other.
        about: Per condition, a number for what it is about.
        tried: Condition × condition, below the diagonal: what became of a pair, as `Tried` counts.
    """

    names: tuple[str, ...]
    about: tuple[int, ...]
    tried: npt.NDArray[np.int8]

    def count(self, *which: Tried) -> int:
        """How many pairs became so."""
        return int(np.isin(self.tried, which).sum())

    @property
    def seen(self) -> SeenPairs:
        """How many of them were compared."""
        compared = self.count(Tried.PASSED, Tried.SOME_FAIL, Tried.NONE_PASSES)
        return SeenPairs(compared, compared + self.count(Tried.NOT_DRAWN, Tried.FAILED_BEFORE))


@dataclass(frozen=True)
class RecordedEnd:
    """How a case ended with one converter and backend.

    Attributes:
        structure: What is the same of cases that differ in the values of tensors; the call where unknown.
        call: The invocation as JSON.
        compared: Whether the backend's results were compared with PyTorch's.
        failed: Whether it is a failure.
        passed: Whether it is a pass.
    """

    structure: str
    call: str
    compared: bool
    failed: bool
    passed: bool


def recorded_ends(columns: Mapping[str, Iterable[str]]) -> Iterable[RecordedEnd]:
    """Rows of a record of one operator, without those that PyTorch rejects.

    Args:
        columns: ``structure_id``, ``invocation``, ``stage``, ``outcome``.
    """
    names = ("structure_id", "invocation", "stage", "outcome")
    for structure, call, stage, outcome in zip(*(columns[name] for name in names), strict=True):
        if outcome != Outcome.SKIP:
            compared = stage == Stage.COMPARE and outcome in _COMPARED
            passed = outcome == Outcome.PASS
            yield RecordedEnd(structure or call, call, compared, outcome in _FAILURES, passed)


def tried_pairs(ends: Iterable[RecordedEnd]) -> TriedPairs:
    """What was tried of one operator."""
    together: dict[str, tuple[str, list[bool]]] = {}
    for end in ends:
        _, marks = together.setdefault(end.structure, (end.call, [True, False, False, False]))
        for place, mark in enumerate((end.compared, end.failed, end.passed), 1):
            marks[place] |= mark
    calls, marked = [], []
    for text, marks in together.values():
        try:
            calls.append(Invocation.from_json(text))
        except InvalidInvocation:
            # It is not a call of an operator, but a whole model.
            continue
        marked.append(marks)
    return _of_table(pair_table(calls), np.array(marked, bool).reshape(-1, 4))


def _of_table(table: PairTable, marked: npt.NDArray[np.bool_]) -> TriedPairs:
    """Out of conditions and, per call, whether it was drawn, compared, fails and passes."""
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
    telling = [place for place in np.argsort(numbers, kind="stable").tolist() if pairs[place].any()]
    return TriedPairs(
        tuple(table.conditions[place].name for place in telling),
        tuple(numbers[place] for place in telling),
        np.tril(tried[np.ix_(telling, telling)], -1),
    )


def _either_way(table: PairTable, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    counts = table.counts(rows)
    return np.asarray((counts + counts.T) > 0, bool)


def read_tried_pairs(run: Path, overloads: Collection[str]) -> dict[str, TriedPairs]:
    """What a run has tried of some operators: overload → pairs.

    Raises:
        ResultsError: the run cannot be read.
    """
    if not overloads:
        return {}
    where = pc.field("overload").isin(list(overloads)) & (pc.field("outcome") != str(Outcome.SKIP))
    names = ("overload", "structure_id", "invocation", "stage", "outcome")
    rows = store.read(run, names, where)
    columns = {name: rows[name].to_pylist() for name in names}
    of: defaultdict[str, list[int]] = defaultdict(list)
    for place, overload in enumerate(columns["overload"]):
        of[overload].append(place)
    return {
        overload: tried_pairs(recorded_ends({name: [columns[name][place] for place in places] for name in names[1:]}))
        for overload, places in of.items()
    }


def read_seen_pairs(run: Path, overloads: Collection[str]) -> dict[str, SeenPairs]:
    """How many pairs the compared cases of some operators have: overload → pairs.

    Raises:
        ResultsError: the run cannot be read.
    """
    return {overload: pairs.seen for overload, pairs in read_tried_pairs(run, overloads).items()}


_COLUMNS = (
    (Tried.PASSED, "passing"),
    (Tried.SOME_FAIL, "some fail"),
    (Tried.NONE_PASSES, "none passes"),
    (Tried.FAILED_BEFORE, "fail before"),
    (Tried.NOT_DRAWN, "not drawn"),
)
#: Conditions without which a condition was drawn that are named.
_NAMED = 4


def tried_report(words: Sequence[str], run: Path | None) -> tuple[str, int]:
    """The text, and the exit status: 4 where there is no such run, or nothing of these operators in it.

    Args:
        words: Operators as a user writes them.
        run: By default the newest in ``results/``.
    """
    chosen = run if run is not None else newest(Path(layout.DEFAULT_PARENT))
    if chosen is None:
        return "there is no run in results/ that has tried anything; name one with --results-dir DIR", 4
    try:
        known = sorted(set(store.read(chosen, ["overload"])["overload"].to_pylist()))
        names = sorted({name for word in words for name in _named(word, known)})
        found = read_tried_pairs(chosen, names)
    except ResultsError as error:
        return str(error), 4
    if not found:
        return f"{chosen} has no case of {', '.join(words)}", 4
    return "\n\n".join("\n".join(_of_operator(name, found[name])) for name in names if name in found), 0


def _named(word: str, known: Sequence[str]) -> list[str]:
    try:
        return match(word, known)
    except UnknownOperator:
        return []


def _of_operator(name: str, pairs: TriedPairs) -> Collection[str]:
    share = pairs.seen
    if not share.possible:
        return [f"{name}: its cases differ in nothing but values"]
    width = max(map(len, pairs.names))
    lines = [
        f"{name}: {share} of conditions compared, {share.seen:,} of {share.possible:,}; of each with others:",
        f"  {'':<{width}}" + "".join(f"{title:>13}" for _, title in _COLUMNS),
    ]
    either = np.maximum(pairs.tried, pairs.tried.T)
    for place, condition in enumerate(pairs.names):
        counts = "".join(f"{int((either[place] == state).sum()) or '':>13}" for state, _ in _COLUMNS)
        lacking = [pairs.names[i] for i in np.flatnonzero(either[place] == Tried.NOT_DRAWN).tolist()]
        more = f", {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
        message = f"  {', '.join(lacking[:_NAMED])}{more}" if lacking else ""
        lines.append(f"  {condition:<{width}}{counts}{message}")
    return lines
