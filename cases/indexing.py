"""Reading and writing at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cases.rules.index_shapes import broadcast, selected
from harness.compare.judge import ACCUMULATES, EXACT
from harness.core.dtypes import ALL, FLOATS, NUMBERS
from harness.core.invocation import TensorSpec
from harness.generate.draw import ANY, OMIT, Draw, index_into, unique_below
from harness.generate.operator_case import Arguments, Family

ops = Family("indexing")


def _index_dtype(d: Draw) -> str:
    return d.choose("int64", "int64", "int32")


def _value(d: Draw) -> bool | int | float | complex:
    """A Scalar that the invocation's dtype can hold, of any Python type."""
    if d.dtype in FLOATS:
        return d.number()
    return d.boolean() if d.dtype == "bool" else d.choose(1, 0, True, 3, 100, 2.0, 2.5)


# Advanced indexing


def _indices(
    d: Draw, shape: Sequence[int], *, distinct: bool = False, keep: bool = True
) -> tuple[list[Any], tuple[int, ...]]:
    """Draw a list of index tensors, None for a kept dim, and the shape of the selected elements.

    Args:
        d: The draw.
        shape: Shape of the indexed tensor; no size is 0.
        distinct: Whether each element is selected once at most.
        keep: Whether dims may be kept.
    """
    indexed = [not keep or d.boolean() for _ in range(d.integer(1, len(shape)))] if shape else []
    if not any(indexed):
        indexed = [*indexed[:-1], True]
    if distinct and indexed.count(True) > 1 and d.choose(False, True, False):
        return _grid(d, shape, indexed)
    common = d.shape(1, 1, min_size=1, max_size=4) if distinct else d.shape(0, 2, max_size=5)
    if distinct:
        first = shape[indexed.index(True)]
        common = (min(common[0], first),)
    indices: list[Any] = []
    for size, given in zip(shape, indexed, strict=False):
        if not given:
            indices.append(None)
        elif distinct:
            domain = unique_below(size, common[0]) if size >= common[0] else index_into(size)
            indices.append(d.tensor(common, _index_dtype(d), domain))
        else:
            domain = index_into(size, negative=True)
            indices.append(d.tensor(d.broadcastable(common), _index_dtype(d), domain))
    return indices, selected(shape, indexed, broadcast([i.shape for i in indices if i is not None]))


def _grid(d: Draw, shape: Sequence[int], indexed: Sequence[bool]) -> tuple[list[Any], tuple[int, ...]]:
    """Indices that together select the crossings of some rows and columns, none of them twice: each has a dim
    of its own, to which the others are broadcast."""
    places = [axis for axis, given in enumerate(indexed) if given]
    counts = {axis: min(d.choose(2, 1, 3) if turn < 2 else 1, shape[axis]) for turn, axis in enumerate(places)}
    indices: list[Any] = [None] * len(indexed)
    for turn, axis in enumerate(places):
        own = (1,) * turn + (counts[axis],) + (1,) * (len(places) - 1 - turn)
        domain = unique_below(shape[axis], counts[axis])
        indices[axis] = d.tensor(own, _index_dtype(d), domain)
    return indices, selected(shape, indexed, tuple(counts.values()))


def _masked(d: Draw, shape: Sequence[int], *dtypes: str) -> list[Any]:
    """A bool mask over some consecutive dims: how much it selects depends on its values."""
    start = d.integer(0, len(shape) - 1)
    stop = d.integer(start + 1, len(shape))
    dtype = d.choose("bool", *dtypes)
    domain = ANY if dtype == "bool" else ("range", 0, 1)
    return [*(None,) * start, d.tensor(shape[start:stop], dtype, domain)]


def _empty_selection(d: Draw, shape: tuple[int, ...]) -> dict[str, Any]:
    """Draw a tensor without elements, and an empty index."""
    shape = (0, *shape[1:])
    return {"self": d.tensor(shape), "indices": [d.tensor((0,), _index_dtype(d), index_into(1))]}


@ops.case("index.Tensor", dtypes=ALL, judge=EXACT)
def index(d: Draw) -> Arguments:
    if d.choose(False, False, False, True):
        shape = d.shape(1, 4)
        return {"self": d.tensor(shape), "indices": _masked(d, shape, "uint8")}
    shape = d.shape(1, 5, min_size=1)
    if d.integer(0, 15) == 15:
        return _empty_selection(d, shape)
    return {"self": d.tensor(shape), "indices": _indices(d, shape)[0]}


@ops.case("_unsafe_index.Tensor", dtypes=ALL, judge=EXACT)
def index_unchecked(d: Draw) -> Arguments:
    shape = d.shape(1, 5, min_size=1)
    if d.integer(0, 15) == 15:
        return _empty_selection(d, shape)
    return {"self": d.tensor(shape), "indices": _indices(d, shape)[0]}


@ops.case("index.Tensor_hacked_twin", "_unsafe_index.Tensor_hacked_twin", dtypes=ALL, judge=EXACT)
def index_all(d: Draw) -> Arguments:
    shape = d.shape(1, 5, min_size=1)
    if d.integer(0, 15) == 15:
        return _empty_selection(d, shape)
    return {"self": d.tensor(shape), "indices": _indices(d, shape, keep=False)[0]}


def _index_put(d: Draw, *, keep: bool = True) -> dict[str, Any]:
    shape = d.shape(1, min_size=1)
    if keep and d.choose(False, False, False, True):
        # As many values as a mask selects are not known beforehand; one value fits any.
        return {"self": d.tensor(shape), "indices": _masked(d, shape), "values": d.tensor(d.choose((), (1,)))}
    accumulate = d.maybe(d.boolean)
    if d.integer(0, 15) == 15:
        nothing = _empty_selection(d, shape)
        return {**nothing, "values": d.tensor((0, *shape[1:])), "accumulate": accumulate}
    # Without `accumulate`, which of several values written to one place stays is undefined.
    indices, selected = _indices(d, shape, distinct=accumulate is not True, keep=keep)
    values = d.tensor(d.broadcastable(selected))
    return {"self": d.tensor(shape), "indices": indices, "values": values, "accumulate": accumulate}


@ops.case("index_put", "_unsafe_index_put", dtypes=ALL, judge=ACCUMULATES)
def index_put(d: Draw) -> Arguments:
    return _index_put(d)


@ops.case("index_put.hacked_twin", "_unsafe_index_put.hacked_twin", dtypes=ALL, judge=ACCUMULATES)
def index_put_all(d: Draw) -> Arguments:
    return _index_put(d, keep=False)


# Whole slices along one dim


def _along(
    d: Draw, *, distinct: bool, narrow: bool = True, negative: bool = False
) -> tuple[tuple[int, ...], int, TensorSpec, tuple[int, ...]]:
    """A shape, a dim, a list of indices into it, and the shape of the slices that they name."""
    shape = d.shape()
    dim = d.dim(len(shape))
    axis = dim % len(shape) if shape else 0
    size = shape[axis] if shape else 1
    # An index may be 0-d, and a 0-d tensor counts as one of a single element.
    count = d.integer(0, min(size, 5)) if distinct else d.size(0, 9) if size else 0
    count = count if shape else 1
    scalar = count == 1 and d.boolean()
    dtype = _index_dtype(d) if narrow else "int64"
    domain = unique_below(size, max(count, 1)) if distinct else index_into(size, negative=negative)
    index = d.tensor(() if scalar else (count,), dtype, domain)
    slices = (*shape[:axis], count, *shape[axis + 1 :]) if shape else ()
    return shape, dim, index, slices


@ops.case("index_select", dtypes=ALL, judge=EXACT)
def index_select(d: Draw) -> Arguments:
    shape, dim, index, _ = _along(d, distinct=False)
    return {"self": d.tensor(shape), "dim": dim, "index": index}


@ops.case("index_add", dtypes=ALL, judge=ACCUMULATES)
def index_add(d: Draw) -> Arguments:
    shape, dim, index, slices = _along(d, distinct=False)
    return {
        "self": d.tensor(shape),
        "dim": dim,
        "index": index,
        "source": d.tensor(slices),
        "alpha": d.maybe(d.like_dtype),
    }


@ops.case("index_copy", dtypes=ALL, judge=EXACT)
def index_copy(d: Draw) -> Arguments:
    shape, dim, index, slices = _along(d, distinct=True, narrow=False)
    return {"self": d.tensor(shape), "dim": dim, "index": index, "source": d.tensor(slices)}


@ops.case("index_reduce", dtypes=NUMBERS)
def index_reduce(d: Draw) -> Arguments:
    shape, dim, index, slices = _along(d, distinct=False)
    return {
        "self": d.tensor(shape),
        "dim": dim,
        "index": index,
        "source": d.tensor(slices),
        "reduce": d.choose("prod", "mean", "amax", "amin"),
        "include_self": d.maybe(d.boolean),
    }


@ops.case("index_fill.int_Scalar", dtypes=ALL, judge=EXACT)
def index_fill(d: Draw) -> Arguments:
    shape, dim, index, _ = _along(d, distinct=False, narrow=False, negative=True)
    return {"self": d.tensor(shape), "dim": dim, "index": index, "value": _value(d)}


@ops.case("index_fill.int_Tensor", dtypes=ALL, judge=EXACT)
def index_fill_tensor(d: Draw) -> Arguments:
    shape, dim, index, _ = _along(d, distinct=False, narrow=False, negative=True)
    return {"self": d.tensor(shape), "dim": dim, "index": index, "value": d.tensor(())}


# An index for each element


def _elements(d: Draw, *, distinct: bool) -> tuple[tuple[int, ...], int, TensorSpec]:
    """A shape, a dim, and an index tensor no larger than it but along `dim`.

    Distinct indices run along the last dim of the index tensor, so `dim` is the last one then.
    """
    shape = d.shape()
    rank = len(shape)
    dim = d.choose(-1, rank - 1) if distinct and rank else d.dim(rank)
    axis = dim % rank if rank else 0
    size = shape[axis] if rank else 1
    sizes = [n if d.boolean() else d.integer(0, n) for n in shape]
    if rank:
        sizes[axis] = d.integer(0, size) if distinct else d.size(0, 9) if size else 0
    domain = unique_below(size, max(sizes[-1] if rank else 1, 1)) if distinct else index_into(size)
    return shape, dim, d.tensor(sizes, _index_dtype(d), domain, contiguous=distinct)


@ops.case("gather", dtypes=ALL, judge=EXACT)
def gather(d: Draw) -> Arguments:
    shape, dim, index = _elements(d, distinct=False)
    return {"self": d.tensor(shape), "dim": dim, "index": index, "sparse_grad": d.choose(OMIT, False, True)}


def _source(d: Draw, index: TensorSpec) -> TensorSpec:
    """Values to scatter: as many as indices or more."""
    more = d.choose(0, 0, 1)
    return d.tensor([n + more for n in index.shape])


@ops.case("scatter.src", dtypes=ALL, judge=EXACT)
def scatter(d: Draw) -> Arguments:
    # Which of several values written to one place stays is undefined.
    shape, dim, index = _elements(d, distinct=True)
    return {"self": d.tensor(shape), "dim": dim, "index": index, "src": _source(d, index)}


@ops.case("scatter_add", dtypes=ALL, judge=ACCUMULATES)
def scatter_add(d: Draw) -> Arguments:
    shape, dim, index = _elements(d, distinct=False)
    return {"self": d.tensor(shape), "dim": dim, "index": index, "src": _source(d, index)}


@ops.case("scatter.value", dtypes=ALL, judge=EXACT)
def scatter_value(d: Draw) -> Arguments:
    shape, dim, index = _elements(d, distinct=False)
    return {"self": d.tensor(shape), "dim": dim, "index": index, "value": _value(d)}


@ops.case("scatter.reduce", dtypes=ALL)
def scatter_combine(d: Draw) -> Arguments:
    return {**scatter_add(d), "reduce": d.choose("add", "multiply")}


@ops.case("scatter.value_reduce", dtypes=ALL)
def scatter_combine_value(d: Draw) -> Arguments:
    return {**scatter_value(d), "reduce": d.choose("add", "multiply")}


@ops.case("scatter_reduce.two", dtypes=ALL)
def scatter_reduce(d: Draw) -> Arguments:
    reduce = d.choose("sum", "prod", "amax", "amin", *(() if d.dtype == "bool" else ("mean",)))
    return {**scatter_add(d), "reduce": reduce, "include_self": d.maybe(d.boolean)}


@ops.case("take", dtypes=ALL, judge=EXACT)
def take(d: Draw) -> Arguments:
    source = d.any_tensor()
    shape = d.shape() if source.numel else (0,)
    return {"self": source, "index": d.tensor(shape, "int64", index_into(source.numel, negative=True))}


@ops.case("take_along_dim", dtypes=ALL, judge=EXACT)
def take_along_dim(d: Draw) -> Arguments:
    shape = d.shape()
    if not shape:
        indices = d.tensor((), "int64", index_into(1))
        return {"self": d.tensor(()), "indices": indices, "dim": d.choose(OMIT, None)}
    dim = d.choose(*[d.dim(len(shape))] * 5, OMIT, None)
    if dim is OMIT or dim is None:
        # PyTorch views all as one row, in which it counts from the front.
        source = d.tensor(shape, contiguous=True)
        indices = d.tensor((d.size() if source.numel else 0,), "int64", index_into(source.numel))
        return {"self": source, "indices": indices, "dim": dim}
    axis = dim % len(shape)
    sizes = [d.choose(n, n, 1) for n in shape]
    sizes[axis] = d.size(0, 9) if shape[axis] else 0
    narrow = [n if i == axis or d.boolean() else 1 for i, n in enumerate(shape)]
    return {
        "self": d.tensor(narrow),
        "indices": d.tensor(sizes, "int64", index_into(shape[axis], negative=True)),
        "dim": dim,
    }


@ops.case("put", dtypes=ALL, judge=ACCUMULATES)
def put(d: Draw) -> Arguments:
    target = d.any_tensor()
    accumulate = d.maybe(d.boolean)
    if accumulate is True:
        shape = d.shape() if target.numel else (0,)
        index = d.tensor(shape, "int64", index_into(target.numel, negative=True))
    else:
        shape = (d.integer(0, min(target.numel, 9)),)
        index = d.tensor(shape, "int64", unique_below(target.numel, max(shape[0], 1)))
    return {"self": target, "index": index, "source": d.tensor(shape), "accumulate": accumulate}


# Masks


@ops.case("masked_select", dtypes=ALL, judge=EXACT)
def masked_select(d: Draw) -> Arguments:
    shape = d.shape()
    left, right = (shape, d.broadcastable(shape)) if d.boolean() else (d.broadcastable(shape), shape)
    return {"self": d.tensor(left), "mask": d.tensor(right, "bool")}


@ops.case("masked_scatter", dtypes=ALL, judge=EXACT)
def masked_scatter(d: Draw) -> Arguments:
    arguments = masked_select(d)
    shape = broadcast([arguments["self"].shape, arguments["mask"].shape])
    # At least as many values as the mask can select.
    return {**arguments, "source": d.tensor(d.choose(shape, (*shape, 2)))}


@ops.case("nonzero", "argwhere", "nonzero_numpy", dtypes=ALL, judge=EXACT)
def nonzero(d: Draw) -> Arguments:
    return {"self": d.any_tensor()}


@ops.case("nonzero_static", dtypes=ALL, judge=EXACT)
def nonzero_static(d: Draw) -> Arguments:
    fill = d.maybe(lambda: d.choose(-1, 0, 7))
    return {"self": d.any_tensor(), "size": d.choose(3, 0, 1, 20, 200), "fill_value": fill}


# Writing a view


@ops.case("select_scatter", dtypes=ALL, judge=EXACT)
def select_scatter(d: Draw) -> Arguments:
    shape = tuple(d.shape(1))
    dim = d.dim(len(shape))
    axis = dim % len(shape)
    shape = (*shape[:axis], shape[axis] or 1, *shape[axis + 1 :])
    index = d.integer(-shape[axis], shape[axis] - 1)
    source = d.tensor((*shape[:axis], *shape[axis + 1 :]))
    return {"self": d.tensor(shape), "src": source, "dim": dim, "index": index}


@ops.case("slice_scatter", dtypes=ALL, judge=EXACT)
def slice_scatter(d: Draw) -> Arguments:
    shape = d.shape(1)
    dim = d.maybe(lambda: d.dim(len(shape)))
    axis = 0 if dim is OMIT else dim % len(shape)
    size = shape[axis]
    start = d.maybe(lambda: d.integer(-size - 1, size + 1), none=True)
    end = d.maybe(lambda: d.choose(d.integer(-size - 1, size + 1), 2**63 - 1), none=True)
    step = d.maybe(lambda: d.choose(1, 2, 3))
    given = slice(*(None if bound is OMIT else bound for bound in (start, end, step)))
    count = len(range(*given.indices(size)))
    source = d.tensor((*shape[:axis], count, *shape[axis + 1 :]))
    return {"self": d.tensor(shape), "src": source, "dim": dim, "start": start, "end": end, "step": step}


@ops.case("diagonal_scatter", dtypes=ALL, judge=EXACT)
def diagonal_scatter(d: Draw) -> Arguments:
    shape = d.shape(2)
    first, second = d.choose((0, 1), d.dims(len(shape), min_count=2, max_count=2))
    offset = d.choose(0, 1, -1, 2, -3)
    a, b = shape[first], shape[second]
    length = max(0, min(a, b - offset) if offset >= 0 else min(a + offset, b))
    rest = [n for i, n in enumerate(shape) if i not in (first % len(shape), second % len(shape))]
    source = d.tensor((*rest, length))
    arguments = {"self": d.tensor(shape), "src": source, "offset": offset, "dim1": first, "dim2": second}
    defaults = {"offset": 0, "dim1": 0, "dim2": 1}
    return {name: OMIT if value == defaults.get(name) and d.boolean() else value for name, value in arguments.items()}
