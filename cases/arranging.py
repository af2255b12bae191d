"""Operators that reorder, repeat or pick out elements by position: flips, rolls, slices, diagonals, windows.

Values come out as they went in, so all but the few that sum are judged bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

from harness.compare.judge import ACCUMULATES, EXACT, Judge
from harness.core.dtypes import ALL, FLOATS, FULL_FLOATS, INTS, NUMBERS
from harness.core.invocation import TensorSpec
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("arranging")

_FOREVER = 2**63 - 1


@ops.case("flip", dtypes=ALL, judge=EXACT)
def flip(d: Draw) -> Arguments:
    shape = d.shape()
    return {"self": d.tensor(shape), "dims": d.dims(len(shape))}


@ops.case("flipud", dtypes=ALL, judge=EXACT)
def flipud(d: Draw) -> Arguments:
    return {"self": d.any_tensor(1)}


@ops.case("fliplr", dtypes=ALL, judge=EXACT)
def fliplr(d: Draw) -> Arguments:
    return {"self": d.any_tensor(2)}


@ops.case("roll", dtypes=ALL, judge=EXACT)
def roll(d: Draw) -> Arguments:
    shape = d.shape()
    # A dimension may be named twice: its shifts add up.
    dims = [d.dim(len(shape)) for _ in range(d.choose(1, 2, 0, 3) if shape else 0)]
    shifts = [d.integer(-40, 40) if d.boolean() else d.integer(-2, 2) for _ in dims or [0]]
    return {"self": d.tensor(shape), "shifts": shifts, "dims": dims or d.choose(OMIT, [])}


@ops.case("rot90", dtypes=ALL, judge=EXACT)
def rot90(d: Draw) -> Arguments:
    shape = d.shape(2)
    dims = d.maybe(lambda: d.dims(len(shape), min_count=2, max_count=2))
    return {"self": d.tensor(shape), "k": d.choose(OMIT, 1, 2, 3, 0, -1, -2, 4, 7, -5), "dims": dims}


def _small(d: Draw, max_size: int = 9) -> tuple[int, ...]:
    """A shape of few elements, which the result has several times."""
    return d.shape(5, max_size=2) if d.integer(0, 9) == 9 else d.shape(0, 4, max_size=max_size)


def _repeats(d: Draw, count: int) -> list[int]:
    return [d.choose(1, 2, 3, 1, 0) for _ in range(count)]


@ops.case("repeat", dtypes=ALL, judge=EXACT)
def repeat(d: Draw) -> Arguments:
    shape = _small(d)
    return {"self": d.tensor(shape), "repeats": _repeats(d, len(shape) + d.choose(0, 1, 0, 2))}


@ops.case("tile", dtypes=ALL, judge=EXACT)
def tile(d: Draw) -> Arguments:
    shape = _small(d)
    return {"self": d.tensor(shape), "dims": _repeats(d, d.integer(0, len(shape) + 2))}


def _counts(d: Draw, size: int) -> tuple[TensorSpec, Any]:
    """Draw the repeats of each of `size` elements, and their total if it is known beforehand."""
    dtype = d.choose("int64", "int32")
    if d.choose(False, False, True):
        each = d.integer(0, 3)
        return d.tensor((size,), dtype, between(each, each)), each * size
    return d.tensor((size,), dtype, between(0, 3)), d.choose(OMIT, None)


@ops.case("repeat_interleave.Tensor", dtypes=("int64", "int32"), judge=EXACT)
def repeat_interleave(d: Draw) -> Arguments:
    repeats, total = _counts(d, d.size(high=65))
    return {"repeats": repeats, "output_size": total}


def _interleaved(d: Draw) -> tuple[TensorSpec, Any, int]:
    """A tensor, a dimension or none, and the number of elements that are repeated."""
    shape = _small(d)
    dim = d.dim(len(shape)) if shape and d.boolean() else d.choose(OMIT, None)
    size = math.prod(shape) if dim in (OMIT, None) else shape[dim]
    return d.tensor(shape), dim, size


@ops.case("repeat_interleave.self_Tensor", dtypes=ALL, judge=EXACT)
def repeat_interleave_tensor(d: Draw) -> Arguments:
    tensor, dim, size = _interleaved(d)
    if d.choose(False, False, True):
        # One count for all elements.
        counts = d.tensor(d.choose((1,), ()), d.choose("int64", "int32"), between(0, 3))
        return {"self": tensor, "repeats": counts, "dim": dim}
    counts, total = _counts(d, size)
    return {"self": tensor, "repeats": counts, "dim": dim, "output_size": total}


@ops.case("repeat_interleave.self_int", dtypes=ALL, judge=EXACT)
def repeat_interleave_int(d: Draw) -> Arguments:
    tensor, dim, size = _interleaved(d)
    times = d.choose(2, 1, 3, 0)
    return {"self": tensor, "repeats": times, "dim": dim, "output_size": d.choose(OMIT, None, times * size)}


def _sliced(d: Draw, min_rank: int = 1) -> tuple[tuple[int, ...], int, int]:
    """A shape, one of its dimensions as passed, and its size."""
    shape = d.shape(min_rank)
    dim = d.dim(len(shape))
    return shape, dim, shape[dim] if shape else 1


@ops.case("slice.Tensor", "slice_copy.Tensor", dtypes=ALL, judge=EXACT)
def slice_tensor(d: Draw) -> Arguments:
    shape, dim, size = _sliced(d)
    far = (-_FOREVER, -size - 1, -size, size, size + 1, _FOREVER)
    inside = (d.integer(0, size), d.integer(-size, 0), d.integer(0, size))
    return {
        "self": d.tensor(shape),
        "dim": d.choose(OMIT, dim) if dim == 0 else dim,
        "start": d.choose(*inside, OMIT, None, d.choose(*far)),
        "end": d.choose(*inside[::-1], OMIT, None, d.choose(*far)),
        "step": d.choose(OMIT, 1, 2, 3, 7, 1000),
    }


@ops.case("narrow", "narrow_copy", dtypes=ALL, judge=EXACT)
def narrow(d: Draw) -> Arguments:
    shape, dim, size = _sliced(d)
    start = d.integer(0, size)
    length = d.integer(0, size - start)
    start = start - size if start < size and d.boolean() else start
    return {"self": d.tensor(shape), "dim": dim, "start": start, "length": length}


@ops.case("narrow.Tensor", dtypes=ALL, judge=EXACT)
def narrow_tensor(d: Draw) -> Arguments:
    shape, dim, size = _sliced(d)
    length = d.integer(0, size)
    starts = between(-size, -length) if length and d.boolean() else between(0, size - length)
    start = d.tensor((), d.choose("int64", "int32"), starts)
    return {"self": d.tensor(shape), "dim": dim, "start": start, "length": length}


@ops.case("select.int", "select_copy.int", dtypes=ALL, judge=EXACT)
def select(d: Draw) -> Arguments:
    shape = list(d.shape(1))
    dim = d.dim(len(shape))
    size = shape[dim] = max(shape[dim], 1)
    return {"self": d.tensor(shape), "dim": dim, "index": d.integer(-size, size - 1)}


def _offset(d: Draw) -> Any:
    return d.choose(OMIT, 0, 1, -1, 2, -2, 3, 40, -40)


def _two_dims(d: Draw, rank: int) -> tuple[Any, Any]:
    """Two different dimensions, or both left to their defaults."""
    if d.choose(True, False, False):
        return OMIT, OMIT
    first, second = d.dims(rank, min_count=2, max_count=2)
    return first, second


@ops.case("diagonal", "diagonal_copy", dtypes=ALL, judge=EXACT)
def diagonal(d: Draw) -> Arguments:
    shape = d.shape(2)
    dim1, dim2 = _two_dims(d, len(shape))
    return {"self": d.tensor(shape), "offset": _offset(d), "dim1": dim1, "dim2": dim2}


@ops.case("linalg_diagonal", dtypes=ALL, judge=EXACT)
def linalg_diagonal(d: Draw) -> Arguments:
    shape = d.shape(2)
    dim1, dim2 = _two_dims(d, len(shape))
    return {"A": d.tensor(shape), "offset": _offset(d), "dim1": dim1, "dim2": dim2}


@ops.case("diag", dtypes=ALL, judge=EXACT)
def diag(d: Draw) -> Arguments:
    return {"self": d.any_tensor(1, 2), "diagonal": _offset(d)}


@ops.case("diagflat", dtypes=ALL, judge=EXACT)
def diagflat(d: Draw) -> Arguments:
    shape = (d.choose(33, 64),) if d.integer(0, 15) == 15 else _small(d, 5)
    return {"self": d.tensor(shape), "offset": d.choose(OMIT, 0, 1, -1, 3, -4)}


@ops.case("diag_embed", dtypes=ALL, judge=EXACT)
def diag_embed(d: Draw) -> Arguments:
    shape = d.shape(1, max_size=9)
    dim1, dim2 = _two_dims(d, len(shape) + 1)
    return {
        "self": d.tensor(shape),
        "offset": d.choose(OMIT, 0, 1, -1, 3, -4),
        "dim1": dim1,
        "dim2": dim2,
    }


@ops.case("tril", "triu", dtypes=ALL, judge=EXACT)
def triangle(d: Draw) -> Arguments:
    return {"self": d.any_tensor(2), "diagonal": _offset(d)}


@ops.case("tril_indices", "triu_indices", dtypes=("int64", "int32"), judge=EXACT)
def triangle_indices(d: Draw) -> Arguments:
    dtype = d.choose(OMIT, d.dtype_argument("int64")) if d.dtype == "int64" else d.dtype_argument("int32")
    return {"row": d.size(0, 9), "col": d.size(0, 9), "offset": _offset(d), "dtype": dtype}


@ops.case("unfold", "unfold_copy", dtypes=ALL, judge=EXACT)
def unfold(d: Draw) -> Arguments:
    shape, dim, size = _sliced(d, 0)
    return {
        "self": d.tensor(shape),
        "dimension": dim,
        "size": d.integer(0, min(size, 5)),
        "step": d.choose(1, 2, 3, 7),
    }


def _window(d: Draw) -> dict[str, list[int]]:
    """A sliding window over two dimensions."""

    def pair(*options: int) -> list[int]:
        return [d.choose(*options), d.choose(*options)]

    return {
        "kernel_size": pair(2, 3, 1),
        "dilation": pair(1, 1, 2),
        "padding": pair(0, 1, 2),
        "stride": pair(1, 2, 3, 5),
    }


def _covered(d: Draw, window: dict[str, list[int]], axis: int) -> tuple[int, int]:
    """A size that holds the window at least once, and how many places the window takes in it."""
    reach = window["dilation"][axis] * (window["kernel_size"][axis] - 1) + 1
    padding = 2 * window["padding"][axis]
    size = max(reach - padding, 1) + d.choose(*range(7), *((26, 53) if axis == 0 else ()))
    return size, (size + padding - reach) // window["stride"][axis] + 1


@ops.case("im2col", dtypes=(*FLOATS, "bool"), judge=EXACT)
def im2col(d: Draw) -> Arguments:
    window = _window(d)
    batch = d.choose((2,), (1,), (), (0,))
    plane = [_covered(d, window, axis)[0] for axis in (0, 1)]
    return {"self": d.tensor((*batch, d.integer(1, 3), *plane)), **window}


@ops.case("col2im", dtypes=(*FLOATS, "bool"), judge=ACCUMULATES)
def col2im(d: Draw) -> Arguments:
    window = _window(d)
    batch = d.choose((2,), (1,), (), (0,))
    (height, rows), (width, columns) = (_covered(d, window, axis) for axis in (0, 1))
    channels = d.integer(1, 3) * math.prod(window["kernel_size"])
    return {"self": d.tensor((*batch, channels, rows * columns)), "output_size": [height, width], **window}


def _shape_with_channels(d: Draw, multiple: int) -> tuple[int, ...]:
    """Any leading dimensions, then channels that `multiple` divides, then a plane."""
    lead = d.choose((2,), (1,), (), (0,), (2, 3))
    return (*lead, multiple * d.integer(1, 3), d.size(0, 5), d.size(0, 5))


@ops.case("pixel_shuffle", dtypes=ALL, judge=EXACT)
def pixel_shuffle(d: Draw) -> Arguments:
    factor = d.integer(1, 3)
    return {"self": d.tensor(_shape_with_channels(d, factor**2)), "upscale_factor": factor}


@ops.case("pixel_unshuffle", dtypes=ALL, judge=EXACT)
def pixel_unshuffle(d: Draw) -> Arguments:
    factor = d.integer(1, 3)
    *lead, height, width = _shape_with_channels(d, 1)
    return {"self": d.tensor((*lead, factor * height, factor * width)), "downscale_factor": factor}


@ops.case("channel_shuffle", "native_channel_shuffle", dtypes=ALL, judge=EXACT)
def channel_shuffle(d: Draw) -> Arguments:
    groups = d.integer(1, 4)
    tail = d.shape(1, 3, max_size=9)
    return {"self": d.tensor((d.integer(0, 2), groups * d.integer(1, 3), *tail)), "groups": groups}


@ops.case(
    "as_strided",
    "as_strided_copy",
    dtypes=ALL,
    judge=Judge(exact=True, signed_zeros=True, reads_layout=True),
)
def as_strided(d: Draw) -> Arguments:
    shape = d.shape(1, min_size=1)
    tensor = d.tensor(shape)
    if tensor.offset or tensor.storage_size != tensor.numel:
        # A graph's input carries its elements, not a storage with more of them: nothing could be right.
        tensor = d.tensor(shape, contiguous=True)
    room = tensor.storage_size - 1
    offset = d.choose(OMIT, None, 0, d.integer(0, room))
    room -= 0 if offset in (OMIT, None) else offset
    size, stride = [], []
    for _ in range(d.integer(0, 4)):
        step = d.integer(0, min(room, 12))
        count = d.integer(0, min(room // step + 1 if step else 4, 6))
        room -= max(count - 1, 0) * step
        size.append(count)
        stride.append(step)
    return {"self": tensor, "size": size, "stride": stride, "storage_offset": offset}


@ops.case("trace", dtypes=NUMBERS, judge=ACCUMULATES)
def trace(d: Draw) -> Arguments:
    return {"self": d.any_tensor(2, 2)}


@ops.case("vander", dtypes=ALL)
def vander(d: Draw) -> Arguments:
    columns = d.choose(OMIT, None, d.integer(0, 6))
    return {
        "x": d.tensor((d.size(high=65),)),
        "N": columns,
        "increasing": d.choose(OMIT, False, True),
    }


@ops.case("linalg_vander", dtypes=FULL_FLOATS + INTS)
def linalg_vander(d: Draw) -> Arguments:
    columns = d.choose(OMIT, None, d.integer(2, 6))
    last = d.size(2 if columns in (OMIT, None) else 1, 7)
    shape = (*d.shape(0, 4, max_size=5), last)
    if columns not in (OMIT, None) and d.integer(0, 9) == 9:
        shape = ()
    return {"x": d.tensor(shape), "N": columns}
