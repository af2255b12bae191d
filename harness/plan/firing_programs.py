"""Draw programs again that a pass of an optimiser changes, with one thing about each changed.

A rule is tested by programs that it applies to and by their nearest neighbours. After the drawn programs of a pattern
have run, the record says which passes changed which program. For each pass, the rarest first, a program that it changed
is drawn again with one twist (`harness.generate.twists`). The result depends on the installed optimisers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from random import Random

from harness.compare.verdict import Verdict, split_passes
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.program import Program
from harness.generate.program_draws import other_values
from harness.generate.twists import twist_program

#: Share of the drawn cases that is drawn again.
_SHARE = 2 / 3
#: Programs kept for each pass.
_PROGRAMS = 6
#: Twists tried for each program that is drawn.
_TRIES = 3


@dataclass
class FiringPrograms:
    """The drawn programs that passes changed.

    Attributes:
        by_pass: Pass → structure → program, for the first few programs.
        counts: Pass → the number of programs that it changed.
        seen: The structures that have been drawn.
    """

    by_pass: dict[str, dict[str, Invocation]]
    counts: dict[str, int]
    seen: set[str]

    @classmethod
    def none(cls) -> FiringPrograms:
        """Return the programs before any has run."""
        return cls({}, {}, set())

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Add the programs of some verdicts."""
        for verdict in verdicts:
            if verdict.structure_id in self.seen:
                continue
            self.seen.add(verdict.structure_id)
            for name in (*split_passes(verdict.exporter_passes), *split_passes(verdict.backend_passes)):
                self.counts[name] = self.counts.get(name, 0) + 1
                programs = self.by_pass.setdefault(name, {})
                if len(programs) < _PROGRAMS:
                    programs[verdict.structure_id] = Invocation.from_json(verdict.invocation)

    def draw(self, seed: int, overload: str, examples: int) -> tuple[CaseGroup, ...]:
        """Return twisted programs, two value draws of each, for a share of the `examples` drawn."""
        most = int(examples * _SHARE) // 2
        drawn: dict[str, Invocation] = {}
        for program in self._twisted(Random(f"{seed}/{overload}/twists"), most * _TRIES):
            if program.structure_id not in self.seen:
                drawn.setdefault(program.structure_id, program)
            if len(drawn) == most:
                break
        return tuple(CaseGroup.of(program, (program, other_values(program, 1))) for program in drawn.values())

    def _twisted(self, random: Random, count: int) -> Iterator[Invocation]:
        names = sorted(self.by_pass, key=lambda name: (self.counts[name], name))
        for _, name in zip(range(count if names else 0), cycle(names), strict=False):
            program = random.choice([*self.by_pass[name].values()])
            yield twist_program(Program.of(program), random).invocation
