"""The search for the first divergence of a model, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.execute import Settings


@dataclass(frozen=True, kw_only=True)
class DivergeTask:
    """A model's wrong result whose beginning is to be found.

    Attributes:
        word: As the user named the model.
        converter: Name.
        backend: Name.
        settings: Of the export.
        case: Index of the run.
    """

    handler: ClassVar[str] = "harness.analyse.divergence.first_divergence:carry_out"

    word: str
    converter: str
    backend: str
    settings: Settings
    case: int
