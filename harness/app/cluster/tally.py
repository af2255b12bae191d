"""What shards that are under way tell of how far they are: for the progress line, no result hangs on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """Cases, and those of them that fail."""

    cases: int = 0
    failures: int = 0


class Tally:
    """Lives in a process of its own in the cluster, where all nodes reach it."""

    def __init__(self) -> None:
        self._counts: dict[int, Counts] = {}

    def note(self, attempt: int, cases: int, failures: int) -> None:
        """Take what an attempt, by its number, has by now."""
        self._counts[attempt] = Counts(cases, failures)

    def counts(self) -> dict[int, Counts]:
        """What attempts told of last."""
        return self._counts
