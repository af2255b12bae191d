"""The cases of a recorded run, in place of every other source."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.generate.recorded_case import Replayed
from harness.generate.sources.source import Request, SourceFinding, grouped


@dataclass(frozen=True)
class FromRecord:
    """Replays what it is given, whatever is requested."""

    replayed: tuple[Replayed, ...]

    @property
    def name(self) -> str:
        """See `harness.generate.sources.source.Source`."""
        return "replay"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return {recorded.invocation.overload for recorded in self.replayed}

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        return SourceFinding(
            grouped([(recorded.invocation, recorded.exported) for recorded in self.replayed])
        )
