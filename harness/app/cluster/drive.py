"""The loop of a run: starts what the schedule wants, and tells it what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from harness.app.cluster.attempts import AttemptReport, Fate
from harness.app.cluster.cluster_progress import ClusterProgress
from harness.app.cluster.schedule import Attempt, Schedule
from harness.app.cluster.tally import Counts

#: Seconds between two looks at the nodes.
_LOOK = 1.0


class Engine(Protocol):
    """What carries attempts to nodes."""

    def nodes(self, lane: int | None = None) -> Mapping[str, str]:
        """Id → address of the nodes that can run a shard, of one lane or of any."""

    def slots(self, lane: int | None = None) -> int:
        """How many attempts run at once, of one lane or of any."""

    def start(self, attempt: Attempt) -> None:
        """Begin an attempt."""

    def wait(self, seconds: float) -> list[tuple[Attempt, AttemptReport]]:
        """The attempts that have ended; waits for the first at most so long."""

    def told(self) -> Mapping[Attempt, Counts]:
        """What attempts that run told of last."""

    def stop(self, attempt: Attempt) -> None:
        """End an attempt; nothing more is heard of it."""


def drive(
    schedules: Sequence[Schedule],
    engine: Engine,
    progress: ClusterProgress,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Start, wait for and stop attempts until nothing is left to do.

    Args:
        schedules: One for each lane; where nodes have room for one only, the first goes first.
        clock: Seconds.
    """
    while not all(schedule.over for schedule in schedules):
        for schedule in schedules:
            elsewhere = sum(len(other.running) for other in schedules if other is not schedule)
            room = min(engine.slots(schedule.lane), engine.slots() - elsewhere)
            for attempt in schedule.next(room, clock()):
                engine.start(attempt)
        for attempt, report in engine.wait(_LOOK):
            schedule = schedules[attempt.lane]
            for other in schedule.ended(attempt, report, clock()):
                engine.stop(other)
            if report.fate is not Fate.DONE and attempt.shard not in schedule.done:
                what = "is given up" if attempt.shard in schedule.missing else "is run again"
                progress.tell(f"shard {attempt.shard} {report.fate}: {report.said}; it {what}")
        for schedule in schedules:
            why = schedule.no_node_is_left(engine.nodes(schedule.lane))
            for attempt in schedule.give_up(why) if why else ():
                engine.stop(attempt)
        progress.show(len(engine.nodes()), engine.slots(), engine.told)
