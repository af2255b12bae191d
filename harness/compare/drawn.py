"""Outputs that are drawn at random: could these numbers come from the distribution that the call names?

If each element x is drawn from its own distribution function F, then a number U that is uniform in
[0, 1) lies in [F(x−), F(x)] for each of them. By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart
(Massart, The tight constant in the Dvoretzky–Kiefer–Wolfowitz inequality, 1990), the empirical distribution
function of n such numbers strays from the uniform one by more than ε with probability at most 2·exp(−2nε²).
ε is chosen for `FALSE_ALARM`, so that a correct generator is called wrong once in 10⁹ outputs; wrong ranges,
means, spreads and constants are seen from some dozens of elements on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.compare.judge import Evidence, Judge, Mask
from harness.core.dtypes import Array

#: How seldom a correct generator may be called wrong: a probability per output.
FALSE_ALARM = 1e-9
#: How many drawn numbers a message shows.
_SHOWN = 6

_NOTHING = np.empty(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Where the elements of an output lie in their distributions.

    Attributes:
        impossible: Marks elements that are never drawn. Shape: that of the output.
        below: F just below each element that was drawn independently of the others, shape ``(n,)``.
        upto: F at these elements.
    """

    impossible: Mask
    below: Array = field(default_factory=lambda: _NOTHING)
    upto: Array = field(default_factory=lambda: _NOTHING)

    @property
    def distance(self) -> float:
        """How far the empirical distribution function is at least from the right one, 0 to 1."""
        count = self.below.size
        if not count:
            return 0.0
        # The share of `upto` ≤ t must not exceed t, nor the share of `below` < t fall short of t.
        early = np.arange(1, count + 1) / count - np.sort(self.upto)
        late = np.sort(self.below) - np.arange(count) / count
        return max(0.0, float(early.max()), float(late.max()))

    @property
    def limit(self) -> float:
        """ε: how large the distance may be."""
        return math.sqrt(math.log(2 / FALSE_ALARM) / (2 * max(self.below.size, 1)))

    @property
    def strays(self) -> bool:
        """Whether the elements as a whole are too far from their distributions."""
        return self.distance > self.limit

    @property
    def wrong(self) -> Mask:
        """The elements that are impossible; all where none is and the sample strays."""
        if self.impossible.any() or not self.strays:
            return self.impossible
        return np.ones(self.impossible.shape, dtype=bool)

    def said(self, got: Array, output: int) -> str:
        """What was tested, its bound and the sample, for a person; for an output that is wrong."""
        if self.impossible.any():
            place = np.unravel_index(int(np.argmax(self.impossible)), got.shape)
            where = f"[{','.join(str(int(i)) for i in place)}]" if place else ""
            share = f"{int(self.impossible.sum())} of {got.size} elements"
            return f"output {output}{where}: {got[place]!s} cannot be drawn there ({share} cannot)"
        drawn = ", ".join(str(x) for x in got.reshape(-1)[:_SHOWN])
        more = ", …" if got.size > _SHOWN else ""
        return (
            f"output {output}: the distribution is {self.distance:.4f} from the right one, at most "
            f"{self.limit:.4f} is allowed for a sample of {self.below.size} (drawn: {drawn}{more})"
        )


@dataclass(frozen=True)
class DistributionTest:
    """An output rule for elements that are drawn at random, so that two right outputs need not be equal.

    A script that reproduces a failure compares how the elements are distributed over many runs.

    Attributes:
        place: Places the elements of one output in their distributions.
        distinct: From the arguments, whether the elements of each row must differ from one another.
        ends: From the arguments, the least number that may be drawn and one that none reaches, where the
            rule knows such numbers: a script looks for elements beyond them.
    """

    place: Callable[[Evidence, int], Fit]
    distinct: Callable[[Mapping[str, Any]], bool] | None = None
    ends: Callable[[Mapping[str, Any]], tuple[float, float]] | None = None

    def __call__(self, evidence: Evidence, output: int) -> Mask:
        """As any `OutputRule`."""
        return self.place(evidence, output).wrong


def draws(judge: Judge) -> bool:
    """Whether an output of the operator is drawn at random, so that one run may be right by luck."""
    return any(isinstance(rule, DistributionTest) for rule in judge.rules.values())


def same_kind(judge: Judge, one: Evidence, other: Evidence) -> bool:
    """Whether two backends' outputs that are drawn at random are wrong in the same way.

    Numbers of two generators are never equal: what is compared is which outputs are wrong, and whether
    impossible numbers or the distribution is what is wrong with them.
    """
    kinds = [tuple(_kinds(judge, evidence)) for evidence in (one, other)]
    return kinds[0] == kinds[1] and any(kinds[0])


def _kinds(judge: Judge, evidence: Evidence) -> Iterator[str]:
    for output, rule in judge.rules.items():
        if not isinstance(rule, DistributionTest):
            continue
        placing = rule.place(evidence, output)
        yield "impossible" if placing.impossible.any() else "strays" if placing.strays else ""
