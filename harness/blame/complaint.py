"""What travels between the processes when the blame for failures is looked for: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.compare import Outcome, Stage
from harness.execute import Group, Settings


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """A failure to find out about.

    Attributes:
        index: Unique within its task.
        group: Of the case; all of its cases, since they decide which dimensions are dynamic.
        case: Index of the failing one.
        converter: Name.
        backend: Name.
        stage: Where the case ended.
        outcome: How.
        message: The failure's own words.
        model: What was loaded, cut down to the case's group, serialised.
        thorough: Whether witnesses that export again may be asked.
    """

    index: int
    group: Group
    case: int
    converter: str
    backend: str
    stage: Stage
    outcome: Outcome
    message: str
    model: bytes
    thorough: bool


@dataclass(frozen=True)
class BlameTask:
    """Failures to hear witnesses about.

    Attributes:
        complaints: The failures.
        settings: The run's.
        dead: Complaint index → witnesses that did not survive being asked about it.
        barred: Witnesses that are not to be asked about any.
    """

    handler: ClassVar[str] = "harness.blame.examine:carry_out"

    complaints: tuple[Complaint, ...]
    settings: Settings
    dead: tuple[tuple[int, str], ...] = ()
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Asking:
    """The witness that is about to be asked about a complaint."""

    index: int
    witness: str


@dataclass(frozen=True)
class Blamed:
    """What was found out about a complaint."""

    index: int
    blame: str
    evidence: str
