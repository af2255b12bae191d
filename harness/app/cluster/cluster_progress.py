"""What a person sees of a run on a cluster while it goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import IO

from harness.app.cluster.attempts import AttemptReport
from harness.app.cluster.schedule import Attempt, Schedule
from harness.app.cluster.tally import Counts
from harness.core import count
from harness.present import duration

#: Seconds between lines, where one can be rewritten and where it cannot.
_LIVE, _QUIET = 1.0, 15.0


class ClusterProgress:
    """A line on `stream` of how far the run is, and a line for each thing that went wrong."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        shards: int,
        stream: IO[str] = sys.stdout,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to count.

        Args:
            shards: Of the whole run, those included that were recorded before.
        """
        self._schedules = tuple(schedules)
        self._shards = shards
        self._before = shards - sum(len(schedule.waiting) for schedule in schedules)
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._said = float("-inf")
        self._live = stream.isatty()

    def show(self, nodes: int, slots: int, told: Callable[[], Mapping[Attempt, Counts]]) -> None:
        """Say how far the run is, if the last time is long enough ago."""
        if self._clock() - self._said < (_LIVE if self._live else _QUIET):
            return
        self._said = self._clock()
        self._write(self.line(nodes, slots, told()), end="" if self._live else "\n")

    def line(self, nodes: int, slots: int, told: Mapping[Attempt, Counts] = MappingProxyType({})) -> str:
        """``1,234 cases, 58.2/s, 12/180 shards, 3 nodes, 4 failures, 1 lost, 2:31 left``.

        `told` has what attempts that run told of by now.
        """
        schedules = self._schedules
        reports = [report for schedule in schedules for report in schedule.done.values()]
        # A shard may run twice.
        further = {attempt.shard: counts for attempt, counts in sorted(told.items(), key=_cases)}
        counted: list[AttemptReport | Counts] = [*reports, *further.values()]
        cases, failures = sum(c.cases for c in counted), sum(c.failures for c in counted)
        now = self._clock()
        elapsed = now - self._began
        # Lanes share the nodes.
        known = [schedule.left(slots, now) for schedule in schedules if not schedule.over]
        left = None if None in known else sum(seconds or 0 for seconds in known)
        lost = sum(schedule.attempts.losses.total() for schedule in schedules)
        return ", ".join(
            [
                count(cases, "case"),
                f"{cases / elapsed if elapsed > 0 else 0:.1f}/s",
                f"{self._before + len(reports)}/{count(self._shards, 'shard')}",
                count(nodes, "node"),
                count(failures, "failure"),
                *([f"{lost:,} lost"] if lost else []),
                "time left unknown" if left is None else f"{duration(left)} left",
            ]
        )

    def tell(self, text: str) -> None:
        """Say something on a line of its own."""
        self._write(text, end="\n")

    def _write(self, text: str, end: str) -> None:
        erase = "\r\x1b[K" if self._live else ""
        self._stream.write(f"{erase}{text}{end}")
        self._stream.flush()


def _cases(told: tuple[Attempt, Counts]) -> int:
    return told[1].cases
