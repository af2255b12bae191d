"""Choices that see every pair early: each option with each thing that was chosen before it.

Drawn by chance, an option of one in ten meets another of one in ten in one case of a hundred. What is chosen
here has come least with what the case has already, so that few cases have most pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

Option = TypeVar("Option", bound=Hashable)


class Covering:
    """Remembers which options came with which points of a case.

    Args:
        below: Gives a number below a bound, from 0, where several options are as good.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._met: dict[tuple[Hashable, Hashable], dict[Hashable, int]] = {}

    def choose(self, place: Hashable, weights: Mapping[Option, int], points: Iterable[Hashable]) -> Option:
        """The option that these points have met least.

        Args:
            place: Where the choice is made.
            weights: Option → how often it is to come, in proportion.
            points: What the case has. A point that is in few cases counts as much as one that is in many.
        """
        met = dict.fromkeys(weights, 0.0)
        rows = []
        for point in points:
            row = self._met.get((place, point))
            if row is None:
                row = self._met[place, point] = {}
            elif row:
                share = 1.0 / (1 + sum(row.values()))
                for option, count in row.items():
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
            row[chosen] = row.get(chosen, 0) + 1
        return chosen
