"""Draw graphs again that an optimisation changed, with one thing about each changed.

Of a share of the drawn graphs the record says which optimisations changed them. For each, the rarest first, such a
graph is changed once more: the mutants of a seed meet few optimisations besides the one that the seed is written for,
and those they meet in a place that nobody wrote a seed for. The result depends on the installed runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from random import Random

from harness.compare.verdict import Verdict
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.generate.graph_mutations import mutate
from harness.generate.graph_seeds import NotWritable, graph_invocation
from harness.pipeline.drawn_graph import build_graph
from harness.plan.firing_cases import FiringCases

#: Graphs drawn again for each graph that is drawn.
_SHARE = 0.4
#: Graphs kept for each optimisation.
_GRAPHS = 12
#: Mutants tried for each graph that is wanted, since some changes make a graph invalid.
_TRIES = 3


class FiringGraphs:
    """The drawn graphs that optimisations changed."""

    def __init__(self) -> None:
        self._cases = FiringCases(_GRAPHS)

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Add the graphs of some verdicts."""
        self._cases.add(verdicts)

    def draw(self, seed: int, overload: str, examples: int) -> tuple[CaseGroup, ...]:
        """Return mutants of these graphs, for a share of the `examples` drawn."""
        most = int(examples * _SHARE)
        mutants = self._mutants(f"{seed}/{overload}/firing", overload, most * _TRIES)
        return tuple(map(CaseGroup.of, self._cases.collect(mutants, most)))

    def _mutants(self, draws: str, overload: str, count: int) -> Iterator[Invocation]:
        random, models = Random(draws), {}
        for number, graph in enumerate(self._cases.choose(random, count)):
            if graph.structure_id not in models:
                models[graph.structure_id] = build_graph(graph)
            mutant = mutate(models[graph.structure_id], random, 1)
            with suppress(NotWritable):
                if mutant is not None:
                    yield graph_invocation(mutant, overload, f"{draws}/{number}")
