"""Operators that only change a tensor's shape: views, reshapes, permutations, expansion.

Every value comes out as it went in, so all are judged bit for bit. A view of a tensor is only valid
where strides allow it; `_viewable` draws both the cases that always are (a contiguous tensor into any
shape, single dimensions of any layout split) without narrowing the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from harness.compare.judge import EXACT
from harness.core.dtypes import ALL
from harness.core.invocation import TensorSpec, contiguous_strides
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("shape")


def _factors(number: int) -> list[int]:
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found


def _split(d: Draw, size: int, count: int) -> list[int]:
    """`count` ≥ 1 sizes whose product is `size`."""
    if size == 0:
        sizes = [d.integer(0, 3) for _ in range(count)]
        sizes[d.integer(0, count - 1)] = 0
        return sizes
    sizes = [1] * count
    for factor in _factors(size):
        sizes[d.integer(0, count - 1)] *= factor
    return sizes


def _infer_one(d: Draw, sizes: Sequence[int]) -> list[int]:
    """`sizes`, with −1 for one of them as often as not where the others determine it."""
    result = list(sizes)
    if result and d.boolean():
        place = d.integer(0, len(result) - 1)
        if math.prod(result[:place] + result[place + 1 :]):
            result[place] = -1
    return result


def _any_shape_of(d: Draw, elements: int) -> list[int]:
    if elements == 1 and d.choose(False, False, True):
        return []
    return _split(d, elements, d.integer(1, 5))


def _viewable(d: Draw) -> tuple[TensorSpec, list[int]]:
    """A tensor and a shape that it can be viewed as."""
    shape = d.shape()
    if d.boolean():
        return d.tensor(shape, contiguous=True), _any_shape_of(d, math.prod(shape))
    parts = [part for size in shape for part in _split(d, size, d.choose(1, 2, 1))]
    return d.tensor(shape), parts[:6] if len(parts) <= 6 else list(shape)


@ops.case("view", "_unsafe_view", "view_copy", dtypes=ALL, judge=EXACT)
def view(d: Draw) -> Arguments:
    tensor, size = _viewable(d)
    return {"self": tensor, "size": _infer_one(d, size)}


@ops.case("view_as", dtypes=ALL, judge=EXACT)
def view_as(d: Draw) -> Arguments:
    tensor, size = _viewable(d)
    return {"self": tensor, "other": d.tensor(size, d.other_dtype())}


@ops.case("_reshape_alias", dtypes=ALL, judge=EXACT)
def reshape_alias(d: Draw) -> Arguments:
    shape = d.shape()
    size = _any_shape_of(d, math.prod(shape))
    stride = list(contiguous_strides(tuple(size)))
    return {"self": d.tensor(shape, contiguous=True), "size": size, "stride": stride}


def _reshaped(name: str, d: Draw) -> Arguments:
    shape = d.shape()
    return {"self": d.tensor(shape), name: _infer_one(d, _any_shape_of(d, math.prod(shape)))}


ops.case("reshape", dtypes=ALL, judge=EXACT)(partial(_reshaped, "shape"))
ops.case("_reshape_copy", dtypes=ALL, judge=EXACT)(partial(_reshaped, "size"))


@ops.case("reshape_as", dtypes=ALL, judge=EXACT)
def reshape_as(d: Draw) -> Arguments:
    shape = d.shape()
    return {"self": d.tensor(shape), "other": d.tensor(_any_shape_of(d, math.prod(shape)), d.other_dtype())}


@ops.case("flatten.using_ints", dtypes=ALL, judge=EXACT)
def flatten(d: Draw) -> Arguments:
    shape = d.shape()
    rank = max(len(shape), 1)
    start = d.integer(0, rank - 1)
    end = d.integer(start, rank - 1)
    return {
        "self": d.tensor(shape),
        "start_dim": d.choose(start, start - rank) if start else d.choose(OMIT, 0, -rank),
        "end_dim": d.choose(end, end - rank) if end < rank - 1 else d.choose(OMIT, -1, end),
    }


@ops.case("unflatten.int", dtypes=ALL, judge=EXACT)
def unflatten(d: Draw) -> Arguments:
    shape = d.shape(1)
    dim = d.dim(len(shape))
    sizes = _split(d, shape[dim], d.integer(1, 3))
    return {"self": d.tensor(shape), "dim": dim, "sizes": _infer_one(d, sizes)}


@ops.case("permute", "permute_copy", dtypes=ALL, judge=EXACT)
def permute(d: Draw) -> Arguments:
    shape = d.shape()
    return {"self": d.tensor(shape), "dims": d.dims(len(shape), min_count=len(shape)) if shape else []}


def _two_dims(first: str, second: str, d: Draw) -> Arguments:
    shape = d.shape()
    return {"self": d.tensor(shape), first: d.dim(len(shape)), second: d.dim(len(shape))}


ops.case("transpose.int", "transpose_copy.int", "swapdims", dtypes=ALL, judge=EXACT)(partial(_two_dims, "dim0", "dim1"))
ops.case("swapaxes", dtypes=ALL, judge=EXACT)(partial(_two_dims, "axis0", "axis1"))
ops.case("movedim.int", "moveaxis.int", dtypes=ALL, judge=EXACT)(partial(_two_dims, "source", "destination"))


@ops.case("movedim.intlist", "moveaxis.intlist", dtypes=ALL, judge=EXACT)
def movedim_list(d: Draw) -> Arguments:
    shape = d.shape()
    source = d.dims(len(shape))
    count = len(source)
    destination = d.dims(len(shape), min_count=count, max_count=count)
    return {"self": d.tensor(shape), "source": source, "destination": destination}


@ops.case("t", "t_copy", dtypes=ALL, judge=EXACT)
def transpose_matrix(d: Draw) -> Arguments:
    return {"self": d.any_tensor(0, 2)}


@ops.case("mT", "mH", "adjoint", dtypes=ALL, judge=EXACT)
def transpose_matrices(d: Draw) -> Arguments:
    return {"self": d.any_tensor(2)}


@ops.case("numpy_T", "matrix_H", dtypes=ALL, judge=EXACT)
def transpose_two_dims(d: Draw) -> Arguments:
    return {"self": d.any_tensor(2, 2)}


@ops.case("unsqueeze", "unsqueeze_copy", dtypes=ALL, judge=EXACT)
def unsqueeze(d: Draw) -> Arguments:
    shape = d.shape()
    return {"self": d.tensor(shape), "dim": d.dim(len(shape) + 1)}


def _shape_of_ones(d: Draw) -> tuple[int, ...]:
    """Draw a shape rich in dimensions of size 1."""
    return tuple(d.choose(1, size) for size in d.shape())


@ops.case("squeeze", "squeeze_copy", dtypes=ALL, judge=EXACT)
def squeeze(d: Draw) -> Arguments:
    return {"self": d.tensor(_shape_of_ones(d))}


@ops.case("squeeze.dim", "squeeze_copy.dim", dtypes=ALL, judge=EXACT)
def squeeze_dim(d: Draw) -> Arguments:
    shape = _shape_of_ones(d)
    return {"self": d.tensor(shape), "dim": d.dim(len(shape))}


@ops.case("squeeze.dims", "squeeze_copy.dims", dtypes=ALL, judge=EXACT)
def squeeze_dims(d: Draw) -> Arguments:
    shape = _shape_of_ones(d)
    return {"self": d.tensor(shape), "dim": d.dims(len(shape))}


def _expansion(d: Draw) -> tuple[tuple[int, ...], list[int]]:
    """A shape and a size list that it expands to; −1 keeps a size."""
    full = d.shape()
    shape = d.broadcastable(full)
    new = len(full) - len(shape)
    kept = [d.boolean() and i >= new and shape[i - new] == size for i, size in enumerate(full)]
    return shape, [-1 if keep else size for keep, size in zip(kept, full, strict=True)]


@ops.case("expand", "expand_copy", dtypes=ALL, judge=EXACT)
def expand(d: Draw) -> Arguments:
    shape, size = _expansion(d)
    return {"self": d.tensor(shape), "size": size, "implicit": d.choose(OMIT, False, True)}


@ops.case("broadcast_to", dtypes=ALL, judge=EXACT)
def broadcast_to(d: Draw) -> Arguments:
    shape, size = _expansion(d)
    return {"self": d.tensor(shape), "size": size}


@ops.case("expand_as", dtypes=ALL, judge=EXACT)
def expand_as(d: Draw) -> Arguments:
    full = d.shape()
    return {"self": d.tensor(d.broadcastable(full)), "other": d.tensor(full, d.other_dtype())}


@ops.case("broadcast_tensors", dtypes=ALL, judge=EXACT)
def broadcast_tensors(d: Draw) -> Arguments:
    full = d.shape()
    count = d.integer(1, 3)
    return {"tensors": [d.tensor(d.broadcastable(full), d.other_dtype()) for _ in range(count)]}


ops.simple("ravel", dtypes=ALL, judge=EXACT)
ops.simple("atleast_1d", "atleast_2d", "atleast_3d", dtypes=ALL, judge=EXACT)


@ops.case("atleast_1d.Sequence", "atleast_2d.Sequence", "atleast_3d.Sequence", dtypes=ALL, judge=EXACT)
def atleast_sequence(d: Draw) -> Arguments:
    return {"tensors": [d.tensor(d.shape(), d.other_dtype()) for _ in range(d.integer(1, 3))]}


# Shapes as tensors

ops.simple("_shape_as_tensor", dtypes=ALL, judge=EXACT)

#: Shapes, and the rank and size of a shape of equal sizes with as many elements.
_CUBES = (
    ((6,), 1, -1),
    ((2, 2), 2, 2),
    ((4,), 2, 2),
    ((2, 4), 3, 2),
    ((9, 1), 2, 3),
    ((3, 3), 1, 9),
    ((1,), 4, 1),
    ((2, 1, 4), 3, 2),
    ((1, 3, 1, 3), 2, 3),
    ((2, 2, 2, 1, 1), 1, 8),
)


@ops.case("_reshape_from_tensor", dtypes=ALL, judge=EXACT)
def reshape_from_tensor(d: Draw) -> Arguments:
    shape, rank, size = d.choose(*_CUBES)
    return {"self": d.tensor(shape), "shape": d.tensor((rank,), "int64", ("range", size, size))}


@ops.case("_dim_arange", dtypes=ALL, judge=EXACT)
def dim_arange(d: Draw) -> Arguments:
    shape = d.shape(1)
    return {"like": d.tensor(shape), "dim": d.dim(len(shape))}
