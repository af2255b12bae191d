"""What is known of a model before and beside its runs, found out in a worker: a user's code may end its process.

Its open sizes, what it changes as it runs, and the calls that it makes, at the example's sizes and at others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.compare.verdict import Stage
from harness.core.invocation import Invocation
from harness.core.plugins import UnknownName
from harness.core.tensors import build_tensors
from harness.models.capture import Capture, ResizedCalls, capture_calls, resized_calls
from harness.models.state import StateChange, state_change
from harness.pipeline.model_loading import LoadedModel, ModelProblem, check_word
from harness.pipeline.model_task import Axis, ModelSource, NoModel, Variant
from harness.pipeline.onnx_inputs import drawn_inputs, open_sizes
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.task import Step
from harness.pipeline.worker import WorkerProcess


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What is known of a model.

    Attributes:
        axes: Its open sizes.
        shapes: Input name → shape of the example.
        is_exported: Whether it is an exported program, which is as open as it was exported.
        state: What it changes as it runs; nothing where it does not run, which its runs say.
    """

    name: str
    axes: tuple[Axis, ...]
    shapes: Mapping[str, tuple[int, ...]]
    is_exported: bool
    state: StateChange


@dataclass(frozen=True, kw_only=True)
class FactsTask:
    """Load a model, call it twice, and say what it is."""

    handler: ClassVar[str] = "harness.models.facts:send_facts"

    source: ModelSource


@dataclass(frozen=True, kw_only=True)
class CallsTask:
    """Find the calls that a model makes with its example, and at the sizes of another run.

    Attributes:
        other_run: Inputs of another size; None for the example alone.
    """

    handler: ClassVar[str] = "harness.models.facts:send_calls"

    source: ModelSource
    other_run: Invocation | None = None


@dataclass(frozen=True)
class ModelCalls:
    """The calls of a model; `problem` says why they could not be found."""

    capture: Capture | None = None
    resized: ResizedCalls = field(default_factory=ResizedCalls)
    problem: str = ""


def model_facts(word: str, variant: Variant, supervisor: Supervisor, inputs: str = "") -> ModelFacts:
    """Return what is known of a model or an ONNX file, once it has been loaded.

    Args:
        word: The model as its user named it.
        variant: What is asked for beyond what its function makes.
        supervisor: Runs the worker that loads it.
        inputs: The file with the inputs of an ONNX file; "" for none.

    Raises:
        UnknownName: no registered model has that name.
        ModelProblem: it cannot be loaded, or no inputs can be had for a file.
    """
    check_word(word)
    source = ModelSource(word, variant, inputs)
    found: ModelFacts = _answer(FactsTask(source=source), supervisor, ModelFacts, f"{word}: loading it")
    return found


def model_calls(task: CallsTask, supervisor: Supervisor) -> ModelCalls:
    """The calls that a model makes, or why they are unknown."""
    try:
        found: ModelCalls = _answer(task, supervisor, ModelCalls, "the capture of its calls")
        return found
    except ModelProblem as problem:
        return ModelCalls(problem=str(problem))


def _answer(task: Any, supervisor: Supervisor, kind: type[Any], what: str) -> Any:
    # All messages are taken: what is left in the pipe would be taken for an answer to the next task.
    for message in list(supervisor.serve(task)):
        if isinstance(message, NoModel):
            raise ModelProblem(message.message)
        if isinstance(message, Death):
            raise ModelProblem(f"{what} ended: {message.message}")
        if isinstance(message, kind):
            return message
    raise ModelProblem(f"{what} gave no answer")


def send_facts(task: FactsTask, worker: WorkerProcess) -> None:
    """Load the model in the worker, call it, and send what it is; a file is only read."""
    if task.source.is_file:
        _send_facts_of_file(task.source, worker)
        return
    for model in _loaded(task, worker):
        try:
            state = state_change(model)
        except Exception:
            # That it does not run is said as the outcome of each way.
            state = StateChange()
        worker.send(
            ModelFacts(
                name=model.name,
                axes=model.axes,
                shapes={name: tuple(t.shape) for name, t in zip(model.input_names, model.inputs, strict=True)},
                is_exported=model.exported is not None,
                state=state,
            )
        )


def _send_facts_of_file(source: ModelSource, worker: WorkerProcess) -> None:
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        file = worker.file(source)
        if file.given is None:
            # Says of an input that cannot be drawn what is to be done.
            drawn_inputs(file.model, dict.fromkeys(open_sizes(file.model), 1), 0)
    except ModelProblem as problem:
        worker.send(NoModel(str(problem)))
    else:
        worker.send(ModelFacts(name=file.name, axes=(), shapes={}, is_exported=True, state=StateChange()))


def send_calls(task: CallsTask, worker: WorkerProcess) -> None:
    """Capture the model's calls in the worker, and send them."""
    for model in _loaded(task, worker):
        try:
            capture = capture_calls(model, exact=True)
        except ModelProblem as problem:
            worker.send(ModelCalls(problem=str(problem)))
            return
        resized = ResizedCalls()
        if task.other_run is not None:
            resized = resized_calls(model, tuple(build_tensors(task.other_run)))
        worker.send(ModelCalls(capture, resized))


def _loaded(task: FactsTask | CallsTask, worker: WorkerProcess) -> Iterator[LoadedModel]:
    """The model; nothing where it cannot be had, which is sent instead."""
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        model = worker.model(task.source)
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))
        return
    yield model
