"""Choose the kind of cases that a task has: calls and programs, the runs of a model, or the runs of an ONNX file."""

from __future__ import annotations

from collections.abc import Callable

from harness.compare.tolerances import Tolerance
from harness.core.invocation import Invocation
from harness.pipeline.graph_runs import GraphRuns
from harness.pipeline.model_cases import ModelRuns
from harness.pipeline.model_task import ModelSource
from harness.pipeline.torch_case import Calls, CaseKind
from harness.pipeline.worker import WorkerProcess
from harness.run.backend import REFERENCE


def case_kind(
    worker: WorkerProcess,
    source: ModelSource | None,
    backend: str,
    first: Invocation,
    tolerance: Tolerance | None,
    alive: Callable[[], None],
) -> CaseKind:
    """Return the kind of cases that come from a source.

    Args:
        worker: Loads models and starts backends.
        source: The model or file; None for calls and programs.
        backend: The backend that runs a file.
        first: The first run of a file, in which its nodes are judged.
        tolerance: The user's tolerance for the outputs of a model; None for the effect of roundings.
        alive: Called before each step that may take long.

    Raises:
        ModelProblem: the model or file cannot be loaded.
        UnknownName: no registered model has that name.
    """
    if source is None:
        return Calls()
    if source.is_file:
        return GraphRuns(worker.file(source), worker.backend(backend), worker.backend(REFERENCE), first, alive)
    return ModelRuns(worker.model(source), tolerance, alive)
