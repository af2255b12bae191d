"""Causes in one conversion function that are one defect, by what their calls have in common.

What is wrong with a result does not tell by itself whether two symptoms have one cause: most pairs of an
inexact and of a misshapen result have two. That both need the same unusual call does.

| one | and another, in one function | are one defect where the calls of both |
| --- | --- | --- |
| anything | anything | have a 0-d tensor or tensors of several ranks, as few others do |
| nodes without a dtype | wrong elements | take integers only: their cast is missing |
| wrong numbers | a wrong size | take no tensor: numbers give the size, too |
| sizes that do not fit | a wrong size | are of one operator and alike in what is 0-d or empty |
| an argument that is ignored | wrong elements | give that argument |
| wrong elements | a node that is not run | the same, and alike in taking integers only |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from itertools import combinations, permutations, product

from harness.analyse.blamed_place import (
    ANOTHER_DTYPE,
    IGNORES,
    LEAVES_RANGE,
    LOSES_DIGITS,
    LOSES_NAN,
    SHAPES,
    UNDEFINED_DTYPE,
    UNFIT,
)
from harness.analyse.call_conditions import EMPTY, NO_TENSOR, RANKS, SINGLE, WHOLE, CallConditions
from harness.analyse.united import United
from harness.compare import ELEMENTWISE

#: What a call may have that is unusual.
_UNUSUAL = frozenset({SINGLE, RANKS})
#: What decides whether symptoms of one kind are of one defect: of sizes, and of elements.
_OF_SIZES = frozenset({SINGLE, EMPTY})
_OF_NUMBERS = frozenset({SINGLE, EMPTY, WHOLE})
_NUMBERS = frozenset({*ELEMENTWISE, LEAVES_RANGE, LOSES_NAN, LOSES_DIGITS})
_REFUSED = "for what does not fit"
_FITTING = ("inputs that do not fit", _REFUSED)


def by_conditions(
    kept: Sequence[United],
    functions: Sequence[Hashable],
    conditions: Sequence[CallConditions],
    apart: Set[tuple[int, int]],
) -> Iterator[tuple[int, int]]:
    """Pairs of united causes that are one defect, by their places.

    Args:
        kept: All there are.
        functions: Of each cause the conversion function; None for another place.
        conditions: Of each cause.
        apart: Causes that one row has, which are two defects.
    """
    here: defaultdict[Hashable, list[int]] = defaultdict(list)
    for number, united in enumerate(kept):
        function = functions[united.causes[0]]
        if function is not None:
            here[function].append(number)
    met = {number: _common(kept[number], conditions) for numbers in here.values() for number in numbers}
    for numbers in here.values():
        for pair in combinations(numbers, 2):
            one, other = (kept[number] for number in pair)
            if not one.is_of_choice(other) or not apart.isdisjoint(product(one.causes, other.causes)):
                continue
            sides = [(kept[number].words, met[number]) for number in pair]
            in_one = not one.overloads.isdisjoint(other.overloads)
            if (
                _of_one_trigger(*sides)
                or (in_one and _of_one_kind(*sides))
                or any(_explains(*ordered) for ordered in permutations(sides))
            ):
                yield pair


_Side = tuple[set[str], CallConditions]


def _of_one_trigger(one: _Side, other: _Side) -> bool:
    """Whether they depend on the same, which is unusual."""
    return not (one[1].rare & other[1].rare).isdisjoint(_UNUSUAL)


def _of_one_kind(one: _Side, other: _Side) -> bool:
    """Whether they are of one kind, and neither depends on what the other does not."""
    words, differing = one[0] | other[0], one[1].met ^ other[1].met
    if all(map(_is_size, words)):
        return differing.isdisjoint(_OF_SIZES)
    # A node whose attributes are wrong computes other elements, or finds that its inputs do not fit.
    refused = [all(said.endswith(_REFUSED) for said in side[0]) for side in (one, other)]
    computed = [side[0] <= _NUMBERS for side in (one, other)]
    return any(refused) and any(computed) and differing.isdisjoint(_OF_NUMBERS)


def _explains(cause: _Side, effect: _Side) -> bool:
    """Whether the dtype that is wrong in one is what the other comes of."""
    both = cause[1].met & effect[1].met
    if WHOLE in both and UNDEFINED_DTYPE in cause[0] and not effect[0].isdisjoint(ELEMENTWISE):
        return True
    if effect[0] <= _NUMBERS | {ANOTHER_DTYPE} and not ignored_arguments(cause[0]).isdisjoint(
        effect[1].given
    ):
        return True
    wrong = not cause[0].isdisjoint({LOSES_DIGITS, ANOTHER_DTYPE, "values"})
    return NO_TENSOR in both and wrong and not effect[0].isdisjoint(SHAPES)


def ignored_arguments(words: Iterable[str]) -> set[str]:
    """The arguments that functions ignore, by words of what is wrong with them."""
    return {said.removeprefix(IGNORES).strip("`") for said in words if said.startswith(IGNORES)}


def _is_size(words: str) -> bool:
    return words in ("shape", UNFIT) or words.endswith(_FITTING)


def _common(united: United, conditions: Sequence[CallConditions]) -> CallConditions:
    """What the calls of all of its causes meet."""
    first, *others = (conditions[one] for one in united.causes)
    return CallConditions(
        met=first.met.intersection(*(other.met for other in others)),
        rare=first.rare.intersection(*(other.rare for other in others)),
        given=first.given.intersection(*(other.given for other in others)),
    )
