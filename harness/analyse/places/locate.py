"""The lines of a converter that failures of one kind may come of."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import CodeType

import onnx

from harness.analyse.places.edit import Edit
from harness.analyse.places.neighbours import neighbours, users_of
from harness.analyse.places.observed_case import Bench, ObservedCase
from harness.analyse.places.ranking import rank
from harness.analyse.places.repair import Limits, Search, repairs
from harness.analyse.places.slicing import carried_from, flow_of
from harness.analyse.places.source_code import SourceCode, Statement
from harness.analyse.places.suspect import Suspect
from harness.compare import Outcome, Stage
from harness.core import Invocation

#: Cases that are exported again.
FAILING, PASSING = 3, 5
#: How much speaks for a statement that it is near one where a change repairs all.
_NEAR = 0.2
NOBODY_TOLD = Search()


@dataclass(frozen=True)
class Located:
    """What a failure may come of.

    Attributes:
        suspects: The likeliest first, with their statements.
        repairs: Changes with which all failing cases pass and no passing one fails.
    """

    suspects: tuple[tuple[Statement, Suspect], ...]
    repairs: tuple[Edit, ...] = ()


def locate(
    bench: Bench,
    failing: Sequence[Invocation],
    passing: Sequence[Invocation],
    source: SourceCode,
    limits: Limits | None = None,
    search: Search = NOBODY_TOLD,
    evaluator: Bench | None = None,
) -> Located:
    """Rank the statements that ran when failing cases were exported; none where no case fails here.

    Args:
        bench: Exports and runs.
        failing: Cases of one operator that fail in one way, the one that matters first.
        passing: Cases of the same operator that pass.
        source: Of the converter.
        limits: How many small changes are tried; None for none. A statement at which one repairs all comes
            first.
        search: Who is told of them.
        evaluator: Exports, and runs what the backend of `bench` has no kernel for; None to do without.
    """
    wrong = [case for case in _each(bench.observe, failing[:FAILING]) if not case.passes]
    if not wrong:
        return Located(())
    right = list(_each(bench.lines_of, passing[:PASSING]))
    functions = dict.fromkeys(statement.function for statement, _ in rank(wrong, right, source))
    beside = list(_each(bench.observe, neighbours(wrong, functions, source)))
    right += [case for case in beside if case.passes]
    # What cannot be converted at all is wrong in another way than what gets a wrong graph.
    unconverted = {case.stage is Stage.CONVERT for case in wrong}
    others = [c for c in beside if not c.passes and (c.stage is Stage.CONVERT) in unconverted]
    ranked = rank(wrong, right, source, others)
    if limits is None:
        return Located(tuple(ranked))
    codes = frozenset[CodeType]().union(*(case.codes for case in wrong))
    # Half of an export's time goes into the optimiser.
    plain = replace(bench, converter=bench.plain)
    calls = (
        [*(case.invocation for case in wrong), *_ending(plain, failing[FAILING:], passes=False)],
        # What only the optimiser makes right fails with any change.
        _ending(plain, [*(case.invocation for case in right), *passing[PASSING:]], passes=True),
    )
    statements = [s for s, _ in ranked]

    @cache
    def users(function: str) -> Sequence[Invocation]:
        return _ending(plain, users_of(function, wrong, source), passes=True)

    found = list(
        repairs(statements, *calls, plain, source, codes, limits, _opset(wrong), search, users, bench, evaluator)
    )
    repaired = list(dict.fromkeys(edit.statement for edit in found))
    first = [(s, _with_repair(x, found, s)) for place in repaired for s, x in ranked if s == place]
    # What is computed or decided before, or takes what is computed, may as well be wrong.
    near = {
        s
        for place in repaired
        for s in (*flow_of(place, source), *carried_from(place, source))
        if isinstance(source.node(s), ast.Assign | ast.If | ast.Return)
    }
    rest = [(s, x) for s, x in ranked if s not in repaired]
    rest.sort(key=lambda pair: -pair[1].score - _NEAR * (pair[0] in near))
    return Located((*first, *rest), tuple(found))


def _ending(bench: Bench, calls: Sequence[Invocation], *, passes: bool) -> list[Invocation]:
    """Those that pass, or fail, here."""
    found = []
    for call in calls:
        with contextlib.suppress(RuntimeError, TypeError, ValueError):
            if (bench.outcome(call)[1] is Outcome.PASS) is passes:
                found.append(call)
    return found


def _opset(cases: Sequence[ObservedCase]) -> int:
    """That graphs of some cases have; the newest where none was made."""
    for case in cases:
        for known in case.graph.model.opset_import if case.graph else ():
            if not known.domain:
                return int(known.version)
    return int(onnx.defs.onnx_opset_version())


def _with_repair(suspect: Suspect, found: Sequence[Edit], statement: Statement) -> Suspect:
    rules = " or ".join(edit.rule for edit in found if edit.statement == statement)
    words = f"With a small change here ({rules}) every failing case passes, and no passing case fails."
    return replace(suspect, reason=f"{words} {suspect.reason}", score=1.0)


def _each(look: Callable[[Invocation], ObservedCase], calls: Iterable[Invocation]) -> Iterable[ObservedCase]:
    for call in calls:
        # PyTorch may refuse a case of another version.
        with contextlib.suppress(RuntimeError, TypeError, ValueError):
            yield look(call)
