"""The progress of a run on a cluster, as text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import IO

from harness.cluster.schedule import Attempt, AttemptReport, Counts, Schedule
from harness.core.text import count
from harness.present.session_lines import duration

#: Seconds between updates, on a terminal and elsewhere.
_LIVE, _QUIET = 1.0, 15.0


class ClusterProgress:
    """Writes a progress line to `stream`, and a line for each thing that goes wrong."""

    def __init__(
        self, schedule: Schedule, shards: int, stream: IO[str] = sys.stdout, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start counting.

        Args:
            schedule: The state of the run.
            shards: Number of shards of the whole run, including those that were recorded earlier.
            stream: The output stream.
            clock: Returns seconds.
        """
        self._schedule = schedule
        self._shards = shards
        self._before = shards - len(schedule.waiting)
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._shown = float("-inf")
        self._live = stream.isatty()

    def show(self, nodes: int, slots: int, running: Callable[[], Mapping[Attempt, Counts]]) -> None:
        """Write the progress if it is due; `running` returns the counts of running attempts."""
        if self._clock() - self._shown < (_LIVE if self._live else _QUIET):
            return
        self._shown = self._clock()
        self._write(self.line(nodes, slots, running()), end="" if self._live else "\n")

    def line(self, nodes: int, slots: int, running: Mapping[Attempt, Counts] = MappingProxyType({})) -> str:
        """Return ``1,234 cases, 58.2/s, 12/180 shards, 3 nodes, 4 failures, 1 lost, 2:31 left``.

        `running` has the latest counts of running attempts.
        """
        schedule = self._schedule
        reports = list(schedule.done.values())
        counted: list[AttemptReport | Counts] = [*reports, *running.values()]
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
        """Write a line of its own."""
        self._write(text, end="\n")

    def _write(self, text: str, end: str) -> None:
        erase = "\r\x1b[K" if self._live else ""
        self._stream.write(f"{erase}{text}{end}")
        self._stream.flush()
