"""Looking for a divergence in a worker process, so that it may crash or hang."""

from __future__ import annotations

from harness.diverge.diverge import Divergence
from harness.models.load import ModelProblem
from harness.models.task import DivergeTask, NoModel
from harness.pipeline.supervisor import Death, Supervisor


def find_divergence(task: DivergeTask, supervisor: Supervisor) -> Divergence:
    """Where a run of a model goes wrong.

    Raises:
        ModelProblem: that cannot be found out; the message says why.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
        LookupError: an unknown converter or backend.
    """
    # All messages are taken: what is left in the pipe would be taken for an answer to the next task.
    messages = list(supervisor.model(task))
    for message in messages:
        if isinstance(message, NoModel):
            raise ModelProblem(message.message)
        if isinstance(message, Death):
            raise ModelProblem(f"the search for the first divergence ended: {message.message}")
        if isinstance(message, Divergence):
            return message
    raise ModelProblem("the search for the first divergence gave no answer")
