"""The lines of a converter that may cause a recorded failure.

Cases are exported again in a worker process, since an operator may take it down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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

#: Cases that are exported again.
FAILING, PASSING = 3, 5


def locate(
    runner: GraphRunner, failing: Sequence[Invocation], passing: Sequence[Invocation], source: SourceCode
) -> list[tuple[Statement, Suspect]]:
    """The statements that ran when failing cases were exported, the likeliest first; none where no case fails here.

    Args:
        runner: Exports and runs.
        failing: Cases of one operator that fail in one way, the one that matters first.
        passing: Cases of the same operator that pass.
        source: Of the converter.
    """
    wrong = [case for case in _each(runner.observe, failing[:FAILING]) if not case.passes]
    if not wrong:
        return []
    right = list(_each(runner.lines_of, passing[:PASSING]))
    functions = dict.fromkeys(statement.function for statement, _ in rank(wrong, right, source))
    others = list(_each(runner.observe, neighbours(wrong, functions, source)))
    right += [case for case in others if case.passes]
    # What cannot be converted at all is wrong in another way than what gets a wrong graph.
    unconverted = {case.stage is Stage.CONVERT for case in wrong}
    alike = [c for c in others if not c.passes and (c.stage is Stage.CONVERT) in unconverted]
    return rank(wrong, right, source, alike)


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
    static = verdict.shape_mode != "dynamic" and not verdict.overload.startswith(MODEL)
    return verdict.outcome.is_failure and verdict.blame == CONVERTER and static


def places_of(run: Path, verdict: Verdict, *, opset: int | None) -> tuple[Suspect, ...]:
    """The lines that may cause a recorded failure, the likeliest first; none where it is unknown.

    The run's other cases of the operator say which lines run where cases fail, and which where they pass.

    Args:
        opset: That the run emitted; None for the converter's default.

    Raises:
        ResultsError: the run cannot be read.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    return _placed(run, verdict, (verdict.invocation,), opset)


def places_of_case(
    run: Path, case_id: str, converter: str, backend: str, invocation: Invocation, *, opset: int | None
) -> tuple[Suspect, ...]:
    """The same for a recorded case; none where its failure is not the converter's.

    Args:
        invocation: What fails as the case does: itself, or what it was shrunk to.
        opset: That the run emitted; None for the converter's default.

    Raises:
        ResultsError: the run cannot be read.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    here = (pc.field("case_id") == case_id) & (pc.field("converter") == converter)
    rows = store.verdicts(run, here & (pc.field("backend") == backend))
    verdict = next((row for row in rows if can_be_placed(row)), None)
    if verdict is None:
        return ()
    return _placed(run, verdict, (invocation.json, verdict.invocation), opset)


def _placed(run: Path, verdict: Verdict, first: tuple[str, ...], opset: int | None) -> tuple[Suspect, ...]:
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
    route = Route.parse(verdict.converter)
    task = PlaceTask(
        failing=_invocations([*first, *alike]),
        passing=_invocations(right),
        route=replace(route, opset=route.opset or opset, backend=verdict.backend),
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
    """Cases of one operator that fail in one way with a converter and a backend, and some that pass."""

    handler: ClassVar[str] = "harness.locate.locate:carry_out"

    failing: tuple[Invocation, ...]
    passing: tuple[Invocation, ...]
    route: Route


@dataclass(frozen=True)
class FoundPlaces:
    """The suspects, the likeliest first."""

    suspects: tuple[Suspect, ...]


def find_places(task: PlaceTask, supervisor: Supervisor) -> tuple[Suspect, ...]:
    """The lines that may cause failures; none where they do not fail here, or where it is unknown.

    Raises:
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
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
    converter, _ = worker.converter(task.route)
    runner = GraphRunner(converter, worker.backend(task.route.backend), task.route)
    found = locate(runner, task.failing, task.passing, SourceCode())
    worker.send(FoundPlaces(tuple(suspect for _, suspect in found[:TOLD])))
