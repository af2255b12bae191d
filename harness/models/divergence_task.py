"""The search for the first divergence of a model, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.core.route import Route
from harness.pipeline.model_task import ModelSource
from harness.pipeline.task import Settings


@dataclass(frozen=True, kw_only=True)
class DivergeTask:
    """The run (by its index) of the model that the user named, whose wrong result is to be examined."""

    handler: ClassVar[str] = "harness.models.divergence:carry_out"

    source: ModelSource
    route: Route
    settings: Settings
    case: int
