"""Messages between the supervisor and the witnesses: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.compare.diagnosis import Testimony
from harness.compare.verdict import Outcome, Stage
from harness.core.route import Route
from harness.pipeline.model_task import ModelSource
from harness.pipeline.task import Group, Settings


@dataclass(frozen=True)
class FailureSummary:
    """A failure, as far as the decision needs it: where the case ended, how, and in what words.

    Attributes:
        route: The whole route of the case, up to the backend.
        raised_by: As in `Result`.
    """

    stage: Stage
    outcome: Outcome
    route: Route
    message: str = ""
    raised_by: str = ""

    @property
    def converter(self) -> str:
        """The name of the route's converter."""
        return self.route.converter

    @property
    def backend(self) -> str:
        """The name of the route's backend."""
        return self.route.backend


@dataclass(frozen=True, kw_only=True)
class Failure(FailureSummary):
    """A failure to find out about.

    Attributes:
        index: Unique within its task.
        group: Of the case; all of its cases, since they decide which dimensions are dynamic.
        case: Index of the failing one.
        model: What was loaded, cut down to the case's group, serialised.
        thorough: Whether witnesses that export again may be asked.
        example: Whether a person may want to know what cannot change the blame.
        outputs: Those that the failure is about; none for all.
        source: The model that the case is a run of; None for a call or a program.
    """

    index: int
    group: Group
    case: int
    model: bytes
    thorough: bool
    outputs: tuple[int, ...] = ()
    example: bool = True
    source: ModelSource | None = None


@dataclass(frozen=True)
class Decision:
    """Who is to blame, and by which rule.

    Attributes:
        blame: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        rule: A row of the decision table.
        facts: What the rule's sentence needs.
        testimony: Of all witnesses, the most telling first.
        inherited_from: Case id of the failure that was examined in place of this one.
        call: Of a program, the call that fails by itself, as JSON; "" where none does.
    """

    blame: str
    rule: str
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    testimony: tuple[Testimony, ...] = ()
    inherited_from: str = ""
    call: str = ""


@dataclass(frozen=True)
class BlameTask:
    """Failures to hear witnesses about.

    Attributes:
        dead: Failure index → witnesses that did not survive being asked about it.
        barred: Witnesses that are not to be asked about any.
    """

    handler: ClassVar[str] = "harness.blame.examine:carry_out"

    failures: tuple[Failure, ...]
    settings: Settings
    dead: tuple[tuple[int, str], ...] = ()
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Asking:
    """The witness that is about to be asked about a failure."""

    index: int
    witness: str


@dataclass(frozen=True)
class Blamed:
    """What was found out about a failure."""

    index: int
    decision: Decision
