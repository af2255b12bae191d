"""A worker's answer to the task on a whole model."""

from __future__ import annotations

from harness.core import UnknownName
from harness.execute.models.model_loading import ModelProblem
from harness.execute.models.model_runner import ModelExecutor
from harness.execute.models.model_task import ModelTask, NoModel
from harness.execute.worker import WorkerProcess


def carry_out(task: ModelTask, worker: WorkerProcess) -> None:
    """Run the model's cases; what a model cannot be had for is sent in its own words."""
    converter, book = worker.converter(task.converter, task.settings)
    started = {name: worker.start(name) for name in task.backends}
    try:
        ModelExecutor(task, converter, started, worker.send, book).execute()
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))
