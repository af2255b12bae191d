"""The retry rule: what was lost with a node is run again elsewhere, and three times at most.

A case that crashes or hangs never gets here: the shard's own process records it as a verdict and goes on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

#: How often a shard is begun before it is given up.
MOST = 3
#: Shards in a row that fail on a node, none of which is done in between, before it gets no more.
PATIENCE = 2


class Fate(StrEnum):
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
    fate: Fate
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
    """How often each shard was lost, and which nodes are no good."""

    losses: Counter[int] = field(default_factory=Counter)
    avoided: dict[int, set[str]] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    _failed_on: dict[str, set[int]] = field(default_factory=dict)

    def note(self, report: AttemptReport) -> bool:
        """Take what became of an attempt; whether its shard may be tried again, if it is not done."""
        if report.fate is Fate.DONE:
            self._failed_on.pop(report.node, None)
            return False
        if report.fate is Fate.UNFIT:
            self.unfit.setdefault(report.node, report.said)
            return True
        self.losses[report.shard] += 1
        if report.node:
            self.avoided.setdefault(report.shard, set()).add(report.node)
        if report.fate is Fate.FAILED and report.node:
            failed = self._failed_on.setdefault(report.node, set())
            failed.add(report.shard)
            if len(failed) >= PATIENCE:
                self.unfit.setdefault(report.node, report.said)
        return self.losses[report.shard] < MOST

    def avoid(self, shard: int) -> frozenset[str]:
        """The nodes where a shard is not to run."""
        return frozenset(self.avoided.get(shard, ())) | frozenset(self.unfit)
