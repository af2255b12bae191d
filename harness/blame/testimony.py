"""The failures of a task, and the messages with which a worker diagnoses them: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from harness.compare.diagnosis import Diagnosis
from harness.compare.verdict import Outcome, Stage
from harness.core.case_group import CaseGroup
from harness.core.route import Route
from harness.pipeline.case_run import CaseRun
from harness.pipeline.model_task import ModelSource
from harness.pipeline.task import Task


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure to diagnose.

    Attributes:
        index: Unique within its task.
        result: The result of the case.
        route: The whole route of the case, up to the backend.
        group: The group of the case with all of its cases, since they decide which dimensions are dynamic.
        source: The model that the case is a run of; None for a call or a program.
    """

    index: int
    result: CaseRun
    route: Route
    group: CaseGroup
    source: ModelSource | None = None

    @property
    def case(self) -> int:
        """The index of the case in its group."""
        return self.result.case[1]

    @property
    def stage(self) -> Stage:
        """The stage at which the case ended."""
        return self.result.stage

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of the case."""
        return self.result.outcome

    @property
    def converter(self) -> str:
        """The name of the route's converter."""
        return self.route.converter

    @property
    def backend(self) -> str:
        """The name of the route's backend."""
        return self.route.backend


@dataclass(frozen=True)
class BlameTask:
    """The failures of a task, which the worker that ran it diagnoses.

    A worker that dies is replaced, and the next one gets what is known by then. The choice of the failures to examine
    depends on the diagnoses alone, so it goes on where the other stopped.

    Attributes:
        task: The task.
        results: Its failures.
        known: Index of a problem → its diagnosis by the witnesses, as far as they have been heard.
        dead: Pairs of a problem's index and a witness that did not survive being asked about it.
        barred: Witnesses that are not to be asked about any.
    """

    handler: ClassVar[str] = "harness.blame.examined_failures:carry_out"

    task: Task
    results: tuple[CaseRun, ...]
    known: Mapping[int, Diagnosis] = field(default_factory=dict)
    dead: frozenset[tuple[int, str]] = frozenset()
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Asking:
    """The witness that is about to be asked about a failure; "" before the first."""

    index: int
    witness: str


@dataclass(frozen=True)
class Blamed:
    """A problem's diagnosis by the witnesses."""

    index: int
    diagnosis: Diagnosis
