"""Small changes after which all failing cases pass, and no passing case fails."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TypeAlias

from harness.analyse.places.applied_edit import holders
from harness.analyse.places.composed_edits import Seeds
from harness.analyse.places.edit import Edit
from harness.analyse.places.edit_trial import EditTrial, TriedEdit
from harness.analyse.places.edits import edits, rarer_edits, rarest_edits
from harness.analyse.places.observed_case import Bench
from harness.analyse.places.source_code import SourceCode, Statement
from harness.core import Invocation

#: How much of the time goes by before changes are put together, if single ones last so long.
_SINGLE = 0.6
#: Statements that larger changes are tried of before others are changed at all.
_FIRST = 3
#: Changes with which only some cases pass that are told in the end.
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
    """Where a search for repairs stands, and who is told.

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
    bench: Bench,
    source: SourceCode,
    codes: Collection[CodeType],
    limits: Limits,
    opset: int,
    search: Search,
    users: Callable[[str], Sequence[Invocation]],
    optimising: Bench,
    evaluator: Bench | None = None,
) -> Iterator[Edit]:
    """Changes of the statements, tried in their order, that repair all failing cases and break no other.

    Args:
        optimising: With the converter's optimiser, where `bench` leaves it out.
        evaluator: Runs what the backend has no kernel for; None to do without.
        users: Passing cases of other operators whose conversion calls a function.
        codes: Of the functions that the statements are in.
        opset: That the graphs have.
    """
    search.ranked(len(statements))
    trial = EditTrial.of(failing, passing, bench, optimising, evaluator, source, holders(codes), users)
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
