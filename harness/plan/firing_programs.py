"""Draw programs again that a pass of an optimiser changes, with one thing about each changed.

A rule is tested by programs that it applies to and by their nearest neighbours. After the drawn programs of a pattern
have run, the record says which passes changed which program. For each pass, the rarest first, a program that it changed
is drawn again with one twist (`harness.generate.twists`). The result depends on the installed optimisers.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from harness.compare.verdict import Verdict
from harness.core.case_group import CaseGroup
from harness.core.program import Program
from harness.generate.program_draws import other_values
from harness.generate.twists import twist_program
from harness.plan.firing_cases import FiringCases

#: Share of the drawn cases that is drawn again.
_SHARE = 2 / 3
#: Programs kept for each pass.
_PROGRAMS = 6
#: Twists tried for each program that is drawn.
_TRIES = 3


class FiringPrograms:
    """The drawn programs that passes changed."""

    def __init__(self) -> None:
        self._cases = FiringCases(_PROGRAMS)

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Add the programs of some verdicts."""
        self._cases.add(verdicts)

    def draw(self, seed: int, overload: str, examples: int) -> tuple[CaseGroup, ...]:
        """Return twisted programs, two value draws of each, for a share of the `examples` drawn."""
        most, random = int(examples * _SHARE) // 2, Random(f"{seed}/{overload}/twists")
        chosen = self._cases.choose(random, most * _TRIES)
        twisted = (twist_program(Program.of(program), random).invocation for program in chosen)
        programs = self._cases.collect(twisted, most)
        return tuple(CaseGroup.of(program, (program, other_values(program, 1))) for program in programs)
