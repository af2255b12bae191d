"""Which dtype each draw of an operator case is about."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import count, cycle

from harness.core import WIDE_UNSIGNED

#: One draw of so many is about a wide unsigned integer, which few models have and few kernels take: three
#: dtypes more would take a quarter of the draws from those that models are made of.
RARELY = 16


def turns(dtypes: Sequence[str], name: str) -> Iterator[str]:
    """The dtypes in turn, without end; wide unsigned ones share one turn in `RARELY`.

    Args:
        dtypes: At least one.
        name: Of the collection: which wide one begins depends on it, so that short collections of many
            operators have each.
    """
    common = [dtype for dtype in dtypes if dtype not in WIDE_UNSIGNED]
    rare = [dtype for dtype in dtypes if dtype in WIDE_UNSIGNED]
    if not common or not rare:
        yield from cycle(dtypes)
    start = zlib.crc32(name.encode()) % len(rare)
    ordinary, wide = cycle(common), cycle(rare[start:] + rare[:start])
    for turn in count(1):
        # In the middle, so that a collection of few draws has one.
        yield next(wide if turn % RARELY == RARELY // 2 else ordinary)
