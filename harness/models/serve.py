"""A worker's answer to the tasks on whole models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.availability import UnknownName
from harness.backends.base import Backend
from harness.converters.base import Converter
from harness.diverge.diverge import diverge
from harness.models.execute import ModelExecutor
from harness.models.load import ModelProblem, load_model
from harness.models.task import DivergeTask, ModelTask, NoModel
from harness.pipeline.task import Step
from harness.rules.load import RuleBook
from harness.verdict.verdict import Stage


def serve(
    task: ModelTask | DivergeTask,
    converter: tuple[Converter, RuleBook | None],
    backend: Callable[[str], Backend],
    send: Callable[[Any], None],
) -> None:
    """Carry out a task.

    Args:
        task: What to do.
        converter: Started, with the user's rules.
        backend: Starts one by its name.
        send: Takes messages as they come.
    """
    try:
        if isinstance(task, ModelTask):
            started = {name: backend(name) for name in task.backends}
            ModelExecutor(task, converter[0], started, send, converter[1]).execute()
        else:
            send(Step(Stage.REFERENCE, None, ()))
            send(diverge(task, load_model(task.word), converter[0], backend(task.backend), send))
    except (ModelProblem, UnknownName) as problem:
        send(NoModel(str(problem)))
