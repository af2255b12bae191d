"""How many structures an operator needs: the pairs of conditions that its first draws cover, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.core import Invocation
from harness.generate.draws import draw_cases
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.pairs.table import pair_table


@dataclass(frozen=True)
class PairGrowth:
    """What a list of structures covers.

    Attributes:
        structural: Entry i is how many pairs of conditions of the structure the first i + 1 structures have.
        with_values: The same of pairs that depend on values; all 0 where those are not looked at.
    """

    structural: tuple[int, ...]
    with_values: tuple[int, ...]

    def enough(self, share: float) -> int:
        """After how many structures this share of the structural pairs that all have is covered."""
        wanted = share * self.structural[-1] if self.structural else 0
        return next((n for n, pairs in enumerate(self.structural, 1) if pairs >= wanted), 0)


def pair_needs(overload: str, seed: int, structures: int, *, values: int = 1) -> PairGrowth:
    """The pairs that the first draws of an operator cover; PyTorch runs nothing.

    Args:
        overload: Dotted name of an operator with a case.
        seed: Of the draws.
        structures: How many to draw.
        values: Value draws of each that are looked at; with 1 values are not looked at.

    Raises:
        KeyError: there is no such operator case.
    """
    drawn = draw_cases(OPERATOR_CASES[overload], seed=seed, structures=structures, values=values)
    return pair_growth([one.invocations for one in drawn], values=values > 1)


def pair_growth(structures: Sequence[Sequence[Invocation]], *, values: bool = True) -> PairGrowth:
    """As `pair_needs`, of calls of one operator that are there; those of a structure lie together."""
    table = pair_table(structures, values=values)
    seen = np.zeros_like(table.pairs)
    growth: tuple[list[int], list[int]] = ([], [])
    start = 0
    for group in structures:
        seen |= table.counts(range(start, start + len(group))) > 0
        start += len(group)
        both = seen & table.pairs
        growth[0].append(int(np.count_nonzero(both & ~table.with_values)))
        growth[1].append(int(np.count_nonzero(both & table.with_values)))
    return PairGrowth(tuple(growth[0]), tuple(growth[1]))
