"""What travels between the process that supervises and the process that works: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from harness.invocation import Invocation
from harness.verdict.compare import Comparison
from harness.verdict.verdict import Outcome, Stage

#: (group index, case index within the group): names a case within a task.
CaseKey: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Group:
    """Cases that share one exported structure.

    Attributes:
        index: Unique within a unit; names the group's inputs and outputs in a batch.
        exported: The invocation whose shapes are exported.
        cases: Case index → invocation to run. In a static group all have the structure of
            `exported`; in a dynamic one they differ in shapes.
    """

    index: int
    exported: Invocation
    cases: tuple[tuple[int, Invocation], ...]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How tasks are carried out; the same for a whole run.

    Attributes:
        opset: To emit; None for the converter's default.
        batch_size: Structures per export.
        public_api: Let converters keep nothing between exports.
        dynamic: Export with dynamic dimensions.
        rules: Files of conversion functions to use in place of the converter's own.
    """

    opset: int | None = None
    batch_size: int = 64
    public_api: bool = False
    dynamic: bool = False
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """Groups to put through one converter and some backends."""

    groups: tuple[Group, ...]
    converter: str
    backends: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True)
class ResizeTask:
    """Invocations to find other valid sizes for, for dynamic exports.

    Attributes:
        bases: Index → invocation.
        count: Variants wanted of each.
    """

    bases: tuple[tuple[int, Invocation], ...]
    count: int


@dataclass(frozen=True)
class Resized:
    """The variants found for one base."""

    index: int
    variants: tuple[Invocation, ...]


@dataclass(frozen=True)
class Step:
    """What the worker is about to do; if it dies or hangs, this is what it was doing.

    Attributes:
        stage: Of the pipeline.
        backend: At stages `LOAD`, `RUN` and `COMPARE`, else None.
        cases: All that take part.
    """

    stage: Stage
    backend: str | None
    cases: tuple[CaseKey, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one case with one backend; a `Verdict` without what the supervisor knows."""

    case: CaseKey
    backend: str
    stage: Stage
    outcome: Outcome
    blame: str = ""
    evidence: str = ""
    message: str = ""
    comparison: Comparison | None = None
    rule: str = ""
    opset: int | None = None
    convert_ms: float | None = None
    load_ms: float | None = None
    run_ms: float | None = None


@dataclass(frozen=True)
class Ready:
    """The process is up and waits for its first task."""


@dataclass(frozen=True)
class Started:
    """A backend has been started; its facts for the record."""

    backend: str
    version: str
    device: str


@dataclass(frozen=True)
class Finished:
    """The task is done; `lost` tells that the process must not be used again (a lost device)."""

    lost: str = ""


Message: TypeAlias = "Ready | Step | list[Result] | Started | Resized | Finished"
