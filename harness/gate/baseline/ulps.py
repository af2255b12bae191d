"""How far the passes of a cell are from PyTorch: structures counted by a bound on their largest error.

The bounds are 0.5, 1, 2, 4 … ULP, so that a last place that differs between machines changes no baseline, and
a growth that counts does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

#: (bound in ULP, how many structures have no larger error and one larger than half of it), by bound.
Ulps: TypeAlias = tuple[tuple[float, int], ...]

#: A correctly rounded result is within this many ULP, as is what cannot be measured in ULP.
ROUNDED = 0.5
#: Larger errors pass where the numbers say nothing (PyTorch is as far from float64); they count as infinite.
_LARGEST = 2.0**20


def bound(error: float | None) -> float:
    """The smallest bound that `error` (ULP) keeps to."""
    if error is None or error <= ROUNDED:
        return ROUNDED
    if not error <= _LARGEST:
        return math.inf
    mantissa, exponent = math.frexp(error)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def word(limit: float) -> str:
    """A bound in digits: ``0.5``, ``64``, ``inf``."""
    return f"{limit:.0f}" if limit >= 1 else f"{limit:g}"


def counted(errors: Iterable[float | None]) -> Ulps:
    """Structures by the bound of their largest error (ULP; None where it is not measured)."""
    return tuple(sorted(Counter(bound(error) for error in errors).items()))


def largest(ulps: Ulps) -> float:
    """The bound that all keep to; 0.5 where there is none."""
    return max((limit for limit, _ in ulps), default=ROUNDED)


def growths(before: Ulps, now: Ulps, factor: float) -> Iterator[tuple[float, int, int]]:
    """Where to look for errors that have grown by more than `factor`, a power of two.

    Yields:
        A bound of `before`; how many had an error beyond it; how many have one beyond `factor` times it.
        Where no error of the same structures has grown by more than `factor`, the third is never larger
        than the second; and it is for some bound, where one has grown by more than twice `factor` and the
        others have not shrunk.
    """
    for limit in sorted({ROUNDED, *(limit for limit, _ in before)}):
        yield limit, _beyond(before, limit), _beyond(now, factor * limit)


def _beyond(ulps: Ulps, least: float) -> int:
    return sum(count for limit, count in ulps if limit > least)
