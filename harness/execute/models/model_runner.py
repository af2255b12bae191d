"""Carry out one model's task: reference, convert, check, load, run, compare. Runs in the worker process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from harness.compare import Outcome, Stage, compare
from harness.convert import Converter, RuleBook, UnsupportedOperator
from harness.core import PRECISION, Array, describe_error
from harness.execute.batch_export import check_opset
from harness.execute.models.model_cases import cases_of
from harness.execute.models.model_export import export_of, feeds_of, input_names
from harness.execute.models.model_loading import load_model
from harness.execute.models.model_reference import ModelReference, run_model
from harness.execute.models.model_task import Growth, ModelCases, ModelTask
from harness.execute.models.traced import explanations
from harness.execute.program import emitted_opset
from harness.execute.task import Result, Step
from harness.run import Backend, BackendSession, DeviceLost, ShapeRange, UnsupportedModel

#: Seconds of a forward pass up to which the error of a result that passes is looked into.
_QUICK = 0.5


class ModelExecutor:
    """Puts one model through one converter and some started backends.

    Args:
        task: What to do.
        converter: Started.
        backends: The task's, started.
        send: Takes messages as they come; each `Step` before the step is taken.
        book: The user's rules that the converter was started with.
    """

    def __init__(
        self,
        task: ModelTask,
        converter: Converter,
        backends: Mapping[str, Backend],
        send: Callable[[Any], None],
        book: RuleBook | None = None,
    ) -> None:
        self._task = task
        self._converter = converter
        self._backends = {name: backends[name] for name in task.backends}
        self._send = send
        self._book = book
        self._references: dict[int, ModelReference] = {}
        self._results: dict[tuple[int, str], Result] = {}
        self._is_quick = True

    def execute(self) -> None:
        """Do the whole task; every case gets one `Result` per backend unless the process dies.

        Raises:
            ModelProblem: the model cannot be had.
        """
        self._step(Step(Stage.REFERENCE, None, ()))
        self._model = load_model(self._task.word)
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
            except Exception as error:
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
            self._model, cases, self._references, self._results, self._converter, self._backends, self._task
        ):
            self._send(found)

    # Stages

    def _convert(self) -> tuple[onnx.ModelProto | None, float]:
        keys = tuple((0, index) for index in self._references)
        self._step(Step(Stage.CONVERT, None, keys))
        started = time.perf_counter()
        try:
            settings = self._task.settings
            model = self._converter.convert(export_of(self._model, settings.dynamic, settings.opset))
        except Exception as error:
            outcome = Outcome.UNSUPPORTED if isinstance(error, UnsupportedOperator) else Outcome.ERROR
            for index in self._references:
                self._report(index, None, Stage.CONVERT, outcome, describe_error(error), blame="converter")
            return None, 0.0
        elapsed = 1e3 * (time.perf_counter() - started)
        self._step(Step(Stage.CHECK, None, keys))
        try:
            check_opset(model, self._task.settings.opset)
            _check(model, len(next(iter(self._references.values())).expected))
        except Exception as error:
            for index in self._references:
                said = describe_error(error)
                self._report(index, None, Stage.CHECK, Outcome.ERROR, said, blame="converter")
            return None, elapsed
        return model, elapsed

    def _one_backend(self, name: str, model: onnx.ModelProto, convert_ms: float) -> None:
        pending = [i for i in self._references if (i, name) not in self._task.done]
        backend = self._backends[name]
        dtypes = {d for i in pending for d in self._references[i].dtypes}
        narrowed = next(((d, n) for d in sorted(dtypes) if (n := backend.narrows(d))), None)
        facts = {"opset": emitted_opset(model), "convert_ms": convert_ms / max(len(pending), 1)}
        if narrowed is not None:
            said = f"{name} silently computes {narrowed[0]} in {narrowed[1]}"
            for index in pending:
                self._report(index, name, Stage.LOAD, Outcome.NARROWED, said, **facts)
            return
        self._step(Step(Stage.LOAD, name, tuple((0, i) for i in pending)))
        started = time.perf_counter()
        try:
            session = backend.load(model, self._shape_ranges(model) if self._task.settings.dynamic else None)
        except DeviceLost:
            raise
        except Exception as error:
            for index in pending:
                self._report_backend(index, name, Stage.LOAD, error, facts)
            return
        facts["load_ms"] = 1e3 * (time.perf_counter() - started) / max(len(pending), 1)
        for index in pending:
            if session.runnable:
                self._run(index, name, session, model, facts)
            else:
                self._report(index, name, Stage.LOAD, Outcome.BUILT, "", **facts)

    def _run(
        self, index: int, name: str, session: BackendSession, model: onnx.ModelProto, facts: Mapping[str, Any]
    ) -> None:
        reference = self._references[index]
        self._step(Step(Stage.RUN, name, ((0, index),)))
        started = time.perf_counter()
        try:
            outputs = session.run(feeds_of(self._model, reference, model))
        except DeviceLost:
            raise
        except Exception as error:
            self._report_backend(index, name, Stage.RUN, error, facts)
            return
        run_ms = 1e3 * (time.perf_counter() - started)
        self._step(Step(Stage.COMPARE, name, ((0, index),)))
        comparison = compare(reference.judge, reference, outputs)
        wrong = comparison.problem is not None
        self._report(
            index,
            name,
            Stage.COMPARE,
            Outcome.MISMATCH if wrong else Outcome.PASS,
            f"{comparison.problem}: {comparison.detail}" if wrong else "",
            blame="unknown" if wrong else "",
            comparison=comparison,
            run_ms=run_ms,
            **facts,
        )
        # Float64 is asked several times over: of what passes, for the example alone.
        if comparison.max_abs_error is not None and (wrong or (index == 0 and self._is_quick)):
            grown = growth(index, name, reference, outputs)
            if grown is not None:
                self._send(grown)

    # Helpers

    def _step(self, step: Step) -> None:
        self._now = step
        self._send(step)

    def _still(self) -> None:
        """Say that the step goes on, so that it is not taken for a hang."""
        self._send(self._now)

    def _shape_ranges(self, model: onnx.ModelProto) -> dict[str, ShapeRange]:
        present = {value.name for value in model.graph.input}
        ranges = {}
        for j, name in enumerate(input_names(self._model)):
            if name in present:
                seen = [r.feeds[j].shape for r in self._references.values()]
                ranges[name] = ShapeRange(
                    min=tuple(map(min, zip(*seen, strict=True))),
                    opt=seen[0],
                    max=tuple(map(max, zip(*seen, strict=True))),
                )
        return ranges

    def _report_backend(
        self, index: int, name: str, stage: Stage, error: Exception, facts: Mapping[str, Any]
    ) -> None:
        unsupported = isinstance(error, UnsupportedModel)
        outcome = Outcome.UNSUPPORTED if unsupported else Outcome.ERROR
        blame = "backend" if unsupported else "unknown"
        self._report(index, name, stage, outcome, describe_error(error), blame=blame, **facts)

    def _report(
        self,
        index: int,
        backend: str | None,
        stage: Stage,
        outcome: Outcome,
        message: str,
        **more: Any,
    ) -> None:
        rule = ", ".join(sorted(self._book.fired)) if self._book else ""
        results = [
            Result(
                case=(0, index),
                backend=name,
                stage=stage,
                outcome=outcome,
                message=message,
                rule=rule,
                **more,
            )
            for name in ([backend] if backend is not None else self._backends)
            if (index, name) not in self._task.done
        ]
        self._results.update({(index, r.backend): replace(r, comparison=None) for r in results})
        self._send(results)


def _check(model: onnx.ModelProto, outputs: int) -> None:
    if len(model.graph.output) != outputs:
        found = len(model.graph.output)
        raise ValueError(f"the model returns {outputs} tensors, the graph has {found} outputs")
    onnx.checker.check_model(model, full_check=True)


def growth(index: int, backend: str, reference: ModelReference, outputs: Sequence[Array]) -> Growth | None:
    """How errors grew; None where float64 has no answer or nothing is floating."""
    truth, moved = reference.truth, reference.sensitivity
    if truth is None or moved is None:
        return None
    found = []
    for e, g, o, s in zip(reference.expected, outputs, truth, moved, strict=True):
        if o is None or s is None or str(e.dtype) not in PRECISION or not o.size or g.shape != o.shape:
            continue
        with np.errstate(all="ignore"):
            errors = (np.abs(g.astype(np.float64) - o), np.abs(e.astype(np.float64) - o), s.condition)
            finite = np.isfinite(o) & np.isfinite(errors[0]) & np.isfinite(errors[1])
            # A mask's lowest number is no scale.
            scale = float(np.abs(o[finite]).max(initial=0.0))
            if scale > 0:
                found.append(tuple(float(error[finite].max()) / scale for error in errors))
    if not found:
        return None
    return Growth(index, backend, *max(found))
