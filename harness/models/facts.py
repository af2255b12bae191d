"""Facts about a model that are collected in a worker, since a user's code may crash its process.

They are its dynamic sizes, the state that it changes, and the calls that it makes at the example's and at other sizes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.compare.verdict import Stage
from harness.core.invocation import Invocation
from harness.core.plugins import UnknownName
from harness.core.tensors import build_tensors
from harness.models.as_program import program_of
from harness.models.capture import Capture, ResizedCalls, capture_calls, resized_calls
from harness.models.state import StateChange, state_change, training_changes_result
from harness.pipeline.given_inputs import given_runs
from harness.pipeline.graph_structure import signature
from harness.pipeline.model_cases import declared_inputs
from harness.pipeline.model_loading import LoadedModel, ModelProblem, check_word
from harness.pipeline.model_task import NO_FILES, Axis, GivenFiles, ModelSource, NoModel, Variant
from harness.pipeline.noise import feed_noise
from harness.pipeline.onnx_inputs import drawn_inputs, open_sizes
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.task import Step
from harness.pipeline.worker import WorkerProcess


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The facts about a model.

    Attributes:
        name: The model's name.
        axes: Its dynamic sizes.
        shapes: Input name → shape of the example.
        is_exported: Whether it is an exported program, whose dynamic sizes are fixed.
        state: The state that it changes when it runs; empty if it does not run, which its runs report.
        trains: Whether it was given in training mode, in which it gives another result.
        takes_noise: Whether it draws at random in such a way that its draws can be inputs.
    """

    name: str
    axes: tuple[Axis, ...]
    shapes: Mapping[str, tuple[int, ...]]
    is_exported: bool
    state: StateChange
    trains: bool = False
    takes_noise: bool = False


@dataclass(frozen=True, kw_only=True)
class FactsTask:
    """Load a model, call it twice, and describe it."""

    handler: ClassVar[str] = "harness.models.facts:send_facts"

    source: ModelSource


@dataclass(frozen=True, kw_only=True)
class CallsTask:
    """Capture the calls that a model makes for its example, and at the sizes of another run.

    Attributes:
        source: The model.
        other_run: Inputs of other sizes; None captures the example only.
        as_program: Return the example's run as a program in place of its distinct calls.
    """

    handler: ClassVar[str] = "harness.models.facts:send_calls"

    source: ModelSource
    other_run: Invocation | None = None
    as_program: bool = False


@dataclass(frozen=True)
class ModelCalls:
    """The calls of a model.

    Attributes:
        capture: The calls; None if they are unknown, or if a program was asked for.
        resized: The calls at other sizes.
        program: The example's run as a program, if it was asked for; None for a model that is too large for one.
        problem: Why they are unknown.
    """

    capture: Capture | None = None
    resized: ResizedCalls = field(default_factory=ResizedCalls)
    program: Invocation | None = None
    problem: str = ""


def model_facts(word: str, variant: Variant, supervisor: Supervisor, given: GivenFiles = NO_FILES) -> ModelFacts:
    """Load a model or an ONNX file and return the facts about it.

    Args:
        word: The model as the user named it.
        variant: The variant of the model.
        supervisor: Runs the worker that loads it.
        given: The user's inputs.

    Raises:
        UnknownName: No registered model has that name.
        ModelProblem: It cannot be loaded, or inputs of a file cannot be drawn.
    """
    check_word(word)
    source = ModelSource(word, variant, given)
    messages = supervisor.serve(FactsTask(source=source))
    facts: ModelFacts = take_answer(messages, ModelFacts, f"{word}: loading it")
    return facts


def model_calls(task: CallsTask, supervisor: Supervisor) -> ModelCalls:
    """Return the calls that a model makes, or why they are unknown."""
    try:
        calls: ModelCalls = take_answer(supervisor.serve(task), ModelCalls, "the capture of its calls")
        return calls
    except ModelProblem as problem:
        return ModelCalls(problem=str(problem))


def take_answer(messages: Iterable[object], kind: type[Any], what: str) -> Any:
    """Return the one answer of a kind among a worker's messages.

    Raises:
        ModelProblem: the worker names a problem, dies, or gives no answer; `what` it was asked is named.
    """
    # All messages are read: a remaining one would be taken for an answer to the next task.
    for message in list(messages):
        if isinstance(message, NoModel):
            raise ModelProblem(message.message)
        if isinstance(message, Death):
            raise ModelProblem(f"{what} ended: {message.message}")
        if isinstance(message, kind):
            return message
    raise ModelProblem(f"{what} gave no answer")


def send_facts(task: FactsTask, worker: WorkerProcess) -> None:
    """Load the model in the worker, call it, and send the facts; a file is only read."""
    if task.source.is_graph:
        _send_file_facts(task.source, worker)
        return
    for model in _loaded(task, worker):
        state, trains, takes_noise = StateChange(), False, False
        # The verdict on each route reports that it does not run.
        if task.source.given.path:
            try:
                given_runs(task.source.given, model.overload, declared_inputs(model, dynamic=bool(model.axes)))
            except ModelProblem as problem:
                worker.send(NoModel(str(problem)))
                return
        with contextlib.suppress(Exception):
            state = state_change(model)
            trains = training_changes_result(model)
            takes_noise = feed_noise(model) is not None
        worker.send(
            ModelFacts(
                name=model.name,
                axes=model.axes,
                shapes={name: tuple(t.shape) for name, t in zip(model.input_names, model.inputs, strict=True)},
                is_exported=model.exported is not None,
                state=state,
                trains=trains,
                takes_noise=takes_noise,
            )
        )


def _send_file_facts(source: ModelSource, worker: WorkerProcess) -> None:
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        file = worker.file(source)
        if source.given.path:
            given_runs(source.given, file.overload, signature(file.model))
        else:
            # Raises an error with advice if an input cannot be drawn.
            drawn_inputs(file.model, dict.fromkeys(open_sizes(file.model), 1), 0)
    except ModelProblem as problem:
        worker.send(NoModel(str(problem)))
    else:
        worker.send(ModelFacts(name=file.name, axes=(), shapes={}, is_exported=True, state=StateChange()))


def send_calls(task: CallsTask, worker: WorkerProcess) -> None:
    """Capture the model's calls in the worker and send them."""
    for model in _loaded(task, worker):
        if task.as_program:
            worker.send(ModelCalls(program=program_of(model)))
            return
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
    """Yield the model, or send why it cannot be loaded."""
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        model = worker.model(task.source)
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))
        return
    yield model
