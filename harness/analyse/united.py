"""Causes that are taken for one defect, and what they have in common with others."""

from __future__ import annotations

from dataclasses import dataclass

from harness.analyse.blamed_place import (
    ANOTHER_DTYPE,
    IGNORES,
    LARGER_DTYPE,
    LEAVES_RANGE,
    UNDEFINED_DTYPE,
)


@dataclass(eq=False)
class United:
    """Causes that are one defect, and what they may meet another by.

    Attributes:
        may_be: The words of others that they are one defect with, if there are such.
        choices: The algorithms of the place that they are about, "" for the usual one; none for what all
            have in common.
        nodes: That are not defined for a dtype.
        overloads: Of all operators that show it.
        cases: Of symptoms of a wrong model, which another may have with another backend.
        structures: Of wrong elements.
        losing: Structures whose results lose NaN.
        recast: The cases with a result of a dtype that loses some of it.
        inexact: The cases with wrong elements.
    """

    causes: list[int]
    words: set[str]
    may_be: set[str]
    choices: set[str]
    nodes: set[str]
    overloads: set[int]
    cases: set[int]
    structures: set[int]
    losing: set[int]
    recast: set[int]
    inexact: set[int]

    def is_of_choice(self, other: United) -> bool:
        """Whether they may be about one algorithm of their place."""
        return not (self.choices and other.choices and self.choices.isdisjoint(other.choices))

    def says_as(self, other: United) -> bool:
        """Whether the words of one are those of the other."""
        in_one = not self.overloads.isdisjoint(other.overloads)
        said = self.words & other.words
        if said == {UNDEFINED_DTYPE}:
            return in_one or not self.nodes or not other.nodes or not self.nodes.isdisjoint(other.nodes)
        if said or (self.words & other.may_be) or (self.may_be & other.words):
            return True
        return in_one and (self._is_larger(other) or other._is_larger(self))

    def _is_larger(self, other: United) -> bool:
        return LARGER_DTYPE in self.words and ANOTHER_DTYPE in other.words | other.may_be

    def explains(self, other: United) -> bool:
        """Whether most of the wrong elements of one are results in the other's wrong dtype."""
        return _mostly(self.recast, other.inexact) or _mostly(other.recast, self.inexact)

    def meets(self, other: United) -> bool:
        """Whether one graph shows both, mostly, or one case does."""
        shared = len(self.structures & other.structures)
        mostly = shared > 0 and 2 * shared >= min(len(self.structures), len(other.structures))
        return mostly or self._moves(other) or other._moves(self) or not self.cases.isdisjoint(other.cases)

    def _moves(self, other: United) -> bool:
        """Whether NaN is lost where it also comes up, or where all elements are others."""
        moves = any(words == LEAVES_RANGE or words.startswith(IGNORES) for words in self.words)
        return moves and _mostly(self.structures, other.losing)

    def add(self, other: United) -> None:
        """Take the other's causes over."""
        self.causes.extend(other.causes)
        for name in _SETS:
            getattr(self, name).update(getattr(other, name))


_SETS = (
    *("words", "may_be", "choices", "nodes", "overloads"),
    *("cases", "structures", "losing", "recast", "inexact"),
)


def _mostly(recast: set[int], inexact: set[int]) -> bool:
    shared = len(recast & inexact)
    return shared > 0 and 2 * shared >= len(inexact)
