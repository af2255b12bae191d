"""Draw graphs again that an optimisation changed, with one thing about each changed.

Of a share of the drawn graphs the record says which optimisations changed them. For each, the rarest first, such a
graph is changed once more: the mutants of a seed meet few optimisations besides the one that the seed is written for,
and those they meet in a place that nobody wrote a seed for. The result depends on the installed runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from random import Random

from harness.compare.verdict import Verdict, split_passes
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.generate.graph_mutations import mutate
from harness.generate.graph_seeds import NotWritable, graph_invocation
from harness.pipeline.drawn_graph import build_graph

#: Graphs drawn again for each graph that is drawn.
_SHARE = 0.4
#: Graphs kept for each optimisation.
_GRAPHS = 12
#: Mutants tried for each graph that is wanted, since some changes make a graph invalid.
_TRIES = 3


@dataclass
class FiringGraphs:
    """The drawn graphs that optimisations changed.

    Attributes:
        by_pass: Optimisation → structure → graph, for the first few graphs.
        counts: Optimisation → the number of graphs that it changed.
        seen: The structures that have been drawn.
    """

    by_pass: dict[str, dict[str, Invocation]]
    counts: dict[str, int]
    seen: set[str]

    @classmethod
    def none(cls) -> FiringGraphs:
        """Return the graphs before any has run."""
        return cls({}, {}, set())

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Add the graphs of some verdicts."""
        for verdict in verdicts:
            if verdict.structure_id in self.seen:
                continue
            self.seen.add(verdict.structure_id)
            for name in split_passes(verdict.backend_passes):
                self.counts[name] = self.counts.get(name, 0) + 1
                graphs = self.by_pass.setdefault(name, {})
                if len(graphs) < _GRAPHS:
                    graphs[verdict.structure_id] = Invocation.from_json(verdict.invocation)

    def draw(self, seed: int, overload: str, examples: int) -> tuple[CaseGroup, ...]:
        """Return mutants of these graphs, for a share of the `examples` drawn."""
        most = int(examples * _SHARE)
        drawn: dict[str, Invocation] = {}
        for mutant in self._mutants(f"{seed}/{overload}/firing", overload, most * _TRIES):
            if len(drawn) == most:
                break
            if mutant.structure_id not in self.seen:
                drawn.setdefault(mutant.structure_id, mutant)
        return tuple(CaseGroup.of(mutant) for mutant in drawn.values())

    def _mutants(self, draws: str, overload: str, count: int) -> Iterator[Invocation]:
        random = Random(draws)
        names = sorted(self.by_pass, key=lambda name: (self.counts[name], name))
        models = {name: [build_graph(graph) for graph in self.by_pass[name].values()] for name in names}
        for number, name in zip(range(count if names else 0), cycle(names), strict=False):
            mutant = mutate(random.choice(models[name]), random, 1)
            with suppress(NotWritable):
                if mutant is not None:
                    yield graph_invocation(mutant, overload, f"{draws}/{number}")
