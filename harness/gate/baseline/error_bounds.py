"""Count passing structures by a bound on their largest error.

The bounds are 0.5, 1, 2, 4 … ULP: a last place that differs between machines changes no baseline, while a relevant
growth does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

#: Pairs of a bound in ULP and the number of structures whose largest error is within it but not within half of it.
Ulps: TypeAlias = tuple[tuple[float, int], ...]

#: A correctly rounded result is within this many ULP; so is, by definition, one that cannot be measured in ULP.
ROUNDED = 0.5
#: Larger errors pass only where numbers mean little (PyTorch is as far from float64), so they count as infinite.
_LARGEST = 2.0**20


def bound(error: float | None) -> float:
    """Return the smallest bound that `error`, in ULP, does not exceed."""
    if error is None or error <= ROUNDED:
        return ROUNDED
    if not error <= _LARGEST:
        return math.inf
    mantissa, exponent = math.frexp(error)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def format_bound(limit: float) -> str:
    """Return a bound in digits: ``0.5``, ``64``, ``inf``."""
    return f"{limit:.0f}" if limit >= 1 else f"{limit:g}"


def max_bound(ulps: Ulps) -> float:
    """Return the largest bound; 0.5 if there is none."""
    return max((limit for limit, _ in ulps), default=ROUNDED)


def growths(before: Ulps, now: Ulps, factor: float) -> Iterator[tuple[float, int, int]]:
    """Compare the tails of two distributions of errors to find growth by more than `factor`, a power of two.

    Yields:
        A bound of `before`; the number of structures with a larger error before; and the number whose error exceeds
        `factor` times the bound now. If no error of the same structures has grown by more than `factor`, the third is
        never larger than the second. If one has grown by more than twice `factor` and no other has shrunk, the third is
        larger for some bound.
    """
    for limit in sorted({ROUNDED, *(limit for limit, _ in before)}):
        yield limit, _beyond(before, limit), _beyond(now, factor * limit)


def _beyond(ulps: Ulps, least: float) -> int:
    return sum(count for limit, count in ulps if limit > least)
