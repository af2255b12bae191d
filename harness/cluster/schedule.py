"""What to start next, on which grounds, and what to stop: decided from reports, slots and the time alone.

Units become micro-shards of a balanced cost, large ones first and small ones for the end. Every shard starts a
process, which takes seconds, and the last shards decide how long nodes wait for each other. So each round of shards
takes half of what is left (S. F. Hummel, E. Schonberg, L. E. Flynn, Factoring, Communications of the ACM 35, 1992),
and the last round all of it, where half would be too little.

What is lost with a node is run again elsewhere, three times at most. A case that crashes or hangs never gets here:
the shard's own process records it as a verdict and goes on.
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


#: How often a shard is begun before it is given up.
MOST = 3
#: Shards in a row that fail on a node, none of which is done in between, before it gets no more.
PATIENCE = 2


class AttemptOutcome(StrEnum):
    """What became of an attempt.

    ``done``: the record of the shard is there. ``lost``: with its node or its process. ``failed``: the
    process says that it could not do it, for lack of disk space for example. ``unfit``: the node has other
    versions.
    """

    DONE = "done"
    LOST = "lost"
    FAILED = "failed"
    UNFIT = "unfit"


@dataclass(frozen=True, kw_only=True)
class AttemptReport:
    """What an attempt came to; all that a task returns.

    Attributes:
        shard: Its number, from 1.
        path: Where its record is, below the place of the run; "" without one.
        node: Id of the node; "" for one that is not known.
        said: What went wrong, for a person, in one line.
        status: The exit status of its process; None without one.
        seconds: How long it took.
    """

    shard: int
    fate: AttemptOutcome
    path: str = ""
    node: str = ""
    host: str = ""
    said: str = ""
    status: int | None = None
    cases: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass
class Attempts:
    """How often each shard was lost, and which nodes are unfit."""

    losses: Counter[int] = field(default_factory=Counter)
    avoided: dict[int, set[str]] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    _failed_on: dict[str, set[int]] = field(default_factory=dict)

    def note(self, report: AttemptReport) -> bool:
        """Take what became of an attempt; whether its shard may be tried again, if it is not done."""
        if report.fate is AttemptOutcome.DONE:
            self._failed_on.pop(report.node, None)
            return False
        if report.fate is AttemptOutcome.UNFIT:
            self.unfit.setdefault(report.node, report.said)
            return True
        self.losses[report.shard] += 1
        if report.node:
            self.avoided.setdefault(report.shard, set()).add(report.node)
        if report.fate is AttemptOutcome.FAILED and report.node:
            failed = self._failed_on.setdefault(report.node, set())
            failed.add(report.shard)
            if len(failed) >= PATIENCE:
                self.unfit.setdefault(report.node, report.said)
        return self.losses[report.shard] < MOST

    def avoid(self, shard: int) -> frozenset[str]:
        """The nodes where a shard is not to run."""
        return frozenset(self.avoided.get(shard, ())) | frozenset(self.unfit)


#: Seconds of work in the smallest and in the largest shard: the one bounds what processes cost to start and
#: to learn again what their predecessors knew, about twelve seconds; the other what is lost with a node.
SMALLEST, LARGEST = 150.0, 900.0
#: The share of the smallest that a shard of the last round has at least: it uses a slot that would idle.
_LAST = 0.15


@dataclass(frozen=True)
class MicroShard:
    """Units that one process runs, by name, in about `seconds`."""

    units: tuple[str, ...]
    seconds: float


def cut(
    seconds: Mapping[str, float], slots: int, *, smallest: float = SMALLEST, largest: float = LARGEST
) -> tuple[MicroShard, ...]:
    """Put every unit into one shard.

    Args:
        seconds: By unit.
        slots: How many shards run at once.
        smallest: Seconds; a unit that takes a seventh of that does not stand alone if it can be helped.
        largest: Seconds; a unit that takes longer has a shard to itself.

    Returns:
        The longest first: in this order they are to be started.
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
    """One try at a shard; `number` tells it from all others of the run.

    Attributes:
        avoid: Ids of nodes where it is not to run.
        unfit: Those of them that are unfit for any shard.
    """

    shard: int
    number: int
    avoid: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()

    def avoided(self, nodes: Collection[str]) -> frozenset[str]:
        """Which of `nodes` not to run on: one that lost the shard may try again if no other is left."""
        for some in (self.avoid, self.unfit):
            if not some.issuperset(nodes):
                return some.intersection(nodes)
        return frozenset()


class Schedule:
    """The state of a run.

    Args:
        seconds: What each shard that is to be run may take, by its number, in the order of their start.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self._seconds = dict(seconds)
        #: Shards that are to be started, in this order.
        self.waiting = deque(seconds)
        self._numbers = 0
        self.attempts = Attempts()
        self.running: dict[Attempt, float] = {}
        self.done: dict[int, AttemptReport] = {}
        #: Shards that are given up, with the last message.
        self.missing: dict[int, str] = {}
        self._paces: list[float] = []

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return not self.waiting and not self.running

    def next(self, slots: int, now: float) -> list[Attempt]:
        """What to start at `now`, in seconds, where `slots` attempts can run at once."""
        started: list[Attempt] = []
        while self.waiting and len(self.running) < slots:
            started.append(self._start(self.waiting.popleft(), now))
        return started

    def ended(self, attempt: Attempt, report: AttemptReport, now: float) -> None:
        """Take the report of an attempt."""
        began = self.running.pop(attempt, None)
        if began is None:
            return
        shard = attempt.shard
        again = self.attempts.note(report)
        if report.fate is AttemptOutcome.DONE:
            self.done[shard] = report
            self._paces.append((now - began) / max(self._seconds[shard], 1e-9))
        elif again:
            self.waiting.appendleft(shard)
        else:
            self.missing[shard] = report.said

    def give_up(self, why: str) -> list[Attempt]:
        """Name all that is not done as missing; the attempts to stop."""
        left = list(self.running)
        for shard in (*self.waiting, *(attempt.shard for attempt in left)):
            self.missing[shard] = why
        self.waiting.clear()
        self.running.clear()
        return left

    def no_node_is_left(self, nodes: Collection[str]) -> str:
        """What is wrong where all `nodes` are unfit; "" where one is."""
        unfit = self.attempts.unfit
        return next(iter(unfit.values())) if nodes and all(node in unfit for node in nodes) else ""

    def left(self, slots: int, now: float) -> float:
        """Seconds until the end, by what shards are expected to take until one has shown its pace."""
        pace = median(self._paces) if self._paces else 1.0
        ahead = [max(self._seconds[a.shard] * pace - (now - began), 0.0) for a, began in self.running.items()]
        todo = sum(self._seconds[shard] * pace for shard in self.waiting) + sum(ahead)
        # A shard is not divided among slots.
        return max([todo / max(slots, 1), *ahead])

    def _start(self, shard: int, now: float) -> Attempt:
        self._numbers += 1
        avoid, unfit = self.attempts.avoid(shard), frozenset(self.attempts.unfit)
        attempt = Attempt(shard, self._numbers, avoid, unfit)
        self.running[attempt] = now
        return attempt
