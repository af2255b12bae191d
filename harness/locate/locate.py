"""The lines of a converter that may cause failures of one kind.

The lines of the converter that may cause a recorded failure.

Find the lines of a recorded failure in a worker process, since an operator may take it down.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType
from typing import ClassVar

import onnx
import pyarrow.compute as pc

from harness.compare.verdict import CONVERTER, Outcome, Stage, Verdict
from harness.convert.converter import split_opset
from harness.core.invocation import InvalidInvocation, Invocation
from harness.execute.models.model_task import PREFIX
from harness.execute.supervisor import Death, Supervisor
from harness.execute.task import Settings
from harness.execute.worker import WorkerProcess
from harness.locate.edit_trial import neighbours, users_of
from harness.locate.edits import Edit
from harness.locate.observed_case import GraphRunner, ObservedCase
from harness.locate.ranking import rank
from harness.locate.repair import Limits, Search, repairs
from harness.locate.source_code import SourceCode, Statement, carried_from, flow_of
from harness.locate.suspect import Suspect
from harness.record import store

#: Cases that are exported again.
FAILING, PASSING = 3, 5
#: How much speaks for a statement that it is near one where a change repairs all.
_NEAR = 0.2
NOBODY_TOLD = Search()


@dataclass(frozen=True)
class Located:
    """What may cause a failure.

    Attributes:
        suspects: The likeliest first, with their statements.
        repairs: Changes with which all failing cases pass and no passing one fails.
    """

    suspects: tuple[tuple[Statement, Suspect], ...]
    repairs: tuple[Edit, ...] = ()


def locate(
    runner: GraphRunner,
    failing: Sequence[Invocation],
    passing: Sequence[Invocation],
    source: SourceCode,
    limits: Limits | None = None,
    search: Search = NOBODY_TOLD,
    evaluator: GraphRunner | None = None,
) -> Located:
    """Rank the statements that ran when failing cases were exported; none where no case fails here.

    Args:
        runner: Exports and runs.
        failing: Cases of one operator that fail in one way, the one that matters first.
        passing: Cases of the same operator that pass.
        source: Of the converter.
        limits: How many small changes are tried; None for none. A statement at which one repairs all comes
            first.
        search: Hears of them.
        evaluator: Exports, and runs what the backend of `runner` has no kernel for; None to do without.
    """
    wrong = [case for case in _each(runner.observe, failing[:FAILING]) if not case.passes]
    if not wrong:
        return Located(())
    right = list(_each(runner.lines_of, passing[:PASSING]))
    functions = dict.fromkeys(statement.function for statement, _ in rank(wrong, right, source))
    beside = list(_each(runner.observe, neighbours(wrong, functions, source)))
    right += [case for case in beside if case.passes]
    # What cannot be converted at all is wrong in another way than what gets a wrong graph.
    unconverted = {case.stage is Stage.CONVERT for case in wrong}
    others = [c for c in beside if not c.passes and (c.stage is Stage.CONVERT) in unconverted]
    ranked = rank(wrong, right, source, others)
    if limits is None:
        return Located(tuple(ranked))
    codes = frozenset[CodeType]().union(*(case.codes for case in wrong))
    # Half of an export's time goes into the optimiser.
    plain = replace(runner, converter=runner.plain)
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
        repairs(statements, *calls, plain, source, codes, limits, _opset(wrong), search, users, runner, evaluator)
    )
    return _repaired_first(ranked, found, source)


def _repaired_first(ranked: Sequence[tuple[Statement, Suspect]], found: Sequence[Edit], source: SourceCode) -> Located:
    """The statements at which a change repairs come first; then those near them, and those with a high score."""
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


def _ending(runner: GraphRunner, calls: Sequence[Invocation], *, passes: bool) -> list[Invocation]:
    """Those that pass, or fail, here."""
    found = []
    for call in calls:
        with contextlib.suppress(RuntimeError, TypeError, ValueError):
            if (runner.outcome(call)[1] is Outcome.PASS) is passes:
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


#: Cases that are taken from a run, of each kind.
_MOST = 8
#: Seconds for one step.
_TIMEOUT = 120.0


def can_be_placed(verdict: Verdict) -> bool:
    """Whether a verdict is a failure whose lines can be looked for: the converter's, of one call, exported
    with fixed shapes and without rules of the user's."""
    if verdict.rule:
        return False
    static = verdict.shape_mode != "dynamic" and not verdict.overload.startswith(PREFIX)
    return verdict.outcome.is_failure and verdict.blame == CONVERTER and static


def places_of(run: Path, verdict: Verdict, *, opset: int | None, limits: Limits | None = None) -> tuple[Suspect, ...]:
    """The lines that may cause a recorded failure, the likeliest first; none where it is unknown.

    The run's other cases of the operator say which lines run where cases fail, and which where they pass.

    Args:
        opset: That the run emitted; None for the converter's default.
        limits: How many small changes are tried; None for none.

    Raises:
        ResultsError: the run cannot be read.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    return _placed(run, verdict, (verdict.invocation,), opset, limits)


def places_of_case(
    run: Path, case_id: str, converter: str, backend: str, invocation: Invocation, *, opset: int | None
) -> tuple[Suspect, ...]:
    """The same for a recorded case; none where its failure is not the converter's.

    Args:
        invocation: What fails as the case does: itself, or what it was shrunk to.
        opset: That the run emitted; None for the converter's default.

    Raises:
        ResultsError: the run cannot be read.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    here = (pc.field("case_id") == case_id) & (pc.field("converter") == converter)
    rows = store.verdicts(run, here & (pc.field("backend") == backend))
    verdict = next((row for row in rows if can_be_placed(row)), None)
    if verdict is None:
        return ()
    return _placed(run, verdict, (invocation.json, verdict.invocation), opset, Limits())


def _placed(
    run: Path, verdict: Verdict, first: tuple[str, ...], opset: int | None, limits: Limits | None
) -> tuple[Suspect, ...]:
    """See `places_of`; `first` are invocations that fail, those that matter most."""
    same = (
        (pc.field("overload") == verdict.overload)
        & (pc.field("converter") == verdict.converter)
        & (pc.field("backend") == verdict.backend)
    )
    rows = [row for row in store.verdicts(run, same) if row.shape_mode == verdict.shape_mode]
    how = verdict.stage, verdict.outcome, verdict.signature
    alike = [row.invocation for row in rows if (row.stage, row.outcome, row.signature) == how]
    right = [row.invocation for row in rows if row.outcome is Outcome.PASS]
    name, own = split_opset(verdict.converter)
    task = PlaceTask(
        failing=_invocations([*first, *alike]),
        passing=_invocations(right),
        converter=name,
        backend=verdict.backend,
        settings=Settings(opset=own or opset, blame=False),
        limits=limits,
    )
    with Supervisor(timeout=_TIMEOUT) as supervisor:
        return find_places(task, supervisor)


def _invocations(texts: Iterable[str]) -> tuple[Invocation, ...]:
    found: list[Invocation] = []
    for text in list(dict.fromkeys(texts))[:_MOST]:
        # One of another version cannot be read.
        with contextlib.suppress(InvalidInvocation):
            found.append(Invocation.from_json(text))
    return tuple(found)


#: Suspects that are shown.
TOLD = 3


@dataclass(frozen=True, kw_only=True)
class PlaceTask:
    """Cases of one operator that fail in one way with a converter and a backend, and some that pass.

    Attributes:
        limits: See `locate`.
    """

    handler: ClassVar[str] = "harness.locate.locate:carry_out"

    failing: tuple[Invocation, ...]
    passing: tuple[Invocation, ...]
    converter: str
    backend: str
    settings: Settings
    limits: Limits | None = None


@dataclass(frozen=True)
class FoundPlaces:
    """The suspects, the likeliest first."""

    suspects: tuple[Suspect, ...]


def find_places(task: PlaceTask, supervisor: Supervisor) -> tuple[Suspect, ...]:
    """The lines that may cause failures; none where they do not fail here, or where it is unknown.

    Raises:
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    found: Sequence[Suspect] = ()
    # All messages are taken: what is left in the pipe would be taken for an answer to the next task.
    for message in list(supervisor.serve_alone(task)):
        if isinstance(message, FoundPlaces):
            found = message.suspects
        elif isinstance(message, Death):
            return ()
    return tuple(found)


def carry_out(task: PlaceTask, worker: WorkerProcess) -> None:
    """Find the suspects in a worker, and send them."""
    converter, _ = worker.converter(task.converter, task.settings)
    runner = GraphRunner(converter, worker.backend(task.backend), task.settings.opset)
    located = locate(runner, task.failing, task.passing, SourceCode(), task.limits)
    worker.send(FoundPlaces(tuple(suspect for _, suspect in located.suspects[:TOLD])))
