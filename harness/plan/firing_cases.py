"""Keep the drawn cases of several calls or nodes that passes of an optimiser changed, the first few of each pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from random import Random

from harness.compare.verdict import Verdict, split_passes
from harness.core.invocation import Invocation


@dataclass
class FiringCases:
    """The drawn cases that passes changed.

    Attributes:
        most: Cases kept for each pass.
        by_pass: Pass → structure → case, for the first few cases.
        counts: Pass → the number of cases that it changed.
        seen: The structures that have been drawn.
    """

    most: int
    by_pass: dict[str, dict[str, Invocation]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Add the cases of some verdicts."""
        for verdict in verdicts:
            if verdict.structure_id in self.seen:
                continue
            self.seen.add(verdict.structure_id)
            for name in (*split_passes(verdict.exporter_passes), *split_passes(verdict.backend_passes)):
                self.counts[name] = self.counts.get(name, 0) + 1
                cases = self.by_pass.setdefault(name, {})
                if len(cases) < self.most:
                    cases[verdict.structure_id] = Invocation.from_json(verdict.invocation)

    def choose(self, random: Random, count: int) -> Iterator[Invocation]:
        """Yield `count` cases, one of each pass in turn, the rarest pass first; none if no pass changed any."""
        names = sorted(self.by_pass, key=lambda name: (self.counts[name], name))
        for _, name in zip(range(count if names else 0), cycle(names), strict=False):
            yield random.choice([*self.by_pass[name].values()])

    def collect(self, redrawn: Iterable[Invocation], most: int) -> tuple[Invocation, ...]:
        """Return the first `most` of some cases drawn again that have a structure of their own."""
        drawn: dict[str, Invocation] = {}
        for case in redrawn:
            if len(drawn) == most:
                break
            if case.structure_id not in self.seen:
                drawn.setdefault(case.structure_id, case)
        return tuple(drawn.values())
