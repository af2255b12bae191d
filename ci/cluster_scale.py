#!/usr/bin/env python3
"""Simulates a run on 2 to 500 nodes from the usual times of operators, and says where it stops scaling and why.

    python ci/cluster_scale.py --out DIR [--run 10x20]

What decides is the real thing: `harness.cluster` cuts the micro-shards, and retries what is lost. Only the nodes are
simulated, and the time. A node is lost now and then, some are slow, and every shard starts a process. DIR gets
`cluster_scale.md`, a table, and `cluster_scale.svg`, a plot.
"""

from __future__ import annotations

import argparse
import heapq
import io
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.cluster.cluster_progress import ClusterProgress
from harness.cluster.cluster_run import drive
from harness.cluster.schedule import Attempt, AttemptOutcome, AttemptReport, Counts, MicroShard, Schedule, cut
from harness.generate.case_library import load_cases
from harness.plan.sharding import usual_seconds

NODES = (2, 4, 8, 16, 32, 64, 125, 250, 500)
CORES = 4


@dataclass(frozen=True, kw_only=True)
class World:
    """What is assumed.

    Attributes:
        start: Seconds that a shard costs beside its cases: a process starts, and learns what others knew.
        task: Seconds that the driver takes for a task.
        noise: Spread of how long the same work takes, as a fraction.
        slow: Share of slow nodes, which take three times as long.
        lost: How often a node is lost, per hour.
    """

    start: float = 12.0
    task: float = 0.002
    noise: float = 0.1
    slow: float = 0.02
    lost: float = 0.05


@dataclass
class SimulatedNodes:
    """An engine whose nodes are numbers, and whose clock goes to the next thing that happens."""

    shards: tuple[MicroShard, ...]
    count: int
    world: World
    chance: random.Random
    now: float = 0.0
    lost: int = 0
    busy: float = 0.0
    _events: list[tuple[float, int, Attempt, int, bool]] = field(default_factory=list)
    _stopped: set[Attempt] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._free = [node for node in range(self.count) for _ in range(CORES)]
        self.chance.shuffle(self._free)
        self._pace = [3.0 if self.chance.random() < self.world.slow else 1.0 for _ in range(self.count)]
        self._dies = [self._next_death() for _ in range(self.count)]
        self._places: dict[Attempt, tuple[int, float]] = {}

    def nodes(self) -> Mapping[str, str]:
        """All of them: what is lost is replaced."""
        return {}

    def slots(self) -> int:
        """One shard for each core."""
        return self.count * CORES

    def start(self, attempt: Attempt) -> None:
        """On a core that is free."""
        self.now += self.world.task
        node = self._free.pop()
        work = (self.world.start + self.shards[attempt.shard - 1].seconds) * self._pace[node]
        ends = self.now + work * max(self.chance.gauss(1, self.world.noise), 0.5)
        dies = self._dies[node] < ends
        self._places[attempt] = node, self.now
        heapq.heappush(self._events, (min(ends, self._dies[node]), attempt.number, attempt, node, dies))

    def wait(self, seconds: float) -> list[tuple[Attempt, AttemptReport]]:
        """The next end, or nothing for so long."""
        until = self.now + seconds
        if not self._events or self._events[0][0] > until:
            self.now = until
            return []
        at, _, attempt, node, died = heapq.heappop(self._events)
        self.now = max(self.now, at)
        if attempt in self._stopped:
            return []
        self._release(attempt)
        if died:
            self.lost += 1
            self._dies[node] = max(self._dies[node], self.now) + self._next_death()
        fate = AttemptOutcome.LOST if died else AttemptOutcome.DONE
        return [(attempt, AttemptReport(shard=attempt.shard, fate=fate, node=str(node)))]

    def told(self) -> Mapping[Attempt, Counts]:
        """Nothing: a simulated shard has no cases."""
        return {}

    def stop(self, attempt: Attempt) -> None:
        """Its core is free."""
        self._stopped.add(attempt)
        self._release(attempt)

    def _release(self, attempt: Attempt) -> None:
        node, began = self._places.pop(attempt)
        self.busy += self.now - began
        self._free.append(node)

    def _next_death(self) -> float:
        return self.chance.expovariate(self.world.lost / 3600) if self.world.lost else float("inf")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a number of nodes came to."""

    nodes: int
    shards: int
    seconds: float
    work: float
    longest: float
    starting: float
    lost: int
    missing: int

    @property
    def speed(self) -> float:
        """How many cores' worth of work is done at a time."""
        return self.work / self.seconds

    @property
    def efficiency(self) -> float:
        """Share of the cores' time that goes into cases."""
        return self.speed / (self.nodes * CORES)

    @property
    def limit(self) -> str:
        """What takes the rest, mostly."""
        if self.efficiency > 0.8:
            return "–"
        # The run cannot be shorter than one process with the longest unit.
        if self.longest > 0.5 * self.seconds:
            return "the longest unit"
        return "processes to start" if self.starting > 0.5 * (1 - self.efficiency) else "the last shards"


def simulate(seconds: Mapping[str, float], nodes: int, world: World, seed: int = 0) -> Result:
    """One run."""
    shards = cut(seconds, nodes * CORES)
    engine = SimulatedNodes(shards, nodes, world, random.Random(seed))
    schedule = Schedule({number: shard.seconds for number, shard in enumerate(shards, start=1)})
    progress = ClusterProgress(schedule, len(shards), io.StringIO(), lambda: engine.now)
    drive(schedule, engine, progress, lambda: engine.now)
    return Result(
        nodes=nodes,
        shards=len(shards),
        seconds=engine.now,
        work=sum(seconds.values()),
        longest=world.start + max(seconds.values()),
        starting=len(shards) * world.start / (engine.now * nodes * CORES),
        lost=engine.lost,
        missing=len(schedule.missing),
    )


def unit_seconds(budget: int, units: int) -> dict[str, float]:
    """Seconds that each unit takes with `budget` times 128 cases, with so many units for each operator."""
    return {f"{name} {word}": usual_seconds(name) * budget for name in load_cases() for word in range(units)}


def table(results: list[Result]) -> str:
    """Markdown."""
    lines = [
        "| nodes | cores | shards | minutes | speed-up | efficiency | lost | missing | limit |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in results:
        lines.append(
            f"| {one.nodes} | {one.nodes * CORES} | {one.shards:,} | {one.seconds / 60:.1f} | "
            f"{one.speed:.0f} | {one.efficiency:.0%} | {one.lost} | {one.missing} | "
            f"{one.limit} |"
        )
    return "\n".join(lines) + "\n"


def plot(series: Mapping[str, list[Result]]) -> str:
    """Speed-up over cores, both logarithmic, as SVG."""
    from math import log10

    width, height, left, top = 640, 420, 60, 20
    most = max(one.nodes * CORES for results in series.values() for one in results)

    def x(cores: float) -> float:
        return left + (width - left - 20) * log10(cores) / log10(most)

    def y(speed: float) -> float:
        return height - 40 - (height - 40 - top) * log10(max(speed, 1)) / log10(most)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{x(1):.1f},{y(1):.1f}L{x(most):.1f},{y(most):.1f}" stroke="#bbb" stroke-dasharray="4"/>',
    ]
    for mark in (1, 10, 100, 1000):
        parts.append(f'<text x="{x(mark):.1f}" y="{height - 22}" text-anchor="middle">{mark}</text>')
        parts.append(f'<text x="{left - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 5}" text-anchor="middle">cores</text>')
    parts.append(f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})">speed-up</text>')
    for (name, results), colour in zip(series.items(), ("#1f6feb", "#d1242f", "#1a7f37"), strict=False):
        points = [(x(one.nodes * CORES), y(one.speed)) for one in results]
        path = "L".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        a, b = points[-1]
        parts.append(f'<text x="{a:.1f}" y="{b - 8:.1f}" text-anchor="end" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def run(word: str) -> tuple[int, int]:
    """``10x20``: ten times 128 cases, 20 units of each operator."""
    budget, _, units = word.partition("x")
    return int(budget), int(units or 1)


def main() -> int:
    """Simulate, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument(
        "--run",
        type=run,
        nargs="+",
        default=[(1, 1), (10, 1), (10, 20)],
        metavar="NxM",
        help="N times 128 cases, M units of each operator: converters, kinds of shapes (1x1 10x1 10x20)",
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    series, text = {}, "# How a run on a cluster scales\n"
    for budget, units in given.run:
        seconds = unit_seconds(budget, units)
        results = [simulate(seconds, nodes, World()) for nodes in NODES]
        name = f"{128 * budget:,} cases of {len(seconds):,} units"
        series[name] = results
        text += f"\n{name}: {sum(seconds.values()) / 3600:.1f} hours of CPU\n\n{table(results)}"
    (given.out / "cluster_scale.md").write_text(text, encoding="utf-8")
    (given.out / "cluster_scale.svg").write_text(plot(series), encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
