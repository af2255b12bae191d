"""The headroom of a model in float16, measured in a worker process: a user's code and a runtime may end it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import onnx

from harness.compare.verdict import Stage
from harness.core.dtypes import Array
from harness.core.invocation import TensorSpec
from harness.core.onnx_arrays import build_array
from harness.core.plugins import UnknownName
from harness.core.route import Route
from harness.models.facts import take_answer
from harness.pipeline.given_inputs import given_runs
from harness.pipeline.graph_structure import GraphStructure, signature
from harness.pipeline.headroom import Headroom, HeadroomSearch, name_nodes
from harness.pipeline.leeway import emulating_runtime
from harness.pipeline.model_cases import ModelStructure, cases_of, declared_inputs
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelInputs, ModelSource, NoModel
from harness.pipeline.onnx_inputs import drawn_inputs, list_file_runs, open_sizes
from harness.pipeline.program import export_alone
from harness.pipeline.run_graph import run_graph
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Step
from harness.pipeline.worker import WorkerProcess


@dataclass(frozen=True)
class HeadroomTask:
    """Find out how near a model comes to the ends of float16's range, and what must stay in float32."""

    handler: ClassVar[str] = "harness.models.headroom:carry_out"

    source: ModelSource
    route: Route


def find_headroom(source: ModelSource, route: Route, supervisor: Supervisor) -> Headroom:
    """Return the headroom of a model.

    Args:
        source: The model, and the user's inputs if there are any.
        route: Its converter, and the runtime in which the float16 graph is verified.
        supervisor: Runs the worker.

    Raises:
        ModelProblem: the model cannot be loaded, exported or run.
    """
    messages = supervisor.serve_alone(HeadroomTask(source, route))
    found: Headroom = take_answer(messages, Headroom, f"measuring the headroom of {source.word}")
    return found


def carry_out(task: HeadroomTask, worker: WorkerProcess) -> None:
    """Measure the headroom in a worker, and send it."""

    def say_alive() -> None:
        worker.begin(Step(Stage.RUN, task.route.backend, ()), send=True)

    say_alive()
    try:
        graph, runs = _graph_of_file(task, worker) if task.source.is_graph else _graph_of_model(task, worker)
        model, unnamed = name_nodes(graph)
        structure = GraphStructure(model)
        feeds = [structure.feeds(model, arrays) for arrays in runs]
        search = HeadroomSearch(model, feeds, emulating_runtime(), worker.start(task.route.backend), say_alive)
        worker.send(replace(search.find(), unnamed=unnamed))
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))
    except Exception as error:
        worker.send(NoModel(f"{task.source.word} cannot be run in float16: {type(error).__name__}: {error}"))


def _graph_of_file(task: HeadroomTask, worker: WorkerProcess) -> tuple[onnx.ModelProto, list[list[Array]]]:
    file = worker.file(task.source)
    runs: Sequence[ModelInputs]
    if task.source.given.path:
        runs = given_runs(task.source.given, file.overload, signature(file.model))
    else:
        drawn_inputs(file.model, dict.fromkeys(open_sizes(file.model), 1), 0)
        structure, plain = GraphStructure(file.model), emulating_runtime()
        runs = list_file_runs(
            file.model,
            file.overload,
            lambda run: (
                run_graph(plain, file.model, structure.feeds(file.model, _arrays(run.tensors()))).failure is None
            ),
        )
    return file.model, [_arrays(run.invocation.tensors()) for run in runs]


def _graph_of_model(task: HeadroomTask, worker: WorkerProcess) -> tuple[onnx.ModelProto, list[list[Array]]]:
    model = worker.model(task.source)
    runs = cases_of(model, dynamic=False)
    if task.source.given.path:
        runs = given_runs(task.source.given, model.overload, declared_inputs(model, dynamic=False))
    structure = ModelStructure(model).returning(len(model.program(*(t.clone() for t in model.inputs))))
    try:
        graph = export_alone(worker.converter(task.route)[0], structure, task.route)
    except Exception as error:
        raise ModelProblem(f"{task.source.word} cannot be exported: {type(error).__name__}: {error}") from error
    kept = [value.name for value in graph.graph.input]
    return graph, [[structure.feeds(graph, _arrays(run.invocation.tensors()))[name] for name in kept] for run in runs]


def _arrays(specs: Iterable[TensorSpec]) -> list[Array]:
    return [build_array(spec) for spec in specs]
