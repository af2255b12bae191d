"""What a run consists of, as the node that was asked says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a run consists of.

    Attributes:
        units: Their names.
        examples: Cases of each unit.
        backends: That take part.
        environment: Of the node that was asked.
    """

    units: tuple[str, ...] = ()
    examples: int = 0
    backends: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
