"""Shapes and strides for operator cases to draw.

The shapes give a test tensor its sizes; the strides, its place in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol, TypeVar

from harness.core.invocation import contiguous_strides

T = TypeVar("T")

#: Sizes of a dimension, simplest first. 0 and 1 are where broadcasting and reductions go wrong; the
#: neighbourhoods of 4, 8, 16, 32 and 64 are where vectorised kernels switch to their tails.
_SIZES = (1, 2, 3, 4, 2, 3, 5, 0, 7, 8, 9, 1, 15, 16, 17, 33, 31, 64)
#: Elements beyond which a drawn shape is cut down: values cost time, structure finds defects.
MAX_ELEMENTS = 4096


class Chooser(Protocol):
    """An object that makes choices, such as `harness.generate.draw.Draw`."""

    dtype: str

    def choose(self, *options: T) -> T:
        """Return one of `options`."""
        ...

    def integer(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        ...

    def boolean(self) -> bool:
        """True or False."""
        ...

    def order(self, count: int) -> list[int]:
        """Return the numbers below `count` in any order."""
        ...


#: Sizes of real feature maps and signals, primes, and neighbours of a power of two: at these, and hardly below
#: ten, a ratio of two sizes, a product with a scale or a count of windows is rounded.
MAP_SIZES = (14, 28, 56, 112, 13, 31, 127, 255, 256, 257)


def sizes(low: int = 0, high: int = 33) -> tuple[int, ...]:
    """Return the sizes in [low, high] to choose among."""
    return tuple(s for s in _SIZES if low <= s <= high) or (low,)


def shape(d: Chooser, min_rank: int = 0, max_rank: int = 5, min_size: int = 0, max_size: int = 65) -> tuple[int, ...]:
    """Choose a shape; higher ranks get smaller sizes so that the tensor stays small."""
    ranks = [r for r in (2, 1, 3, 0, 2, 4, 3, 5, 1) if min_rank <= r <= max_rank]
    rank = d.choose(*(ranks or [min_rank]))
    drawn: list[int] = []
    for axis in range(rank):
        limit = max_size if axis == 0 and rank <= 2 else min(max_size, (65, 65, 65, 17, 9, 5)[min(rank, 5)])
        drawn.append(d.choose(*sizes(min_size, max(limit, min_size))))
    return tuple(drawn)


def broadcastable_to(d: Chooser, common: Sequence[int]) -> tuple[int, ...]:
    """Choose a shape that broadcasts together with `common` to `common`: some sizes are 1, leading ones may be
    dropped."""
    kind = d.choose("same", "same", "ones", "suffix", "scalar")
    if kind == "same":
        return tuple(common)
    if kind == "scalar":
        return ()
    start = d.integer(0, len(common)) if kind == "suffix" else 0
    return tuple(1 if d.boolean() else size for size in common[start:])


def broadcasting(d: Chooser, common: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Choose shapes of `count` tensors that broadcast together to `common`: all of them the same, one of them smaller
    than the others, or each of them lacking a size that another has."""
    # The one whose shape is the common one; `count` where all may lack sizes.
    full = d.integer(0, count)
    if full < count:
        return [tuple(common) if i == full else broadcastable_to(d, common) for i in range(count)]
    owners = [d.integer(0, count - 1) for _ in common]
    return [
        tuple(
            size if owner == i or d.choose(False, False, True) else 1
            for size, owner in zip(common, owners, strict=True)
        )
        for i in range(count)
    ]


def layout(d: Chooser, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Choose strides and storage offset for a tensor of `sizes`; contiguous in about half of the draws.

    The others: dimensions permuted, every second element of a larger tensor, expanded (stride 0) in a
    dimension, and a contiguous view that starts inside its storage.
    """
    strides = contiguous_strides(sizes)
    if not sizes:
        return strides, d.choose(0, 0, 0, 0, 0, 3)
    kind = d.choose(*(("contiguous",) * 5), "permuted", "permuted", "stepped", "expanded", "offset")
    if kind == "permuted":
        order = d.order(len(sizes))
        inner = contiguous_strides(tuple(sizes[i] for i in order))
        return tuple(inner[order.index(i)] for i in range(len(sizes))), 0
    if kind == "stepped":
        return tuple(2 * s for s in strides), d.integer(0, 1)
    if kind == "expanded":
        dim = d.integer(0, len(sizes) - 1)
        rest = contiguous_strides(tuple(1 if i == dim else size for i, size in enumerate(sizes)))
        return tuple(0 if i == dim else s for i, s in enumerate(rest)), 0
    if kind == "offset":
        return strides, d.integer(1, 5)
    return strides, 0


def layout_of_runs(
    d: Chooser, sizes: tuple[int, ...], run: int, *, square: bool = False
) -> tuple[tuple[int, ...], int]:
    """Choose strides and storage offset that keep each `run` of elements together.

    The leading dimensions, of which each element is a run, lie in any way; with `square` a run may also be
    a transposed matrix.
    """
    strides = contiguous_strides(sizes)
    lead = next((k for k in range(len(sizes)) if prod(sizes[k:]) == run), None)
    if lead is None or not run:
        return strides, 0
    outer, offset = layout(d, sizes[:lead])
    inner = strides[lead:]
    if square and len(inner) == 2 and d.choose(False, False, True):
        inner = (*inner[:-2], inner[-1], inner[-2])
    return (*(step * run for step in outer), *inner), offset * run
