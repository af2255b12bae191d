"""What a call of a model costs on one route: its time, the memory that it leaves, and the accuracy of its result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import psutil

from harness.compare.verdict import Stage
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.core.text import first_line
from harness.pipeline.first_run import ask_first_run, make_first_run
from harness.pipeline.model_task import ModelSource
from harness.pipeline.run_accuracy import measure_accuracy
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Step
from harness.pipeline.worker import WorkerProcess

#: Calls before anything is measured: the first ones allocate and choose kernels.
_WARM_UP = 20
#: Seconds of a block of calls: shorter ones are at the mercy of the clock and of other processes.
_BLOCK = 0.01
_BLOCKS = 25
#: Places at which memory is read, and calls between two of them.
_READINGS, _CALLS_BETWEEN = 13, 20


@dataclass(frozen=True)
class Figures:
    """What a call of a model costs.

    Attributes:
        milliseconds: The median time of a call.
        memory: Bytes of resident memory that a call leaves: the median slope between readings (Theil–Sen).
        sqnr: The ratio of the outputs' energy to that of their errors, in decibels; None without an error.
        flips: Rows whose largest element is another one than PyTorch's.
        rows: Number of rows.
        problem: Why there are no figures; "" if there are.
    """

    milliseconds: float = 0.0
    memory: float = 0.0
    sqnr: float | None = None
    flips: int = 0
    rows: int = 0
    problem: str = ""


@dataclass(frozen=True)
class MeasureTask:
    """Measure the first run of a model on a route."""

    handler: ClassVar[str] = "harness.pipeline.measuring:carry_out"

    source: ModelSource
    route: Route
    invocation: Invocation


def measure_model(source: ModelSource, route: Route, supervisor: Supervisor) -> Figures:
    """Return what a call of a model costs on a route.

    Raises:
        ModelProblem: The model cannot be loaded.
    """
    answer = ask_first_run(source, route, supervisor, lambda run: MeasureTask(source, route, run), Figures)
    return Figures(problem=answer) if isinstance(answer, str) else answer


def carry_out(task: MeasureTask, worker: WorkerProcess) -> None:
    """Load the model in a worker, call it, and send the figures."""
    worker.begin(Step(Stage.RUN, task.route.backend, ()), send=True)
    try:
        figures = _measure(task, worker)
    except Exception as error:
        figures = Figures(problem=first_line(error))
    worker.send(figures)


def _measure(task: MeasureTask, worker: WorkerProcess) -> Figures:
    route, backend = task.route, worker.start(task.route.backend)
    case, artefact = make_first_run(task.source, route, task.invocation, worker)
    session = backend.load(artefact, case.shape_ranges(artefact) if route.dynamic else None)
    if not session.runnable:
        raise ValueError(f"{route.backend} cannot run here")
    feeds = case.feeds(artefact)
    outputs = session.run(feeds)

    def call() -> None:
        session.run(feeds)

    figures = Figures(milliseconds=_time(call), memory=_left_memory(call))
    accuracy = measure_accuracy(case.oracle.expected, outputs)
    if accuracy is None:
        return figures
    return replace(figures, sqnr=accuracy.sqnr, flips=accuracy.top1, rows=accuracy.rows)


def _time(call: Callable[[], None]) -> float:
    """Return the median time of a call, in milliseconds."""
    began = time.perf_counter()
    for _ in range(_WARM_UP):
        call()
    each = (time.perf_counter() - began) / _WARM_UP
    calls = max(1, round(_BLOCK / max(each, 1e-7)))
    times = []
    for _ in range(_BLOCKS):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - began) / calls)
    return statistics.median(times) * 1e3


def _left_memory(call: Callable[[], None]) -> float:
    """Return the bytes of resident memory that a call leaves."""
    process, readings = psutil.Process(), list[int]()
    for _ in range(_READINGS):
        for _ in range(_CALLS_BETWEEN):
            call()
        readings.append(process.memory_info().rss)
    low, high = np.triu_indices(_READINGS, 1)
    values = np.array(readings, np.float64)
    return float(np.median((values[high] - values[low]) / ((high - low) * _CALLS_BETWEEN)))
