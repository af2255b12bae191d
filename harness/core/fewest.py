"""Find a minimal subset of items that keeps a property, by delta debugging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def fewest(items: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """Return a minimal subset of `items` that satisfies `holds`; empty if all of them together do not.

    1. Halve the items as long as one half satisfies the property.
    2. Then remove ever smaller pieces that are not needed, down to single items.

    After A. Zeller and R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Trans. Softw. Eng. 28,
    2002.
    """
    remaining = tuple(dict.fromkeys(items))
    if not remaining or not holds(remaining):
        return ()
    while len(remaining) > 1:
        middle = len(remaining) // 2
        half = next((part for part in (remaining[:middle], remaining[middle:]) if holds(part)), None)
        if half is None:
            return _remove_needless(remaining, holds)
        remaining = half
    return remaining


def _remove_needless(items: tuple[T, ...], holds: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """Return the items that are left when every removable piece has been removed."""
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
