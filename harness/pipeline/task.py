"""The plain values that travel between the session and a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from harness.compare.tolerances import Tolerance
from harness.compare.verdict import Stage
from harness.core.case_group import CaseGroup, MemberKey
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.case_run import CaseRun
from harness.pipeline.model_task import ModelSource


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings for executing tasks, whatever their route.

    Attributes:
        batch_size: Structures per export.
        blame: Whether to find the component to blame for each failure.
        witnesses: Backends that are asked about another backend's failure; None for those whose
            `BackendEntry` allows it.
        last_witnesses: Backends that are asked only if the failure cannot be decided without them.
        runs: Maximum number of runs of a case that draws at random, to find a known failure.
        tolerance: The user's tolerance for the outputs of a model; None for the effect of roundings.
        strict_device: Whether a case is unsupported of which a part ran on another device than the backend's.
    """

    batch_size: int = 64
    blame: bool = True
    witnesses: tuple[str, ...] | None = None
    last_witnesses: tuple[str, ...] | None = None
    runs: int = 1
    tolerance: Tolerance | None = None
    strict_device: bool = False


@dataclass(frozen=True)
class Task:
    """Groups to export and to run in some backends.

    Attributes:
        route: The route up to the backends, which share its artefact.
        model: The model that the groups are runs of; None for calls and programs.
        serial: The number of the task; its parts, after a death, keep it.
        shortened_timeouts: Backends that get a shorter time limit with these groups → the reason, as the end of a
            message.
    """

    handler: ClassVar[str] = "harness.pipeline.run_batch:run_batch"

    groups: tuple[CaseGroup, ...]
    route: Route
    backends: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    model: ModelSource | None = None
    serial: int = 0
    shortened_timeouts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ResizeTask:
    """Invocations to find other valid sizes for, for dynamic exports: `count` variants of each base."""

    handler: ClassVar[str] = "harness.pipeline.resize:carry_out"

    bases: tuple[tuple[int, Invocation], ...]
    count: int


@dataclass(frozen=True)
class Resized:
    """The variants found for one base."""

    index: int
    variants: tuple[Invocation, ...]


@dataclass(frozen=True)
class Step:
    """The worker's next step with its cases; if the worker dies or hangs, this step was the cause.

    The backend is None except at the stages `LOAD`, `RUN` and `COMPARE`. `known_results` has the results of its cases
    if these are known already, and the step only looks for more: they hold if the worker does not survive it.
    `is_forbidden` says that the text of their operator forbids the cases.
    """

    stage: Stage
    backend: str | None
    cases: tuple[MemberKey, ...]
    known_results: tuple[CaseRun, ...] = ()
    is_forbidden: bool = False


@dataclass(frozen=True)
class Started:
    """A backend has been started; its facts for the record."""

    backend: str
    version: str
    device: str


@dataclass(frozen=True)
class Noted:
    """A converter has been started of which a person should know something: a line."""

    note: str


@dataclass(frozen=True)
class Finished:
    """The task is over.

    Attributes:
        lost: Why it is not done, and the process must not be used again: a device is lost, or something went wrong
            within the harness; "" if it is done.
        is_of_harness: Whether it is the harness itself that failed.
    """

    lost: str = ""
    is_of_harness: bool = False


#: The message that the harness itself failed.
OWN_FAULT = "the harness itself failed"


class WorkerTask(Protocol):
    """A task for a worker: a plain value."""

    @property
    def handler(self) -> str:
        """The function that carries it out, as ``module:function``; the worker calls it with the task and
        itself, a `harness.pipeline.worker.WorkerProcess`. Its module is imported in the worker only."""
