"""The loop of a run: starts what the schedule wants, and tells it what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from harness.app.cluster.attempts import AttemptReport, Fate
from harness.app.cluster.cluster_progress import ClusterProgress
from harness.app.cluster.schedule import Attempt, Schedule

#: Seconds between two looks at the nodes.
_LOOK = 1.0


class Engine(Protocol):
    """What carries attempts to nodes."""

    def nodes(self) -> Mapping[str, str]:
        """Id → address of the nodes that can run a shard."""

    def slots(self) -> int:
        """How many attempts run at once."""

    def start(self, attempt: Attempt) -> None:
        """Begin an attempt."""

    def wait(self, seconds: float) -> list[tuple[Attempt, AttemptReport]]:
        """The attempts that have ended; waits for the first at most so long."""

    def stop(self, attempt: Attempt) -> None:
        """End an attempt; nothing more is heard of it."""


def drive(
    schedule: Schedule, engine: Engine, progress: ClusterProgress, clock: Callable[[], float] = time.monotonic
) -> None:
    """Start, wait for and stop attempts until nothing is left to do.

    Args:
        clock: Seconds.
    """
    while not schedule.over:
        slots = engine.slots()
        for attempt in schedule.next(slots, clock()):
            engine.start(attempt)
        for attempt, report in engine.wait(_LOOK):
            for other in schedule.ended(attempt, report, clock()):
                engine.stop(other)
            if report.fate is not Fate.DONE and attempt.shard not in schedule.done:
                what = "is given up" if attempt.shard in schedule.missing else "is run again"
                progress.tell(f"shard {attempt.shard} {report.fate}: {report.said}; it {what}")
        nodes = engine.nodes()
        why = schedule.no_node_is_left(nodes)
        for attempt in schedule.give_up(why) if why else ():
            engine.stop(attempt)
        progress.show(len(nodes), slots)
