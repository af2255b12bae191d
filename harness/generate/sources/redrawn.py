"""Drawn calls whose arguments failed early, drawn again: they follow from a run's failures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.generate.sources.source import Request, SourceFinding


@dataclass(frozen=True)
class Redrawn:
    """Asks for calls that a run can only find once the drawn cases of an operator have run.

    `harness.plan.second_draw` finds them.
    """

    name = "redrawn"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return ()

    def find(self, request: Request) -> SourceFinding:
        """Return nothing: before the run nothing has failed."""
        return SourceFinding()
