"""The search for the first divergence of a model, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.pipeline.models.model_task import AS_MADE, Variant
from harness.pipeline.task import Settings


@dataclass(frozen=True, kw_only=True)
class DivergeTask:
    """The run (by its index) of the model that the user named, whose wrong result is to be examined."""

    handler: ClassVar[str] = "harness.models.divergence:carry_out"

    word: str
    converter: str
    backend: str
    settings: Settings
    case: int
    variant: Variant = AS_MADE
