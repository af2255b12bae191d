"""Carry out one model's task: reference, convert, check, load, run, compare. Runs in the worker process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.compare.verdict import UNKNOWN, Outcome, Stage
from harness.convert.converter import UnsupportedOperator
from harness.core.documents import describe_error
from harness.core.dtypes import PRECISION
from harness.core.plugins import UnknownName
from harness.pipeline.models.model_cases import cases_of, export_of, feeds_of
from harness.pipeline.models.model_judge import error_growth, judge_outputs, output_errors
from harness.pipeline.models.model_loading import LoadedModel, ModelProblem, load_model
from harness.pipeline.models.model_reference import ModelReference, run_model
from harness.pipeline.models.model_task import ModelCases, ModelTask, NoModel, OutputErrors
from harness.pipeline.models.traced import explanations
from harness.pipeline.placement import placement_of
from harness.pipeline.run_steps import (
    StepFailure,
    check_model,
    emitted_opset,
    load_step,
    narrowing,
    run_step,
    shape_ranges,
    why_not_right,
)
from harness.pipeline.task import Result, Step
from harness.pipeline.worker import WorkerProcess
from harness.run.artefact import AnyModel
from harness.run.backend import BackendSession

#: Seconds of a forward pass up to which the error of a result that passes is examined.
_QUICK = 0.5


def carry_out(task: ModelTask, worker: WorkerProcess) -> None:
    """Run the model's cases; what a model cannot be had for is sent in its own words."""
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        # First: a rule may be for an operator that the model's file defines.
        model = load_model(task.word, task.variant)
        ModelExecutor(task, worker, model).execute()
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))


class ModelExecutor:
    """Puts one model through its task's converter and backends; says each `Step` before it is taken."""

    def __init__(self, task: ModelTask, worker: WorkerProcess, model: LoadedModel) -> None:
        self._task = task
        self._model = model
        self._converter, self._book = worker.converter(task.converter, task.settings)
        self._backends = {name: worker.start(name) for name in task.backends}
        self._send = worker.send
        self._references: dict[int, ModelReference] = {}
        self._results: dict[tuple[int, str], Result] = {}
        self._is_quick = True

    def execute(self) -> None:
        """Do the whole task; every case gets one `Result` per backend unless the process dies."""
        self._step(Step(Stage.REFERENCE, None, ()))
        cases = cases_of(self._model, self._task.settings.dynamic)
        self._send(ModelCases(cases))
        for index, case in enumerate(cases):
            if all((index, backend) in self._task.done for backend in self._backends):
                continue
            self._step(Step(Stage.REFERENCE, None, ((0, index),)))
            started = time.perf_counter()
            try:
                self._references[index] = run_model(self._model, case.invocation)
                self._references[index].alive = self._still
                self._is_quick &= time.perf_counter() - started < _QUICK
                if _is_nan_throughout(self._references[index]):
                    raise ValueError("PyTorch's own result is NaN throughout")
            except Exception as error:
                self._references.pop(index, None)
                self._report(index, None, Stage.REFERENCE, Outcome.SKIP, describe_error(error))
        if not self._references:
            return
        model, convert_ms = self._convert()
        if model is not None:
            for name in self._backends:
                self._one_backend(name, model, convert_ms)
        # What comes now may fail as it likes: every verdict is given.
        self._step(Step(Stage.COMPARE, None, ()))
        for found in explanations(
            self._model, cases, self._references, self._results, self._converter, self._backends, self._task, model
        ):
            self._send(found)

    # Stages

    def _convert(self) -> tuple[AnyModel | None, float]:
        keys = tuple((0, index) for index in self._references)
        self._step(Step(Stage.CONVERT, None, keys))
        started = time.perf_counter()
        settings = self._task.settings
        try:
            model = self._converter.convert(export_of(self._model, settings.dynamic, settings.opset))
        except Exception as error:
            outcome = Outcome.UNSUPPORTED if isinstance(error, UnsupportedOperator) else Outcome.ERROR
            self._fail(self._references, None, StepFailure(Stage.CONVERT, outcome, error))
            return None, 0.0
        elapsed = 1e3 * (time.perf_counter() - started)
        self._step(Step(Stage.CHECK, None, keys))
        try:
            check_model(model, settings.opset, len(next(iter(self._references.values())).expected), "model")
        except Exception as error:
            self._fail(self._references, None, StepFailure(Stage.CHECK, Outcome.ERROR, error))
            return None, elapsed
        return model, elapsed

    def _one_backend(self, name: str, model: AnyModel, convert_ms: float) -> None:
        pending = [i for i in self._references if (i, name) not in self._task.done]
        backend = self._backends[name]
        arrays = (array for i in pending for r in [self._references[i]] for array in (*r.feeds, *r.expected))
        narrowed = narrowing(name, backend, arrays)
        facts: dict[str, Any] = {
            "opset": emitted_opset(model),
            "convert_ms": convert_ms / max(len(pending), 1),
        }
        if narrowed and not narrowed.of_integers:
            for index in pending:
                self._report(index, name, Stage.LOAD, Outcome.NARROWED, narrowed.words, **facts)
            return
        self._step(Step(Stage.LOAD, name, tuple((0, i) for i in pending)))
        ranges = None
        if self._task.settings.dynamic:
            shapes = [[array.shape for array in r.feeds] for r in self._references.values()]
            ranges = shape_ranges(model, self._model.input_names, shapes)
        started = time.perf_counter()
        session = load_step(backend, model, ranges)
        if isinstance(session, StepFailure):
            self._fail(pending, name, session, facts)
            return
        facts["load_ms"] = 1e3 * (time.perf_counter() - started) / max(len(pending), 1)
        if session.runnable:
            facts["placement"] = placement_of(session, model)
        for index in pending:
            if session.runnable:
                self._run(index, name, session, model, facts)
            else:
                self._report(index, name, Stage.LOAD, Outcome.BUILT, "", **facts)

    def _run(self, index: int, name: str, session: BackendSession, model: AnyModel, facts: Mapping[str, Any]) -> None:
        reference = self._references[index]
        self._step(Step(Stage.RUN, name, ((0, index),)))
        started = time.perf_counter()
        outputs = run_step(session, feeds_of(self._model, reference, model))
        if isinstance(outputs, StepFailure):
            self._fail([index], name, outputs, facts)
            return
        run_ms = 1e3 * (time.perf_counter() - started)
        self._step(Step(Stage.COMPARE, name, ((0, index),)))
        tolerance = self._task.settings.tolerance
        comparison = judge_outputs(reference, outputs, tolerance)
        wrong = comparison.problem is not None
        arrays = (*reference.feeds, *reference.expected)
        why = why_not_right(name, self._backends[name], arrays, comparison.problems) if wrong else ""
        if why:
            self._report(index, name, Stage.COMPARE, Outcome.NARROWED, why, run_ms=run_ms, **facts)
            return
        self._report(
            index,
            name,
            Stage.COMPARE,
            Outcome.MISMATCH if wrong else Outcome.PASS,
            comparison.message,
            blame=UNKNOWN if wrong else "",
            comparison=comparison,
            run_ms=run_ms,
            **facts,
        )
        if wrong:
            self._send(OutputErrors(index, name, tuple(output_errors(reference, outputs, tolerance))))
        # Float64 is asked several times over: of what passes, for the example alone.
        if comparison.max_abs_error is not None and (wrong or (index == 0 and self._is_quick)):
            grown = error_growth(index, name, reference, outputs)
            if grown is not None:
                self._send(grown)

    # Helpers

    def _step(self, step: Step) -> None:
        self._now = step
        self._send(step)

    def _still(self) -> None:
        """Say that the step goes on, so that it is not taken for a hang."""
        self._send(self._now)

    def _fail(
        self,
        cases: Iterable[int],
        backend: str | None,
        failure: StepFailure,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        message = describe_error(failure.error)
        more = {"blame": failure.blame, **(facts or {})}
        for index in cases:
            self._report(index, backend, failure.stage, failure.outcome, message, **more)

    def _report(
        self, index: int, backend: str | None, stage: Stage, outcome: Outcome, message: str, **more: Any
    ) -> None:
        rule = ", ".join(sorted(self._book.fired)) if self._book else ""
        more = {"stage": stage, "outcome": outcome, "message": message, "rule": rule, **more}
        results = [
            Result(case=(0, index), backend=name, **more)
            for name in ([backend] if backend is not None else self._backends)
            if (index, name) not in self._task.done
        ]
        self._results.update({(index, r.backend): replace(r, comparison=None) for r in results})
        self._send(results)


def _is_nan_throughout(reference: ModelReference) -> bool:
    """Whether there is nothing that a result could be compared with."""
    elements = [array for array in reference.expected if array.size]
    return bool(elements) and all(
        str(array.dtype) in PRECISION and bool(np.isnan(array.astype(np.float64)).all()) for array in elements
    )
