"""A route with its converter and its backend, which `harness.pipeline.start` has started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.route import Route
from harness.run.backend import Backend

if TYPE_CHECKING:
    # Goldens are run without PyTorch.
    from harness.convert.converter import Converter


@dataclass(frozen=True, eq=False)
class StartedRoute:
    """A route whose converter and backend have been started.

    Attributes:
        route: The route.
        converter: None for cases that are graphs already.
        backend: None for a route that ends with the artefact.
    """

    route: Route
    converter: Converter | None = None
    backend: Backend | None = None
