"""Small changes after which all failing cases pass, and no passing case fails."""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType

from harness.analyse.places.applied_edit import CannotApply, Holders, applied_edit, holders
from harness.analyse.places.edits import Edit, edits, rarer_edits, rarest_edits
from harness.analyse.places.observed_case import Bench
from harness.analyse.places.source_code import SourceCode, Statement
from harness.compare import Outcome, Stage
from harness.core import Invocation

#: Stages at which a graph is refused.
_REFUSING = (Stage.CHECK, Stage.LOAD, Stage.RUN)


@dataclass(frozen=True)
class Limits:
    """How much is tried.

    Attributes:
        tries: Changes.
        seconds: Of processor time, for all of them.
        enough: Repairs after which the search ends.
        statements: How many are changed, the likeliest first; None for all.
        rarer: Whether larger changes are tried once the small ones have been.
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
        skipped: Numbers of changes that are not tried: they took a process down.
        trying: Told the number of each change before it is tried.
        found: Told each repair.
        ranked: Told how many statements may be changed, before the first is.
    """

    skipped: Collection[int] = ()
    trying: Callable[[int], None] = _unheard
    found: Callable[[Edit], None] = _unheard
    ranked: Callable[[int], None] = _unheard


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
) -> Iterator[Edit]:
    """Changes of the statements, tried in their order, that repair all failing cases and break no other.

    Args:
        optimising: With the converter's optimiser, where `bench` leaves it out.
        users: Passing cases of other operators whose conversion calls a function.
        codes: Of the functions that the statements are in.
        opset: That the graphs have.
    """
    search.ranked(len(statements))
    known = holders(codes)
    trial = _Trial(bench, optimising, {call.case_id: bench.outcome(call)[2] for call in failing})
    begun, found = time.process_time(), 0
    for number, edit in enumerate(_candidates(statements[: limits.statements], source, opset, limits)):
        if number >= limits.tries or time.process_time() - begun > limits.seconds or found >= limits.enough:
            return
        if number in search.skipped:
            continue
        search.trying(number)
        if _repairs(edit, failing, passing, trial, source, known, users):
            found += 1
            search.found(edit)
            yield edit


def _candidates(
    statements: Sequence[Statement], source: SourceCode, opset: int, limits: Limits
) -> Iterator[Edit]:
    for kind in (edits, rarer_edits, rarest_edits) if limits.rarer else (edits,):
        for statement in statements:
            yield from kind(statement, source, opset)


@dataclass(frozen=True)
class _Trial:
    """What decides whether a case passes with a change.

    Attributes:
        said: What was said of each failing case without a change.
    """

    bench: Bench
    optimising: Bench
    said: Mapping[str, str]

    def passes(self, call: Invocation) -> bool:
        """Whether a case passes as things are now."""
        stage, outcome, message, _ = self.bench.outcome(call)
        if outcome is Outcome.PASS:
            return True
        # Some graphs are accepted only once the optimiser has been over them. It is asked where the change
        # has made a difference.
        asked = stage in _REFUSING and message != self.said.get(call.case_id, message)
        return asked and self.optimising.outcome(call)[1] is Outcome.PASS


def _repairs(
    edit: Edit,
    failing: Sequence[Invocation],
    passing: Sequence[Invocation],
    trial: _Trial,
    source: SourceCode,
    known: Holders,
    users: Callable[[str], Sequence[Invocation]],
) -> bool:
    changed = edit.function(source)
    if changed is None:
        return False
    with contextlib.suppress(CannotApply):
        if _all_pass(edit, changed, (*failing, *passing), trial, known):
            # What others call may be right for them as it is.
            return _all_pass(edit, changed, users(edit.statement.function), trial, known)
    return False


def _all_pass(
    edit: Edit, changed: ast.FunctionDef, calls: Sequence[Invocation], trial: _Trial, known: Holders
) -> bool:
    with applied_edit(edit.statement.file, changed, known):
        return all(trial.passes(call) for call in calls)
