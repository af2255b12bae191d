"""The runs that a model gets, found out in the worker process: a user's code may end its process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.compare.verdict import Stage
from harness.core.plugins import UnknownName
from harness.pipeline.model_cases import cases_of
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelInputs, ModelSource, NoModel
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.task import Step
from harness.pipeline.worker import WorkerProcess


@dataclass(frozen=True)
class ListingTask:
    """Load a model and list its runs."""

    handler: ClassVar[str] = "harness.pipeline.model_listing:carry_out"

    source: ModelSource
    dynamic: bool


@dataclass(frozen=True)
class Listing:
    """The runs of a model, the example first."""

    inputs: tuple[ModelInputs, ...]


def list_runs(source: ModelSource, supervisor: Supervisor, *, dynamic: bool) -> tuple[ModelInputs, ...] | Death:
    """Return the runs of a model, or how the worker died of it. The model stays loaded in a worker of its own.

    Raises:
        ModelProblem: the model cannot be loaded.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    # All messages are taken: what is left in the pipe would be taken for an answer to the next task.
    for message in list(supervisor.serve_alone(ListingTask(source, dynamic))):
        if isinstance(message, NoModel):
            raise ModelProblem(message.message)
        if isinstance(message, Death):
            return message
        if isinstance(message, Listing):
            return message.inputs
    raise ModelProblem(f"{source.word} could not be loaded")


def carry_out(task: ListingTask, worker: WorkerProcess) -> None:
    """List the runs in a worker, and send them."""
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        worker.send(Listing(cases_of(worker.model(task.source), task.dynamic)))
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))
