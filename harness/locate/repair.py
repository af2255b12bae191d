"""Changes, alone or up to three at once, after which all failing cases pass.

Two or three changes at once, where one of them does not repair all.

A change is worth another one if with it some of the failing cases pass, or get further, and no passing case
fails.

Small changes after which all failing cases pass, and no passing case fails.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TypeAlias

from harness.core.invocation import Invocation
from harness.locate.edit_trial import EditTrial, TriedEdit, holders
from harness.locate.edits import Edit, edits, rarer_edits, rarest_edits
from harness.locate.observed_case import GraphRunner
from harness.locate.source_code import SourceCode, Statement

#: Changes that others are added to.
_SEEDS = 6
#: Changes at once.
_MOST = 3


class Seeds:
    """The changes that do something for the failing cases, and harm no passing one."""

    def __init__(self) -> None:
        self._tried: list[TriedEdit] = []

    def add(self, tried: TriedEdit) -> None:
        """Take a change into account."""
        if not tried.breaks and (tried.passed or tried.further or tried.changed):
            self._tried.append(tried)

    def partial(self) -> list[Edit]:
        """Those with which some cases pass: of each number of cases the first that was tried."""
        best: dict[frozenset[int], Edit] = {}
        for tried in sorted(self._tried, key=lambda one: (-len(one.passed), len(one.edit.changes))):
            if tried.passed:
                best.setdefault(tried.passed, tried.edit)
        return list(best.values())

    def composed(self, others: Sequence[Edit]) -> Iterator[Edit]:
        """Pairs of a change that does something and another one, those of two that do something first; then
        what is added to the pairs that do more than both.

        Args:
            others: Changes that were tried alone.
        """
        singles = [one.edit for one in sorted(self._tried, key=_worth)]
        every = list({id(edit): edit for edit in (*singles, *others)}.values())
        for parts in range(1, _MOST):
            chosen = _best([one for one in self._tried if one.edit.parts == parts])
            for other in every:
                for seed in chosen:
                    if _goes_with(seed.edit, other):
                        yield seed.edit.and_then(other)


def _best(tried: Sequence[TriedEdit]) -> list[TriedEdit]:
    """The likeliest to repair all with one more; of those that do the same for the same cases only two."""
    chosen: list[TriedEdit] = []
    for one in sorted(tried, key=_worth):
        alike = [c for c in chosen if (c.passed, c.further) == (one.passed, one.further)]
        if len(alike) < 2 and len(chosen) < _SEEDS:
            chosen.append(one)
    return chosen


def _worth(one: TriedEdit) -> tuple[int, int]:
    return -len(one.passed), -len(one.further)


def _goes_with(edit: Edit, other: Edit) -> bool:
    """Whether both can be done to one function."""
    here, there = edit.statement, other.statement
    same = (here.file, here.function) == (there.file, there.function)
    return same and edit is not other and not (edit.begin and other.begin)


#: How much of the time goes by before changes are put together, if single ones last so long.
_SINGLE = 0.6
#: Statements that larger changes are tried of before others are changed at all.
_FIRST = 3
#: How many partial repairs to report.
_PARTIAL = 3

_Kind: TypeAlias = Callable[[Statement, SourceCode, int], Iterator[Edit]]


@dataclass(frozen=True)
class Limits:
    """How much is tried.

    Attributes:
        tries: Changes.
        seconds: Of processor time, for all of them.
        enough: Repairs after which the search ends.
        statements: How many are changed, the likeliest first; None for all.
        rarer: Whether larger changes are tried once the small ones have been, two or three at once, too, and
            those with which only some of the cases pass are told.
    """

    tries: int = 200
    seconds: float = 20.0
    enough: int = 1
    statements: int | None = None
    rarer: bool = False


def _unheard(said: object) -> None:
    pass


@dataclass(frozen=True)
class Search:
    """Where a search for repairs stands, and who hears of it.

    Attributes:
        skipped: Keys of changes that are not tried: they took a process down, or harm other cases.
        trying: Told the key of each change before it is tried.
        found: Told each repair.
        ranked: Told how many statements may be changed, before the first is.
        partial: Told those with which some cases pass and none newly fails, in the end; the best first.
    """

    skipped: Collection[str] = ()
    trying: Callable[[str], None] = _unheard
    found: Callable[[Edit], None] = _unheard
    ranked: Callable[[int], None] = _unheard
    partial: Callable[[Edit], None] = _unheard


def repairs(
    statements: Sequence[Statement],
    failing: Sequence[Invocation],
    passing: Sequence[Invocation],
    runner: GraphRunner,
    source: SourceCode,
    codes: Collection[CodeType],
    limits: Limits,
    opset: int,
    search: Search,
    users: Callable[[str], Sequence[Invocation]],
    optimising: GraphRunner,
    evaluator: GraphRunner | None = None,
) -> Iterator[Edit]:
    """Changes of the statements, tried in their order, that repair all failing cases and break no other.

    Args:
        optimising: With the converter's optimiser, where `runner` leaves it out.
        evaluator: Runs what the backend has no kernel for; None to do without.
        users: Passing cases of other operators whose conversion calls a function.
        codes: Of the functions that the statements are in.
        opset: That the graphs have.
    """
    search.ranked(len(statements))
    trial = EditTrial.of(failing, passing, runner, optimising, evaluator, source, holders(codes), users)
    seeds = Seeds()
    statements = statements[: limits.statements]
    begun, found = time.process_time(), 0

    def tried(some: Iterable[Edit], share: float) -> Iterator[TriedEdit]:
        for number, edit in enumerate(some):
            late = time.process_time() - begun > share * limits.seconds
            if number >= limits.tries or late or found >= limits.enough:
                return
            if edit.key not in search.skipped:
                search.trying(edit.key)
                yield trial.of_edit(edit, thorough=limits.rarer)

    every: list[Edit] = []
    singles = _noted(_candidates(statements, source, opset, limits), every)
    for one in tried(singles, _SINGLE if limits.rarer else 1.0):
        seeds.add(one)
        if one.repairs:
            found += 1
            search.found(one.edit)
            yield one.edit
    if not limits.rarer:
        return
    for _ in singles:
        # There was no time for these alone.
        pass
    for one in tried(seeds.composed(every), 1.0):
        seeds.add(one)
        if one.repairs:
            found += 1
            search.found(one.edit)
            yield one.edit
    if not found:
        for edit in seeds.partial()[:_PARTIAL]:
            search.partial(edit)


def _noted(some: Iterable[Edit], down: list[Edit]) -> Iterator[Edit]:
    for edit in some:
        down.append(edit)
        yield edit


def _candidates(statements: Sequence[Statement], source: SourceCode, opset: int, limits: Limits) -> Iterator[Edit]:
    whole: set[tuple[str, str, bool]] = set()
    for kind, some in _turns(statements) if limits.rarer else [(edits, statements)]:
        for statement in some:
            for edit in kind(statement, source, opset):
                if edit.begin and not any(change.statement == statement for change in edit.changes):
                    # The same of each statement of a function.
                    what = statement.function, "".join(map(ast.dump, edit.begin)), bool(edit.changes)
                    if what in whole:
                        continue
                    whole.add(what)
                yield edit


def _turns(statements: Sequence[Statement]) -> list[tuple[_Kind, Sequence[Statement]]]:
    """Which kind of changes is tried when, and of which statements."""
    first, others = statements[:_FIRST], statements[_FIRST:]
    return [
        (edits, first),
        (rarer_edits, first),
        (edits, others),
        (rarer_edits, others),
        (rarest_edits, statements),
    ]
