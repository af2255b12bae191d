"""What a person sees of a run on a cluster while it goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import IO

from harness.cluster.schedule import Attempt, AttemptReport, Counts, Schedule
from harness.core.text import count
from harness.present.session_lines import duration

#: Seconds between lines, where one can be rewritten and where it cannot.
_LIVE, _QUIET = 1.0, 15.0


class ClusterProgress:
    """A line on `stream` of how far the run is, and a line for each thing that went wrong."""

    def __init__(
        self, schedule: Schedule, shards: int, stream: IO[str] = sys.stdout, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin to count.

        Args:
            shards: Of the whole run, those included that were recorded before.
        """
        self._schedule = schedule
        self._shards = shards
        self._before = shards - len(schedule.waiting)
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._shown = float("-inf")
        self._live = stream.isatty()

    def show(self, nodes: int, slots: int, told: Callable[[], Mapping[Attempt, Counts]]) -> None:
        """Say how far the run is, if the last time is long enough ago."""
        if self._clock() - self._shown < (_LIVE if self._live else _QUIET):
            return
        self._shown = self._clock()
        self._write(self.line(nodes, slots, told()), end="" if self._live else "\n")

    def line(self, nodes: int, slots: int, told: Mapping[Attempt, Counts] = MappingProxyType({})) -> str:
        """``1,234 cases, 58.2/s, 12/180 shards, 3 nodes, 4 failures, 1 lost, 2:31 left``.

        `told` has what attempts that run told of by now.
        """
        schedule = self._schedule
        reports = list(schedule.done.values())
        counted: list[AttemptReport | Counts] = [*reports, *told.values()]
        cases, failures = sum(c.cases for c in counted), sum(c.failures for c in counted)
        now = self._clock()
        elapsed = now - self._began
        lost = schedule.attempts.losses.total()
        return ", ".join(
            [
                count(cases, "case"),
                f"{cases / elapsed if elapsed > 0 else 0:.1f}/s",
                f"{self._before + len(reports)}/{count(self._shards, 'shard')}",
                count(nodes, "node"),
                count(failures, "failure"),
                *([f"{lost:,} lost"] if lost else []),
                f"{duration(schedule.left(slots, now))} left",
            ]
        )

    def tell(self, text: str) -> None:
        """Say something on a line of its own."""
        self._write(text, end="\n")

    def _write(self, text: str, end: str) -> None:
        erase = "\r\x1b[K" if self._live else ""
        self._stream.write(f"{erase}{text}{end}")
        self._stream.flush()
