"""The first run of a model on a route, made ready in a worker: for questions about the model rather than a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from harness.convert.converter import Converter
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.route import EXPORTED, Route
from harness.pipeline.case import Case
from harness.pipeline.model_listing import list_runs
from harness.pipeline.model_task import ModelSource
from harness.pipeline.run_case import make_artefact
from harness.pipeline.started_route import StartedRoute
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.worker import WorkerProcess
from harness.run.artefact import AnyModel

_Answer = TypeVar("_Answer")


def ask_first_run(
    source: ModelSource,
    route: Route,
    supervisor: Supervisor,
    make_task: Callable[[Invocation], Any],
    kind: type[_Answer],
) -> _Answer | str:
    """Return a worker's answer about the first run of a model, or why there is none.

    Args:
        source: The model.
        route: The route.
        supervisor: Starts the worker.
        make_task: Returns the task for an invocation.
        kind: The type of the answer.

    Raises:
        ModelProblem: The model cannot be loaded.
    """
    runs = list_runs(source, supervisor, dynamic=route.dynamic, backend=route.backend)
    if isinstance(runs, Death):
        return runs.message
    answer: _Answer | str = "the worker gave no answer"
    # All messages are read: a remaining one would be taken for an answer to the next task.
    for message in list(supervisor.serve_alone(make_task(runs[0].invocation))):
        if isinstance(message, Death):
            answer = message.message
        elif isinstance(message, kind):
            answer = message
    return answer


def make_first_run(
    source: ModelSource, route: Route, invocation: Invocation, worker: WorkerProcess
) -> tuple[Case, AnyModel]:
    """Return a run of a model as a case, and its artefact on a route.

    Raises:
        ValueError: It cannot be exported; the message says why.
    """
    converter: Converter | None = None if route.converter in EXPORTED else worker.converter(route)[0]
    structure = worker.structure(CaseGroup.of(invocation), source, route, route.backend)
    oracle = structure.oracle(invocation)
    case = Case(structure.returning(len(oracle.expected)), oracle)
    made = make_artefact(case, StartedRoute(replace(route, backend=""), converter))
    if made.failure is not None or made.artefact is None:
        raise ValueError(made.message)
    return case, made.artefact
