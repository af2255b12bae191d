"""The process that runs PyTorch, exporters and runtimes, so that it may die in place of the session."""

from __future__ import annotations

import gc
import importlib
import logging
import traceback
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path

import torch

from harness.compare.tolerances import Tolerance
from harness.convert.converter import Converter, HasNotes, find_converter
from harness.convert.rules.rule import RuleBook
from harness.core.case_group import CaseGroup
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.isolation import Send
from harness.core.onnx_arrays import build_array
from harness.core.onnx_operators import is_onnx_operator
from harness.core.program import is_graph
from harness.core.recent import Recent
from harness.core.route import Route
from harness.core.text import describe_error
from harness.generate.case_library import load_cases
from harness.pipeline.batch_export import Member
from harness.pipeline.case import Structure
from harness.pipeline.drawn_graph import build_graph
from harness.pipeline.drawn_oracle import (
    DrawnOracle,
    build_node,
    declare_outputs,
    evaluate_plainly,
    expect_by_definition,
    expect_refusal,
    expect_unoptimised,
)
from harness.pipeline.graph_oracle import GraphOracle, Judges, expect
from harness.pipeline.graph_structure import GraphStructure
from harness.pipeline.kept_models import KeptModels
from harness.pipeline.model_cases import ModelStructure
from harness.pipeline.model_loading import LoadedModel, load_model
from harness.pipeline.model_task import ModelSource
from harness.pipeline.noise import feed_noise
from harness.pipeline.onnx_files import LoadedFile, load_file
from harness.pipeline.program import CallStructure
from harness.pipeline.start import Starter
from harness.pipeline.task import OWN_FAULT, Finished, Noted, Started, Step, WorkerTask
from harness.run.backend import REFERENCE, Backend, DeviceLost


def start_worker(send: Send, announce: Send | None = None) -> Callable[[WorkerTask], None]:
    """Return the function that carries out tasks in this process; see `WorkerProcess` for the arguments."""
    # One thread a process: the harness runs as many processes as the user asks for.
    torch.set_num_threads(1)
    # Exporters log on every call.
    logging.disable(logging.CRITICAL)
    # Operators are judged by their family files, whichever process started the fork server.
    load_cases()
    # The fork server does the same with its own imports.
    gc.freeze()
    # An export makes graphs of many small objects; searching them for garbage again and again costs more than early
    # collection saves. So many take some two hundred megabytes, and most workers are replaced before.
    gc.set_threshold(2_000_000, 5, 5)
    return WorkerProcess(send, announce).serve


#: Cases of small tensors: some tens of megabytes.
_CASES_KEPT = 1024


class CannotStart(Exception):
    """A backend that seemed to be available does not start, in its own words: no case can be run in it."""


class WorkerProcess:
    """The resources of a task in its process: started converters and backends, and a way to send results.

    Args:
        send: Takes a handler's messages, and at last `Finished`.
        announce: Takes a handler's next step, which the session looks at if the process ends; far
            cheaper than a message. None if it is not read.
    """

    def __init__(self, send: Send, announce: Send | None = None) -> None:
        self.send = send
        self.announce = announce or _unheard
        self._announces = announce is not None
        self._starter = Starter()
        self._model: tuple[ModelSource, LoadedModel] | None = None
        self._file: tuple[ModelSource, LoadedFile] | None = None
        #: The models of the failing cases of the latest task.
        self.kept = KeptModels()
        #: The groups of the last tasks as PyTorch answered them: the same cases come again at each opset of a run.
        self.answered: Recent[Hashable, Member] = Recent(_CASES_KEPT)

    def serve(self, task: WorkerTask) -> None:
        """Carry out `task`, and say how that ended."""
        module, _, function = task.handler.partition(":")
        try:
            getattr(importlib.import_module(module), function)(task, self)
        except DeviceLost as error:
            self.send(Finished(lost=str(error) or "the device was lost"))
        except CannotStart as error:
            self.send(Finished(lost=str(error)))
        except Exception as error:
            # Exceptions of converters, backends and PyTorch are caught where they are called.
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            account = f"{OWN_FAULT}, please report it: {describe_error(error)} ({place})"
            self.send(Finished(lost=account, is_of_harness=True))
        else:
            self._send_notes()
            self.send(Finished())
        if any(backend.device != "cpu" for backend in self._starter.backends):
            # The failed handler is part of cycles with the loaded models, and a device has little memory.
            gc.collect()

    def _send_notes(self) -> None:
        """Send the converters' notes; the supervisor drops those that it knows."""
        for converter in self._starter.converters:
            for note in converter.notes if isinstance(converter, HasNotes) else ():
                self.send(Noted(note))

    def begin(self, step: Step, *, send: bool = False) -> None:
        """Announce the next step with some cases, or with `send` send it as a message."""
        if self._announces and not send and not step.known_results:
            try:
                self.announce(step)
            except ValueError:
                # The board has no room for so many cases.
                pass
            else:
                return
        # The announced step is over.
        self.announce(None)
        self.send(step)

    def start(self, name: str) -> Backend:
        """Start the backend called `name`, and send its facts to the supervisor for the record."""
        backend = self.backend(name)
        self.send(Started(name, backend.version, backend.device))
        return backend

    def backend(self, name: str) -> Backend:
        """Return the backend called `name`, started once."""
        try:
            return self._starter.backend(name)
        except DeviceLost:
            raise
        except Exception as error:
            raise CannotStart(f"{name} does not start: {describe_error(error)}") from error

    def model(self, source: ModelSource) -> LoadedModel:
        """Return the model that a source names, loaded once.

        Raises:
            ModelProblem: the model cannot be loaded.
            UnknownName: no registered model has that name.
        """
        if self._model is None or self._model[0] != source:
            model = load_model(source.word, source.variant)
            fed = feed_noise(model) if source.variant.noise else None
            self._model = source, fed or model
        return self._model[1]

    def file(self, source: ModelSource) -> LoadedFile:
        """Return the ONNX file that a source names, read once; raises as `load_file`."""
        if self._file is None or self._file[0] != source:
            self._file = source, load_file(source)
            for note in self._file[1].notes:
                self.send(Noted(note))
        return self._file[1]

    def structure(
        self,
        group: CaseGroup,
        source: ModelSource | None,
        route: Route,
        backend: str,
        tolerance: Tolerance | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> Structure:
        """Return what is exported for a group of cases: a call or program, a model, or a graph.

        Args:
            group: The cases; the nodes of a file are judged in the exported one.
            source: The model or file that they are runs of; None for calls, programs and drawn graphs.
            route: The route up to the backends.
            backend: The backend that runs a file.
            tolerance: The user's tolerance for the outputs of a model; None for the effect of roundings.
            alive: Called before each step that may take long.

        Raises:
            ModelProblem: the model or file cannot be loaded.
            UnknownName: no registered model has that name.
        """
        if source is None:
            if is_graph(group.exported):
                return self._graph_structure(group, route, backend)
            is_drawn = is_onnx_operator(group.exported.overload)
            return self._drawn_structure(group, route) if is_drawn else CallStructure.of(group)
        if source.is_graph:
            file = self.file(source)
            judges = Judges(self.backend(backend), self.backend(REFERENCE), group.exported, alive)

            def ask(invocation: Invocation) -> GraphOracle:
                return expect(file.model, tuple(_built_inputs_of(invocation)), judges, invocation)

            inputs = partial(_built_inputs, group)
            return GraphStructure(file.model, group.index, ask, backend, inputs=inputs)
        model, cases = self.model(source), group.invocations
        return ModelStructure(model, index=group.index, tolerance=tolerance, alive=alive, cases=cases)

    def _drawn_structure(self, group: CaseGroup, route: Route) -> GraphStructure:
        evaluator = self.backend(REFERENCE)
        known = None if group.is_forbidden else evaluator
        drawn = build_node(group.exported, known, opset=route.opset, index=group.index, is_open=route.dynamic)

        def ask(invocation: Invocation) -> DrawnOracle:
            expect_by = expect_refusal if group.is_forbidden else expect_by_definition
            return expect_by(drawn, invocation, evaluator)

        inputs = partial(_built_inputs, group)
        return GraphStructure(drawn.graph, group.index, ask, is_checked=True, is_whole_model=False, inputs=inputs)

    def _graph_structure(self, group: CaseGroup, route: Route, backend: str) -> GraphStructure:
        runtime, evaluator = self.backend(backend), self.backend(REFERENCE)
        built = build_graph(group.exported, opset=route.opset, index=group.index, is_open=route.dynamic)
        graph = declare_outputs(built, group.exported, partial(evaluate_plainly, runtime))

        def ask(invocation: Invocation) -> GraphOracle:
            return expect_unoptimised(graph, invocation, runtime, evaluator)

        inputs = partial(_built_inputs, group)
        return GraphStructure(graph, group.index, ask, backend, is_checked=True, is_whole_model=False, inputs=inputs)

    def converter(self, route: Route) -> tuple[Converter, RuleBook | None]:
        """Return the converter of a route, started once, with the user's rules for it."""
        known = len(self._starter.converters)
        started = self._starter.converter(route)
        if len(self._starter.converters) > known:
            for note in find_converter(route.converter).notes():
                self.send(Noted(note))
        return started


def _built_inputs(group: CaseGroup) -> Sequence[Sequence[Array]]:
    """Return the inputs of the cases of graphs."""
    return [_built_inputs_of(case) for case in group.invocations]


def _built_inputs_of(case: Invocation) -> Sequence[Array]:
    return [build_array(spec) for spec in case.tensors()]


def _unheard(message: object) -> None:
    pass
