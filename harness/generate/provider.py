"""A stream of choices for drawing cases. It covers pairs early and is the same on every machine.

A choice whose place in the operator case is known comes from a deck of that place: over a collection every option
comes as often as the deck holds it, so that few draws see what uniform ones would see in many. Among the cards left
in the deck, the next is the option that has met least what the case already has. Drawn by chance, an option of one
in ten meets another of one in ten in one case of a hundred; drawn in this way, few cases have most pairs.

A collection is drawn from one seeded stream without Hypothesis, whose engine takes five times as long. Hypothesis's
own backend also mixes constants that it finds in the source files of loaded local modules into integers and floats,
so that one seed draws other values if other modules are loaded: under pytest-xdist, in a notebook, or along with a
user's own tests. Shrinking, which is Hypothesis's, takes the stream through its documented interface for alternative
backends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any, TypeVar

from hypothesis.internal.conjecture.providers import PrimitiveProvider

Option = TypeVar("Option", bound=Hashable)


class _Row:
    """Counts of the options that came with one point, and their total."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.total = 0
        self.counts: dict[Hashable, int] = {}


class Covering:
    """Remembers which options came with which points of a case.

    Args:
        below: Returns a number below a bound, from 0, to choose among equally good options.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._met: dict[Hashable, dict[Hashable, _Row]] = {}

    def choose(self, place: Hashable, weights: Mapping[Option, int], points: Iterable[Hashable]) -> Option:
        """Return the option that these points have met least.

        Args:
            place: The place of the choice in the operator case.
            weights: Option → relative frequency.
            points: The points of the case. A rare point counts as much as a common one.
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


#: Choices among more than this are uniform: a deck of them would not be used up.
_LARGEST_DECK = 64
#: Cards per option in a deck: with fewer, the last cards would often repeat a pair that the case has.
_COPIES = 4
#: Options of a choice that others are to meet: of more, no collection has all pairs.
_MOST_POINTS = 10


class ChoiceStream:
    """A seeded stream of numbers, with the decks of the places that draw from it."""

    def __init__(self, seed: str) -> None:
        # Seeding by text goes through SHA-512, which Python keeps (`random.seed`, version 2).
        self.random = Random(seed)
        self.place: Hashable = None
        self.options: Sequence[Hashable] = ()
        self._decks: dict[Hashable, list[int]] = {}
        self._points: list[Hashable] | None = None
        self._numbers: dict[Hashable, int] = {}
        self._covering = Covering(self.uniform)

    def uniform(self, bound: int) -> int:
        """Choose any number below `bound`."""
        return self.random.getrandbits(64) % bound

    def begin(self, *points: Hashable) -> None:
        """Begin another case with these points; the choices for it become points, too."""
        self._points = [*points]

    def below(self, bound: int) -> int:
        """Choose a number below `bound`."""
        place, options = self.place, self.options or range(bound)
        self.place, self.options = None, ()
        if place is None or bound > _LARGEST_DECK:
            return self.uniform(bound)
        deck = self._decks.get((place, bound))
        if not deck:
            deck = self._decks[place, bound] = list(range(bound)) * (_COPIES if self._points else 1)
        left = {options[i]: 1 for i in deck}
        chosen = self._covering.choose(place, left, self._points or ())
        if self._points is not None and len(set(options)) <= _MOST_POINTS:
            # A number for each: deep tuples take long to be hashed, and are looked up at every choice.
            self._points.append(self._numbers.setdefault((place, chosen), len(self._numbers)))
        index = next(i for i in deck if options[i] == chosen)
        deck.remove(index)
        return index


_stream: ContextVar[ChoiceStream | None] = ContextVar("stream", default=None)


@contextmanager
def stream(seed: str) -> Iterator[ChoiceStream]:
    """Within it, strategies draw from the stream that `seed` names."""
    begun = ChoiceStream(seed)
    token = _stream.set(begun)
    try:
        yield begun
    finally:
        _stream.reset(token)


def at(place: Hashable, options: Sequence[Hashable] = ()) -> None:
    """Set the place in the operator case and the options of the next choice; outside a `stream` it has no effect."""
    current = _stream.get()
    if current is not None:
        current.place, current.options = place, options


def _current() -> ChoiceStream:
    current = _stream.get()
    if current is None:
        raise RuntimeError("this Hypothesis backend draws within `stream` only")
    return current


class StableProvider(PrimitiveProvider):
    """Choices from the current stream, uniform unless they have a place.

    Only `Random.getrandbits` and `Random.random` are used, whose values Python's documentation
    promises to keep.
    """

    lifetime = "test_case"

    def draw_boolean(self, p: float = 0.5) -> bool:
        """True with probability `p`."""
        return _current().random.random() < p

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: Mapping[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """Draw any integer in the range; an open end reaches 2³² beyond the other."""
        low = min_value if min_value is not None else (max_value or 0) - 2**32
        high = max_value if max_value is not None else low + 2**33
        return low + _current().below(high - low + 1)

    def draw_float(
        self,
        *,
        min_value: float = -float("inf"),
        max_value: float = float("inf"),
        allow_nan: bool = True,
        smallest_nonzero_magnitude: float = 0.0,
    ) -> float:
        """Uniform in the range, cut to ±1e9."""
        low, high = max(min_value, -1e9), min(max_value, 1e9)
        return low + _current().random.random() * (high - low)

    def draw_string(self, intervals: Any, *, min_size: int = 0, max_size: int = 10**10) -> str:
        """Return a string at most eight characters longer than `min_size`."""
        size = self.draw_integer(min_size, min(max_size, min_size + 8))
        return "".join(chr(intervals[self.draw_integer(0, len(intervals) - 1)]) for _ in range(size))

    def draw_bytes(self, min_size: int = 0, max_size: int = 10**10) -> bytes:
        """Return bytes at most eight longer than `min_size`."""
        size = self.draw_integer(min_size, min(max_size, min_size + 8))
        return bytes(_current().random.getrandbits(8) for _ in range(size))
