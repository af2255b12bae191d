"""Judge random outputs: could these numbers come from the distribution that the call names?

Let each element x be drawn from its own distribution function F. Then [F(x−), F(x)] contains a number U that is uniform
in [0, 1). By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart (P. Massart, The tight constant in the
Dvoretzky–Kiefer–Wolfowitz inequality, 1990) the empirical distribution function of n such numbers deviates from the
uniform one by more than ε with probability at most 2·exp(−2nε²). ε is chosen such that a correct generator is called
wrong once in 1/`FALSE_ALARM` = 10⁹ outputs. Wrong ranges, means, deviations and constants are found from some dozens of
elements on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.compare.judge import Evidence, Judge, Mask
from harness.core.dtypes import Array

#: Largest probability, per output, of calling a correct generator wrong.
FALSE_ALARM = 1e-9
#: How many random numbers a message shows.
_SHOWN = 6

_NOTHING = np.empty(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The positions of an output's elements in their distributions.

    Attributes:
        impossible: Marks elements that the distribution excludes. Shape: that of the output.
        below: F just below each independently drawn element, shape ``(n,)``.
        upto: F at these elements, shape ``(n,)``.
    """

    impossible: Mask
    below: Array = field(default_factory=lambda: _NOTHING)
    upto: Array = field(default_factory=lambda: _NOTHING)

    @property
    def distance(self) -> float:
        """The smallest possible deviation of the empirical distribution function from the right one, 0 to 1."""
        count = self.below.size
        if not count:
            return 0.0
        # The share of `upto` ≤ t must not exceed t, nor the share of `below` < t fall short of t.
        early = np.arange(1, count + 1) / count - np.sort(self.upto)
        late = np.sort(self.below) - np.arange(count) / count
        return max(0.0, float(early.max()), float(late.max()))

    @property
    def limit(self) -> float:
        """ε, the largest deviation that is allowed."""
        return math.sqrt(math.log(2 / FALSE_ALARM) / (2 * max(self.below.size, 1)))

    @property
    def strays(self) -> bool:
        """Whether the elements as a whole deviate too far from their distributions."""
        return self.distance > self.limit

    @property
    def wrong(self) -> Mask:
        """The impossible elements; all elements if none is impossible and the sample strays."""
        if self.impossible.any() or not self.strays:
            return self.impossible
        return np.ones(self.impossible.shape, dtype=bool)

    def message(self, got: Array, output: int) -> str:
        """Describe a wrong output: the test, the limit and part of the sample."""
        if self.impossible.any():
            place = np.unravel_index(int(np.argmax(self.impossible)), got.shape)
            where = f"[{','.join(str(int(i)) for i in place)}]" if place else ""
            share = f"{int(self.impossible.sum())} of {got.size} elements"
            return f"output {output}{where}: {got[place]!s} cannot be drawn there ({share} cannot)"
        drawn = ", ".join(str(x) for x in got.reshape(-1)[:_SHOWN])
        ellipsis = ", …" if got.size > _SHOWN else ""
        return (
            f"output {output}: the distribution is {self.distance:.4f} from the right one, at most "
            f"{self.limit:.4f} is allowed for a sample of {self.below.size} (drawn: {drawn}{ellipsis})"
        )


@dataclass(frozen=True)
class DistributionTest:
    """An output rule for random elements: two right outputs need not be equal.

    A script that reproduces a failure compares the distribution of the elements over many runs.

    Attributes:
        place: Computes the positions of an output's elements in their distributions.
        distinct: Whether, given the arguments, the elements of each row must differ from one another.
        ends: The smallest possible number and an upper bound that is never reached, given the arguments, if the rule
            knows them; a script looks for elements beyond them.
    """

    place: Callable[[Evidence, int], Fit]
    distinct: Callable[[Mapping[str, Any]], bool] | None = None
    ends: Callable[[Mapping[str, Any]], tuple[float, float]] | None = None

    def __call__(self, evidence: Evidence, output: int) -> Mask:
        """Mark the wrong elements, as any `OutputRule` does."""
        return self.place(evidence, output).wrong


def draws(judge: Judge) -> bool:
    """Whether an output of the operator is random, so that a single run may be right by chance."""
    return any(isinstance(rule, DistributionTest) for rule in judge.rules.values())


def fail_alike(judge: Judge, first: Evidence, second: Evidence) -> bool:
    """Whether the random outputs of two backends are wrong in the same way.

    Numbers of two generators are never equal, so this compares the set of wrong outputs, and whether impossible numbers
    or the distribution make them wrong.
    """
    kinds = [tuple(_kinds(judge, evidence)) for evidence in (first, second)]
    return kinds[0] == kinds[1] and any(kinds[0])


def _kinds(judge: Judge, evidence: Evidence) -> Iterator[str]:
    for output, rule in judge.rules.items():
        if not isinstance(rule, DistributionTest):
            continue
        fit = rule.place(evidence, output)
        yield "impossible" if fit.impossible.any() else "strays" if fit.strays else ""
