"""Units → micro-shards of a balanced cost: large ones first, small ones for the end.

Every shard starts a process, which takes seconds, and the last shards decide how long nodes wait for each
other. So each round of shards takes half of what is left (S. F. Hummel, E. Schonberg, L. E. Flynn, Factoring,
Communications of the ACM 35, 1992), and the last round all of it, where half would be too little.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

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
    shards = [MicroShard(tuple(sorted(some)), sum(seconds[n] for n in some)) for some in units if some]
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
