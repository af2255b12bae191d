"""Find the lines of a converter that may cause a recorded failure.

Cases are exported again in a worker process, since an operator may crash it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

import pyarrow.compute as pc

from harness.compare.verdict import CONVERTER, Outcome, Stage, Verdict
from harness.core.invocation import MODEL, InvalidInvocation, Invocation
from harness.core.route import Route
from harness.locate.neighbours import neighbours
from harness.locate.observed_case import GraphRunner, ObservedCase
from harness.locate.ranking import rank
from harness.locate.source_code import SourceCode, Statement
from harness.locate.suspect import Suspect
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.worker import WorkerProcess
from harness.record import store

#: Number of cases that are exported again.
FAILING, PASSING = 3, 5


def locate(
    runner: GraphRunner, failing: Sequence[Invocation], passing: Sequence[Invocation], source: SourceCode
) -> list[tuple[Statement, Suspect]]:
    """Return the statements that ran when failing cases were exported, most suspicious first; empty if none fails here.

    Args:
        runner: Exports and runs cases.
        failing: Cases of one operator that fail in the same way, the most important first.
        passing: Cases of the same operator that pass.
        source: The converter's source.
    """
    wrong = [case for case in _each(runner.observe, failing[:FAILING]) if not case.passes]
    if not wrong:
        return []
    right = list(_each(runner.trace, passing[:PASSING]))
    functions = dict.fromkeys(statement.function for statement, _ in rank(wrong, right, source))
    others = list(_each(runner.observe, neighbours(wrong, functions, source)))
    right += [case for case in others if case.passes]
    # A case that cannot be converted has another defect than one with a wrong graph.
    unconverted = {case.run.stage is Stage.CONVERT for case in wrong}
    alike = [c for c in others if not c.passes and (c.run.stage is Stage.CONVERT) in unconverted]
    return rank(wrong, right, source, alike)


def _each(look: Callable[[Invocation], ObservedCase], calls: Iterable[Invocation]) -> Iterable[ObservedCase]:
    for call in calls:
        # PyTorch may reject a case of another version.
        with contextlib.suppress(RuntimeError, TypeError, ValueError):
            yield look(call)


#: Largest number of failing, and of passing, cases that are taken from a run.
_MOST = 8
#: Timeout of one step, in seconds.
_TIMEOUT = 120.0


class Unlocated(StrEnum):
    """Why no lines are searched for."""

    RULE = "rule"
    """The user's own conversion function took part."""
    NOT_CONVERTER = "not-converter"
    """Another component is to blame."""
    DYNAMIC = "dynamic"
    """The call was exported with dynamic shapes."""
    MODEL = "model"
    """It is a run of a whole model."""


def why_unlocated(verdict: Verdict) -> Unlocated | None:
    """Return why no lines can be found for a failure; None if they can."""
    if verdict.rule:
        return Unlocated.RULE
    if verdict.blame != CONVERTER:
        return Unlocated.NOT_CONVERTER
    if verdict.overload.startswith(MODEL):
        return Unlocated.MODEL
    return Unlocated.DYNAMIC if verdict.shape_mode == "dynamic" else None


def find_suspects(run: Path, verdict: Verdict, *, opset: int | None) -> tuple[Suspect, ...]:
    """Return the lines that may cause a recorded failure, most suspicious first; empty if they are unknown.

    The run's other cases of the operator show which lines run in failing cases and which in passing ones.

    Args:
        run: The run.
        verdict: The failure, one for which `why_unlocated` gives no reason.
        opset: The opset of the run; None means the converter's default.

    Raises:
        ResultsError: The run cannot be read.
        harness.pipeline.supervisor.WorkerFailed: No worker process can be started.
    """
    return _suspects(run, verdict, (verdict.invocation,), opset)


def find_suspects_of_case(
    run: Path, case_id: str, converter: str, backend: str, invocation: Invocation, *, opset: int | None
) -> tuple[Suspect, ...]:
    """Return the suspects of a recorded case; empty if its failure is not the converter's.

    Args:
        run: The run.
        case_id: The recorded case.
        converter: The converter of the failing route.
        backend: The backend of the failing route.
        invocation: The recorded invocation, or what it was shrunk to.
        opset: The opset of the run; None means the converter's default.

    Raises:
        ResultsError: The run cannot be read.
        harness.pipeline.supervisor.WorkerFailed: No worker process can be started.
    """
    on_route = (pc.field("case_id") == case_id) & (pc.field("converter") == converter)
    rows = store.verdicts(run, on_route & (pc.field("backend") == backend))
    failing = (row for row in rows if row.outcome.is_failure)
    verdict = next((row for row in failing if why_unlocated(row) is None), None)
    if verdict is None:
        return ()
    return _suspects(run, verdict, (invocation.json, verdict.invocation), opset)


def _suspects(run: Path, verdict: Verdict, first: tuple[str, ...], opset: int | None) -> tuple[Suspect, ...]:
    """Implement `find_suspects`; `first` are failing invocations, the most important first."""
    same = (
        (pc.field("overload") == verdict.overload)
        & (pc.field("converter") == verdict.converter)
        & (pc.field("backend") == verdict.backend)
    )
    rows = [row for row in store.verdicts(run, same) if row.shape_mode == verdict.shape_mode]
    ending = verdict.stage, verdict.outcome, verdict.signature
    alike = [row.invocation for row in rows if (row.stage, row.outcome, row.signature) == ending]
    right = [row.invocation for row in rows if row.outcome is Outcome.PASS]
    route = Route.parse(verdict.converter)
    task = LocateTask(
        failing=_invocations([*first, *alike]),
        passing=_invocations(right),
        route=replace(route, opset=route.opset or opset, backend=verdict.backend),
    )
    with Supervisor(timeout=_TIMEOUT) as supervisor:
        return run_task(task, supervisor)


def _invocations(texts: Iterable[str]) -> tuple[Invocation, ...]:
    invocations: list[Invocation] = []
    for text in list(dict.fromkeys(texts))[:_MOST]:
        # An invocation of another version may be unreadable.
        with contextlib.suppress(InvalidInvocation):
            invocations.append(Invocation.from_json(text))
    return tuple(invocations)


#: Number of suspects that are reported.
REPORTED = 3


@dataclass(frozen=True, kw_only=True)
class LocateTask:
    """Cases of one operator that fail in the same way on a route, and some that pass."""

    handler: ClassVar[str] = "harness.locate.locate:handle"

    failing: tuple[Invocation, ...]
    passing: tuple[Invocation, ...]
    route: Route


@dataclass(frozen=True)
class LocatedSuspects:
    """The suspects, most suspicious first."""

    suspects: tuple[Suspect, ...]


def run_task(task: LocateTask, supervisor: Supervisor) -> tuple[Suspect, ...]:
    """Return the lines that may cause failures; empty if the cases do not fail here, or the lines are unknown.

    Raises:
        harness.pipeline.supervisor.WorkerFailed: No worker process can be started.
    """
    suspects: Sequence[Suspect] = ()
    # All messages are read: a remaining one would be taken for an answer to the next task.
    for message in list(supervisor.serve_alone(task)):
        if isinstance(message, LocatedSuspects):
            suspects = message.suspects
        elif isinstance(message, Death):
            return ()
    return tuple(suspects)


def handle(task: LocateTask, worker: WorkerProcess) -> None:
    """Find the suspects in the worker process and send them."""
    converter, _ = worker.converter(task.route)
    runner = GraphRunner(converter, worker.backend(task.route.backend), task.route)
    ranked = locate(runner, task.failing, task.passing, SourceCode())
    worker.send(LocatedSuspects(tuple(suspect for _, suspect in ranked[:REPORTED])))
