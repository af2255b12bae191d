"""Diagnose the failures of a task where it ran: in its worker, on the models that failed and with their oracles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from harness.blame.examine import examine
from harness.blame.failure_context import FailureContext
from harness.blame.inaccuracy import find_explaining_node
from harness.blame.testimony import Asking, Blamed, BlameTask, Failure
from harness.blame.tracing import find_traced_path
from harness.compare.diagnosis import Diagnosis
from harness.convert.converter import Converter
from harness.pipeline.model_task import Traced
from harness.pipeline.worker import WorkerProcess
from harness.run.backend import DeviceLost

T = TypeVar("T")

#: Stands for the formulas of the graph's operators.
_FORMULAS = "the operators' formulas"
#: Stands for the path that the program takes for other inputs.
_TRACING = "the traced path"


class Examiner:
    """Looks into the failures of a task one by one, and tells the session each step before it is taken."""

    def __init__(self, task: BlameTask, worker: WorkerProcess) -> None:
        self._task = task
        self._worker = worker
        self._settings = task.task.settings
        self._exports: dict[tuple[int, str], object] = {}

    def diagnose(self, failure: Failure) -> Diagnosis:
        """Return the diagnosis of the witnesses, or that of the process before if it got as far."""
        index = failure.index
        if index in self._task.known:
            return self._task.known[index]

        def announce(witness: str) -> None:
            self._worker.announce(Asking(index, witness))
            if failure.source is not None:
                # A witness of a model may take long; it is waited for from here on.
                self._worker.send(Asking(index, witness))

        self._worker.announce(Asking(index, ""))
        dead = self._task.barred | {witness for i, witness in self._task.dead if i == index}
        decision = examine(self._context(failure), dead, announce)
        self._worker.announce(None)
        self._worker.send(Blamed(index, decision))
        return decision

    def find_formula(self, failure: Failure) -> Mapping[str, Any] | None:
        """Return the node whose formula explains a wrong result; None if none does, or if it cannot be told."""
        return self._ask(failure, _FORMULAS, find_explaining_node)

    def find_tracing(self, failure: Failure, *, example_passes: bool) -> Traced | None:
        """Return the path or size that tracing fixed, if that is the cause of a model's failure.

        Args:
            failure: The failure.
            example_passes: Whether the run with the exported example passes in the same backend.
        """
        return self._ask(failure, _TRACING, partial(find_traced_path, example_passes=example_passes))

    def _ask(self, failure: Failure, what: str, find: Callable[[FailureContext], T | None]) -> T | None:
        """Return what `find` finds; None if it raises, or if a process has died of it: other witnesses are asked."""
        if what in self._task.barred or (failure.index, what) in self._task.dead:
            return None
        asking = Asking(failure.index, what)
        self._worker.announce(asking)
        self._worker.send(asking)
        try:
            found = find(self._context(failure))
        except DeviceLost:
            raise
        except Exception:
            found = None
        self._worker.announce(None)
        return found

    def _context(self, failure: Failure) -> FailureContext:
        def converter(name: str) -> Converter:
            return self._worker.converter(replace(failure.route, converter=name))[0]

        alive = partial(self._worker.send, Asking(failure.index, ""))
        tolerance = self._settings.tolerance
        means = failure.source, failure.route, failure.backend, tolerance, alive
        structure = self._worker.structure(failure.group, *means)
        model, oracle = self._worker.kept.find(self._task.task.serial, failure.result.case)
        backend = self._worker.backend
        return FailureContext(failure, self._settings, converter, backend, self._exports, structure, model, oracle)
