"""Calls and programs that follow from what a run has met: arguments that failed early, passes that fired."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.generate.sources.source import Request, SourceFinding


@dataclass(frozen=True)
class Redrawn:
    """Asks for cases that a run can only find once the drawn cases of an operator or a pattern have run.

    `harness.plan.second_draw` finds calls, and `harness.plan.firing_programs` programs.
    """

    name = "redrawn"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return ()

    def find(self, request: Request) -> SourceFinding:
        """Return nothing: before the run nothing is known."""
        return SourceFinding()
