"""Shapes and strides: which sizes a test tensor has and how it lies in memory."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from harness.invocation import contiguous_strides

#: Sizes of a dimension, simplest first. 0 and 1 are where broadcasting and reductions go wrong; the
#: neighbourhoods of 4, 8, 16 and 32 are where vectorised kernels switch to their tails.
_SIZES = (1, 2, 3, 4, 2, 3, 5, 0, 7, 8, 9, 1, 15, 17, 33)
#: Elements beyond which a drawn shape is cut down: values cost time, structure finds defects.
MAX_ELEMENTS = 4096


def sizes(low: int = 0, high: int = 33) -> st.SearchStrategy[int]:
    """A dimension's size in [low, high]."""
    chosen = tuple(s for s in _SIZES if low <= s <= high) or (low,)
    return st.sampled_from(chosen)


@st.composite
def shapes(
    draw: st.DrawFn, min_rank: int = 0, max_rank: int = 5, min_size: int = 0, max_size: int = 33
) -> tuple[int, ...]:
    """A shape; higher ranks get smaller sizes so that the tensor stays small."""
    ranks = [r for r in (2, 1, 3, 0, 2, 4, 3, 5, 1) if min_rank <= r <= max_rank]
    rank = draw(st.sampled_from(ranks or [min_rank]))
    limit = max_size if rank <= 2 else min(max_size, 9 if rank == 3 else 5)
    return tuple(draw(sizes(min_size, max(limit, min_size))) for _ in range(rank))


@st.composite
def broadcastable_to(draw: st.DrawFn, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts together with `shape` to `shape`: ones in places, leading ones dropped."""
    kind = draw(st.sampled_from(("same", "same", "ones", "suffix", "scalar")))
    if kind == "same":
        return tuple(shape)
    if kind == "scalar":
        return ()
    start = draw(st.integers(0, len(shape))) if kind == "suffix" else 0
    return tuple(1 if draw(st.booleans()) else size for size in shape[start:])


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Strides and storage offset for `shape`; contiguous in about half of the draws.

    The others: dimensions permuted, every second element of a larger tensor, expanded (stride 0) in a
    dimension, and a contiguous view that starts inside its storage.
    """
    strides = contiguous_strides(shape)
    if not shape:
        return strides, draw(st.sampled_from((0, 0, 0, 0, 0, 3)))
    kind = draw(
        st.sampled_from(("contiguous",) * 5 + ("permuted", "permuted", "stepped", "expanded", "offset"))
    )
    if kind == "permuted":
        order = draw(st.permutations(range(len(shape))))
        inner = contiguous_strides(tuple(shape[i] for i in order))
        return tuple(inner[order.index(i)] for i in range(len(shape))), 0
    if kind == "stepped":
        return tuple(2 * s for s in strides), draw(st.integers(0, 1))
    if kind == "expanded":
        dim = draw(st.integers(0, len(shape) - 1))
        rest = contiguous_strides(tuple(1 if i == dim else size for i, size in enumerate(shape)))
        return tuple(0 if i == dim else s for i, s in enumerate(rest)), 0
    if kind == "offset":
        return strides, draw(st.integers(1, 5))
    return strides, 0
