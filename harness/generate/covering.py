"""Choices that see every pair early: each option with each thing that was chosen before it.

Drawn by chance, an option of one in ten meets another of one in ten in one case of a hundred. What is chosen
here has come least with what the case has already, so that few cases have most pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

Option = TypeVar("Option", bound=Hashable)


class _Row:
    """How often each option came with one point, and all of them together."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.total = 0
        self.counts: dict[Hashable, int] = {}


class Covering:
    """Remembers which options came with which points of a case.

    Args:
        below: Gives a number below a bound, from 0, where several options are as good.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._met: dict[Hashable, dict[Hashable, _Row]] = {}

    def choose(self, place: Hashable, weights: Mapping[Option, int], points: Iterable[Hashable]) -> Option:
        """The option that these points have met least.

        Args:
            place: Where the choice is made.
            weights: Option → how often it is to come, in proportion.
            points: What the case has. A point that is in few cases counts as much as one that is in many.
        """
        met = dict.fromkeys(weights, 0.0)
        known = self._met.setdefault(place, {})
        rows = []
        for point in points:
            row = known.get(point)
            if row is None:
                row = known[point] = _Row()
            elif row.total:
                share = 1.0 / (1 + row.total)
                for option, count in row.counts.items():
                    if option in met:
                        met[option] += count * share
            rows.append(row)
        best: list[Option] = []
        least = float("inf")
        for option, weight in weights.items():
            score = met[option] / weight
            if score < least - 1e-9:
                best, least = [option] * weight, score
            elif score <= least + 1e-9:
                best += [option] * weight
        chosen = best[self._below(len(best))]
        for row in rows:
            row.total += 1
            row.counts[chosen] = row.counts.get(chosen, 0) + 1
        return chosen
