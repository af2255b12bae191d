"""The fewest of some names without which something is right, by halving."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def fewest(names: Sequence[str], helps: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """A name, or the few, without which all is right; none where leaving out all does not help.

    Halves of what helps are tried until neither half helps.
    """
    left = tuple(dict.fromkeys(names))
    if not left or not helps(left):
        return ()
    while len(left) > 1:
        middle = len(left) // 2
        half = next((part for part in (left[:middle], left[middle:]) if helps(part)), None)
        if half is None:
            return _without_needless(left, helps)
        left = half
    return left


def _without_needless(names: tuple[str, ...], helps: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """The names without those that need not be left out."""
    for name in names:
        fewer = tuple(other for other in names if other != name)
        if helps(fewer):
            names = fewer
    return names
