"""Looking for a divergence in a worker process, so that it may crash or hang."""

from __future__ import annotations

from harness.analyse.divergence.divergence_task import DivergeTask
from harness.analyse.divergence.first_divergence import Divergence, diverge
from harness.compare import Stage
from harness.core import UnknownName
from harness.execute import Death, ModelProblem, NoModel, Step, Supervisor, WorkerProcess, load_model


def find_divergence(task: DivergeTask, supervisor: Supervisor) -> Divergence:
    """Where a run of a model goes wrong.

    Raises:
        ModelProblem: that cannot be found out; the message says why.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
        LookupError: an unknown converter or backend.
    """
    # All messages are taken: what is left in the pipe would be taken for an answer to the next task.
    messages = list(supervisor.serve_alone(task))
    for message in messages:
        if isinstance(message, NoModel):
            raise ModelProblem(message.message)
        if isinstance(message, Death):
            raise ModelProblem(f"the search for the first divergence ended: {message.message}")
        if isinstance(message, Divergence):
            return message
    raise ModelProblem("the search for the first divergence gave no answer")


def carry_out(task: DivergeTask, worker: WorkerProcess) -> None:
    """Find the divergence in a worker, and send it."""
    converter, _ = worker.converter(task.converter, task.settings)
    backend = worker.start(task.backend)
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        worker.send(diverge(task, load_model(task.word), converter, backend, worker.send))
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))
