"""The runs that a model gets, found out in the worker process: a user's code may end its process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.compare.verdict import Stage
from harness.core.invocation import Invocation
from harness.core.plugins import UnknownName
from harness.core.tensors import build_tensors
from harness.core.torch_arrays import to_numpy
from harness.pipeline.given_inputs import given_runs
from harness.pipeline.graph_oracle import plain_form
from harness.pipeline.graph_structure import GraphStructure, signature
from harness.pipeline.model_cases import cases_of, declared_inputs
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelInputs, ModelSource, NoModel
from harness.pipeline.onnx_inputs import list_file_runs
from harness.pipeline.stages import StageFailure, load_stage, run_stage
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.task import Step
from harness.pipeline.worker import WorkerProcess


@dataclass(frozen=True)
class ListingTask:
    """Load a model and list its runs; those of a file depend on the sizes that a backend runs it at."""

    handler: ClassVar[str] = "harness.pipeline.model_listing:carry_out"

    source: ModelSource
    dynamic: bool
    backend: str


@dataclass(frozen=True)
class Listing:
    """The runs of a model, the example first."""

    inputs: tuple[ModelInputs, ...]


def list_runs(
    source: ModelSource, supervisor: Supervisor, *, dynamic: bool, backend: str
) -> tuple[ModelInputs, ...] | Death:
    """Return the runs of a model, or how the worker died of it. The model stays loaded in a worker of its own.

    Raises:
        ModelProblem: the model cannot be loaded.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    # All messages are taken: a message left in the pipe would be taken for an answer to the next task.
    for message in list(supervisor.serve_alone(ListingTask(source, dynamic, backend))):
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
        if task.source.is_graph:
            worker.send(Listing(_runs_of_file(task, worker)))
        else:
            worker.send(Listing(_runs_of_model(task, worker)))
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))


def _runs_of_model(task: ListingTask, worker: WorkerProcess) -> tuple[ModelInputs, ...]:
    model = worker.model(task.source)
    if not task.source.given.path:
        return cases_of(model, task.dynamic)
    # What is exported is the example, which need not be among the user's inputs.
    return given_runs(task.source.given, model.overload, declared_inputs(model, dynamic=task.dynamic))


def _runs_of_file(task: ListingTask, worker: WorkerProcess) -> tuple[ModelInputs, ...]:
    file = worker.file(task.source)
    if task.source.given.path:
        return given_runs(task.source.given, file.overload, signature(file.model))
    session = load_stage(plain_form(worker.start(task.backend)), file.model, None)
    structure = GraphStructure(file.model)

    def runs(invocation: Invocation) -> bool:
        if isinstance(session, StageFailure) or not session.runnable:
            return False
        # A runtime may take its time with each.
        worker.send(Step(Stage.RUN, task.backend, ()))
        feeds = structure.feeds(file.model, [to_numpy(t) for t in build_tensors(invocation)])
        return not isinstance(run_stage(session, feeds), StageFailure)

    return list_file_runs(file.model, file.overload, runs)
