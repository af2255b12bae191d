"""The fewest of some things with which something still holds, by halving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def fewest(items: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """A few items with which something holds, none of which can be left out; none where it does not hold with all.

    Halves are tried until it holds with neither. Then ever smaller pieces are left out (Zeller and Hildebrandt,
    Simplifying and Isolating Failure-Inducing Input, IEEE Trans. Softw. Eng. 28, 2002).
    """
    left = tuple(dict.fromkeys(items))
    if not left or not holds(left):
        return ()
    while len(left) > 1:
        middle = len(left) // 2
        half = next((part for part in (left[:middle], left[middle:]) if holds(part)), None)
        if half is None:
            return _without_needless(left, holds)
        left = half
    return left


def _without_needless(items: tuple[T, ...], holds: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """The items without those that need not be there."""
    size = max(len(items) // 4, 1)
    while True:
        start = 0
        while start < len(items):
            fewer = items[:start] + items[start + size :]
            if fewer and holds(fewer):
                items = fewer
            else:
                start += size
        if size == 1:
            return items
        size //= 2
