"""Decide what to start, retry and stop, from reports, slots and the time alone.

1. Units are combined into micro-shards of balanced cost, large ones first and small ones at the end: every shard costs
   a process start of some seconds, and the last shards determine how long nodes wait for each other. So each round of
   shards takes half of the remaining work (S. F. Hummel, E. Schonberg, L. E. Flynn, Factoring, Communications of the
   ACM 35, 1992), and the last round all of it, once half would be too little.
2. A shard that is lost with its node is rerun elsewhere, three times at most. A case that crashes or hangs never gets
   here: the shard's own process records it as a verdict and continues.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median


@dataclass(frozen=True)
class Counts:
    """Number of cases, and of those that failed."""

    cases: int = 0
    failures: int = 0


class Tally:
    """Collects the progress of attempts; runs in a separate process that all nodes can reach."""

    def __init__(self) -> None:
        self._counts: dict[int, Counts] = {}

    def note(self, attempt: int, cases: int, failures: int) -> None:
        """Store the counts of an attempt, given by number."""
        self._counts[attempt] = Counts(cases, failures)

    def counts(self) -> dict[int, Counts]:
        """Return the latest counts by attempt number."""
        return self._counts


#: How often a shard is started before it is given up.
MOST = 3
#: A node gets no more shards after this many failed on it with none completed in between.
PATIENCE = 2


class AttemptOutcome(StrEnum):
    """The end of an attempt.

    ``done``: the shard is recorded. ``lost``: its node or process died. ``failed``: its process reports that it could
    not run the shard, for instance because the disk is full. ``unfit``: the node has other versions.
    """

    DONE = "done"
    LOST = "lost"
    FAILED = "failed"
    UNFIT = "unfit"


@dataclass(frozen=True, kw_only=True)
class AttemptReport:
    """The report of an attempt, the only result of a task.

    Attributes:
        shard: The number of the shard, from 1.
        outcome: How the attempt ended.
        path: The path of its record, relative to the run's place; "" if there is none.
        node: The id of the node; "" if unknown.
        host: The name of the node.
        message: A one-line description of a problem.
        status: The exit status of its process; None if there is none.
        cases: Number of cases.
        failures: Number of failed cases.
        seconds: How long it took.
    """

    shard: int
    outcome: AttemptOutcome
    path: str = ""
    node: str = ""
    host: str = ""
    message: str = ""
    status: int | None = None
    cases: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass
class Attempts:
    """The number of losses of each shard, and the nodes to avoid."""

    losses: Counter[int] = field(default_factory=Counter)
    avoided: dict[int, set[str]] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    _failed_on: dict[str, set[int]] = field(default_factory=dict)

    def note(self, report: AttemptReport) -> bool:
        """Record the report of an attempt and return whether its shard may be retried."""
        if report.outcome is AttemptOutcome.DONE:
            self._failed_on.pop(report.node, None)
            return False
        if report.outcome is AttemptOutcome.UNFIT:
            self.unfit.setdefault(report.node, report.message)
            return True
        self.losses[report.shard] += 1
        if report.node:
            self.avoided.setdefault(report.shard, set()).add(report.node)
        if report.outcome is AttemptOutcome.FAILED and report.node:
            failed = self._failed_on.setdefault(report.node, set())
            failed.add(report.shard)
            if len(failed) >= PATIENCE:
                self.unfit.setdefault(report.node, report.message)
        return self.losses[report.shard] < MOST

    def avoid(self, shard: int) -> frozenset[str]:
        """Return the nodes on which a shard should not run."""
        return frozenset(self.avoided.get(shard, ())) | frozenset(self.unfit)


#: Seconds of work in the smallest and the largest shard. The minimum bounds the cost of starting a process and filling
#: its caches, about twelve seconds; the maximum bounds what is lost with a node.
SMALLEST, LARGEST = 150.0, 900.0
#: Smallest size of a shard of the last round, as a share of `SMALLEST`: it uses a slot that would be idle otherwise.
_LAST = 0.15


@dataclass(frozen=True)
class MicroShard:
    """Units, by name, that one process runs in about `seconds`."""

    units: tuple[str, ...]
    seconds: float


def cut(
    seconds: Mapping[str, float], slots: int, *, smallest: float = SMALLEST, largest: float = LARGEST
) -> tuple[MicroShard, ...]:
    """Distribute all units over shards.

    Args:
        seconds: Expected duration of each unit.
        slots: How many shards run concurrently.
        smallest: Seconds of work in the smallest shard.
        largest: Seconds of work in the largest shard; a longer unit has a shard to itself.

    Returns:
        The shards in the order in which to start them, the longest first.
    """
    room = [(-size, place) for place, size in enumerate(_sizes(sum(seconds.values()), slots, smallest, largest))]
    heapq.heapify(room)
    units: list[list[str]] = [[] for _ in room]
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        left, place = heapq.heappop(room)
        units[place].append(name)
        heapq.heappush(room, (left + seconds[name], place))
    shards = [MicroShard(tuple(sorted(unit)), sum(seconds[n] for n in unit)) for unit in units if unit]
    return tuple(sorted(shards, key=lambda shard: (-shard.seconds, shard.units)))


def _sizes(total: float, slots: int, smallest: float, largest: float) -> list[float]:
    sizes: list[float] = []
    left = total
    while left / (2 * slots) >= smallest:
        size = min(left / (2 * slots), largest)
        sizes += [size] * slots
        left -= size * slots
    last = max(1, min(slots, int(left / (_LAST * smallest))))
    return [*sizes, *[left / last] * last]


@dataclass(frozen=True)
class Attempt:
    """One try to run a shard.

    Attributes:
        shard: The number of the shard.
        number: Distinguishes the attempts of the run.
        avoid: Ids of nodes on which it should not run.
        unfit: The subset of nodes that are unfit for any shard.
    """

    shard: int
    number: int
    avoid: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()

    def avoided(self, nodes: Collection[str]) -> frozenset[str]:
        """Return which of `nodes` to avoid; a node that lost the shard may retry it if all others are unfit."""
        for avoided in (self.avoid, self.unfit):
            if not avoided.issuperset(nodes):
                return avoided.intersection(nodes)
        return frozenset()


class Schedule:
    """The state of a run.

    Args:
        seconds: The expected duration of each shard to run, by number, in the order of their start.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self._seconds = dict(seconds)
        #: Shards to start, in this order.
        self.waiting = deque(seconds)
        self._numbers = 0
        self.attempts = Attempts()
        self.running: dict[Attempt, float] = {}
        self.done: dict[int, AttemptReport] = {}
        #: Shards that were given up, with the last message.
        self.missing: dict[int, str] = {}
        self._paces: list[float] = []

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return not self.waiting and not self.running

    def next(self, slots: int, now: float) -> list[Attempt]:
        """Return the attempts to start at `now`, in seconds, if `slots` attempts can run concurrently."""
        started: list[Attempt] = []
        while self.waiting and len(self.running) < slots:
            started.append(self._start(self.waiting.popleft(), now))
        return started

    def ended(self, attempt: Attempt, report: AttemptReport, now: float) -> None:
        """Record the report of an attempt that ended."""
        began = self.running.pop(attempt, None)
        if began is None:
            return
        shard = attempt.shard
        may_retry = self.attempts.note(report)
        if report.outcome is AttemptOutcome.DONE:
            self.done[shard] = report
            self._paces.append((now - began) / max(self._seconds[shard], 1e-9))
        elif may_retry:
            self.waiting.appendleft(shard)
        else:
            self.missing[shard] = report.message

    def give_up(self, why: str) -> list[Attempt]:
        """Mark all unfinished shards as missing and return the attempts to stop."""
        running = list(self.running)
        for shard in (*self.waiting, *(attempt.shard for attempt in running)):
            self.missing[shard] = why
        self.waiting.clear()
        self.running.clear()
        return running

    def why_no_node_fits(self, nodes: Collection[str]) -> str:
        """Return the problem of a node if all `nodes` are unfit; "" if one is fit."""
        unfit = self.attempts.unfit
        return next(iter(unfit.values())) if nodes and all(node in unfit for node in nodes) else ""

    def left(self, slots: int, now: float) -> float:
        """Estimate the remaining seconds, from the expected durations and the pace of finished shards."""
        pace = median(self._paces) if self._paces else 1.0
        ahead = [max(self._seconds[a.shard] * pace - (now - began), 0.0) for a, began in self.running.items()]
        todo = sum(self._seconds[shard] * pace for shard in self.waiting) + sum(ahead)
        # A shard cannot be divided among slots.
        return max([todo / max(slots, 1), *ahead])

    def _start(self, shard: int, now: float) -> Attempt:
        self._numbers += 1
        avoid, unfit = self.attempts.avoid(shard), frozenset(self.attempts.unfit)
        attempt = Attempt(shard, self._numbers, avoid, unfit)
        self.running[attempt] = now
        return attempt
