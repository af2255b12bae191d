"""What to start next, on which grounds, and what to stop: decided from reports, slots and the time alone."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.app.cluster.attempts import AttemptReport, Attempts, Fate

#: An attempt that takes so many times as long as it should is a straggler.
_STRAGGLES = 1.25
#: Seconds that any attempt may take: a process has to start.
_GRACE = 20.0


@dataclass(frozen=True)
class Attempt:
    """One try at a shard; `number` tells it from all others of the run.

    Attributes:
        avoid: Ids of nodes where it is not to run.
        unfit: Those of them that are no good for any shard.
        lane: The place of its lane among those of the run.
    """

    shard: int
    number: int
    avoid: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()
    lane: int = 0

    def avoided(self, nodes: Collection[str]) -> frozenset[str]:
        """Which of `nodes` not to run on: one that lost the shard may try again if no other is left."""
        for some in (self.avoid, self.unfit):
            if not some.issuperset(nodes):
                return some.intersection(nodes)
        return frozenset()


class Schedule:
    """The state of a lane of a run.

    Args:
        seconds: What each shard that is to be run may take, by its number, in the order of their start.
        copies: Whether stragglers get a second copy at the end.
        lane: The place of the lane among those of the run.
    """

    def __init__(self, seconds: Mapping[int, float], *, copies: bool = True, lane: int = 0) -> None:
        self._seconds = dict(seconds)
        self.lane = lane
        #: Shards that are to be started, in this order.
        self.waiting = deque(seconds)
        self._copies = copies
        self._numbers = 0
        self.attempts = Attempts()
        self.running: dict[Attempt, float] = {}
        self.done: dict[int, AttemptReport] = {}
        #: Shards that are given up, with what was said at last.
        self.missing: dict[int, str] = {}
        self._paces: list[float] = []
        #: Second copies that were started, and how many of them were first.
        self.copied = 0

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return not self.waiting and not self.running

    def next(self, slots: int, now: float) -> list[Attempt]:
        """What to start at `now`, in seconds, where `slots` attempts can run at once."""
        started: list[Attempt] = []
        while self.waiting and len(self.running) < slots:
            started.append(self._start(self.waiting.popleft(), now))
        if self._copies and not self.waiting and self._paces:
            for shard in self._stragglers(now)[: max(slots - len(self.running), 0)]:
                started.append(self._start(shard, now))
                self.copied += 1
        return started

    def ended(self, attempt: Attempt, report: AttemptReport, now: float) -> list[Attempt]:
        """Take the report of an attempt; the attempts that nobody needs any more."""
        began = self.running.pop(attempt, None)
        shard = attempt.shard
        if began is None or shard in self.done:
            return []
        again = self.attempts.note(report)
        if report.fate is Fate.DONE:
            self.done[shard] = report
            self.missing.pop(shard, None)
            self._paces.append((now - began) / max(self._seconds[shard], 1e-9))
            return self._drop(shard)
        if any(other.shard == shard for other in self.running):
            return []
        if again:
            self.waiting.appendleft(shard)
        else:
            self.missing[shard] = report.said
        return []

    def give_up(self, why: str) -> list[Attempt]:
        """Name all that is not done as missing; the attempts to stop."""
        left = list(self.running)
        for shard in (*self.waiting, *(attempt.shard for attempt in left)):
            if shard not in self.done:
                self.missing[shard] = why
        self.waiting.clear()
        self.running.clear()
        return left

    def no_node_is_left(self, nodes: Collection[str]) -> str:
        """What is wrong where all `nodes` are no good; "" where one is."""
        unfit = self.attempts.unfit
        return next(iter(unfit.values())) if nodes and all(node in unfit for node in nodes) else ""

    def left(self, slots: int, now: float) -> float | None:
        """Seconds until the end, by what shards are expected to take until one has shown its pace.

        None where no pace is known, and those that run have taken longer than was expected.
        """
        pace = median(self._paces) if self._paces else 1.0
        ahead: dict[int, float] = {}
        for attempt, began in self.running.items():
            rest = max(self._seconds[attempt.shard] * pace - (now - began), 0.0)
            ahead[attempt.shard] = min(rest, ahead.get(attempt.shard, rest))
        todo = sum(self._seconds[shard] * pace for shard in self.waiting) + sum(ahead.values())
        if not todo and not self._paces:
            return None
        # A shard is not divided among slots.
        return max([todo / max(slots, 1), *ahead.values()])

    def _start(self, shard: int, now: float) -> Attempt:
        self._numbers += 1
        avoid, unfit = self.attempts.avoid(shard), frozenset(self.attempts.unfit)
        attempt = Attempt(shard, self._numbers, avoid, unfit, self.lane)
        self.running[attempt] = now
        return attempt

    def _stragglers(self, now: float) -> Sequence[int]:
        """Shards with one attempt that takes too long, the worst first."""
        pace = median(self._paces)
        late: list[tuple[float, int]] = []
        copies = Counter(attempt.shard for attempt in self.running)
        for attempt, began in self.running.items():
            usual = pace * self._seconds[attempt.shard]
            if copies[attempt.shard] == 1 and now - began > _STRAGGLES * usual + _GRACE:
                late.append((usual - (now - began), attempt.shard))
        return [shard for _, shard in sorted(late)]

    def _drop(self, shard: int) -> list[Attempt]:
        others = [attempt for attempt in self.running if attempt.shard == shard]
        for attempt in others:
            del self.running[attempt]
        return others
