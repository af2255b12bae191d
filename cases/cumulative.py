"""Cumulative operators and differences along one dim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cases.rules.right_answers import equal, running_index
from cases.rules.undefined_elements import WRAPPED
from harness.compare.judge import ACCUMULATES, Allowance, Judge, Mask
from harness.core.dtypes import ALL, FLOATS, INTS, NUMBERS, SIGNED_INTS, Array, is_float
from harness.generate.draw import ANY, OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("cumulative")


def _shape(d: Draw, min_rank: int = 0) -> tuple[int, ...]:
    """Any shape; sometimes one long enough for the order of accumulation to matter."""
    return d.choose((1025,), (3, 700), (257, 9)) if d.integer(0, 15) == 15 else d.shape(min_rank)


@ops.case("cumsum", dtypes=ALL, judge=ACCUMULATES)
@ops.case("cumprod", dtypes=ALL)
def scan(d: Draw) -> Arguments:
    shape = _shape(d)
    dtype = d.choose(OMIT, None)
    domain: tuple[Any, ...] = ANY
    if d.boolean():
        dtype = d.dtype_argument(*FLOATS, *INTS, "bool")
        if is_float(d.dtype) and not is_float(dtype.name):
            # Values whose conversion C++ defines.
            domain = between(0 if dtype.name == "uint8" else -5, 5)
    return {"self": d.tensor(shape, domain=domain), "dim": d.dim(len(shape)), "dtype": dtype}


# Which of several equal extrema is reported is open.
@ops.case("cummax", "cummin", dtypes=ALL, judge=Judge(rules={0: equal, 1: running_index("dim")}))
@ops.case("logcumsumexp", dtypes=FLOATS)
@ops.case("_logcumsumexp", dtypes=FLOATS)
def along(d: Draw) -> Arguments:
    shape = d.shape()
    return {"self": d.tensor(shape), "dim": d.dim(len(shape))}


@ops.case("diff", dtypes=ALL)
def diff(d: Draw) -> Arguments:
    shape = d.shape(1)
    dim = d.maybe(lambda: d.dim(len(shape)))
    axis = (-1 if dim is OMIT else dim) % len(shape)

    def neighbour() -> Any:
        return d.tensor((*shape[:axis], d.size(0, 3), *shape[axis + 1 :]), d.other_dtype())

    return {
        "self": d.tensor(shape),
        "n": d.maybe(lambda: d.choose(1, 2, 0, 3, 6)),
        "dim": dim,
        "prepend": d.maybe(neighbour, none=True),
        "append": d.maybe(neighbour, none=True),
    }


# Evenly spaced, a trapezoid is a sum of products; over abscissae, differences cancel: their terms are summed.
@ops.case("trapezoid.dx", "cumulative_trapezoid.dx", dtypes=NUMBERS, judge=ACCUMULATES)
def trapezoid(d: Draw) -> Arguments:
    shape = _shape(d, 1)
    # A bool is the one Scalar that PyTorch refuses here.
    step = d.maybe(lambda: d.choose(d.int(), d.float()))
    return {"y": d.tensor(shape), "dx": step, "dim": d.maybe(lambda: d.dim(len(shape)))}


@ops.case("trapz.dx", dtypes=NUMBERS, judge=ACCUMULATES)
def trapz(d: Draw) -> Arguments:
    shape = _shape(d, 1)
    return {"y": d.tensor(shape), "dx": d.maybe(d.float), "dim": d.maybe(lambda: d.dim(len(shape)))}


def _trapezoid_undefined(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Outputs of slices of integers whose differences, sums or products leave the range of their dtype, which
    C++ leaves undefined for int32 and int64 ([expr.pre]/4); the quotient of the sums is a float. Between
    places that are floats only the sums of neighbours are integers."""
    y, x = arguments["y"], arguments["x"]
    if y.dtype not in (np.int32, np.int64):
        return [None]
    axis = arguments.get("dim", -1) % y.ndim
    heights = np.moveaxis(y.astype(object), axis, -1)
    places = x.astype(object) if x.ndim == 1 else np.moveaxis(x.astype(object), axis, -1)
    widths, sides = places[..., 1:] - places[..., :-1], heights[..., 1:] + heights[..., :-1]
    areas = widths * sides
    limits = np.iinfo(y.dtype)
    outside = np.zeros(areas.shape[:-1], dtype=bool)
    whole = x.dtype.kind in "iu"
    for met in (widths, sides, areas) if whole else (sides,):
        outside = outside | ((met < int(limits.min)) | (met > int(limits.max))).astype(bool).any(axis=-1)
    if whole:
        # Whatever the order of the sum, which is one of int64, it stays below the sum of magnitudes.
        outside = outside | np.asarray(abs(areas).sum(axis=-1) > int(np.iinfo(np.int64).max), dtype=bool)
    if expected[0].ndim == y.ndim:
        outside = np.expand_dims(outside, axis)
    return [np.broadcast_to(outside, expected[0].shape)]


def _trapezoid_terms(*, cumulative: bool) -> Callable[[Mapping[str, Any]], Array]:
    """The sum, or the running sums, of (|x₁| + |x₀|)·(|y₁| + |y₀|)/2, of complex numbers by their modulus."""

    def terms(arguments: Mapping[str, Any]) -> Array:
        y, x = abs(arguments["y"]), abs(arguments["x"])
        axis = arguments.get("dim", -1) % y.ndim
        heights, places = np.moveaxis(y, axis, -1), x if x.ndim == 1 else np.moveaxis(x, axis, -1)
        areas = (places[..., 1:] + places[..., :-1]) * (heights[..., 1:] + heights[..., :-1]) / 2
        return np.moveaxis(np.cumsum(areas, -1), -1, axis) if cumulative else np.asarray(areas.sum(axis=-1))

    return terms


_OVER_ABSCISSAE = Judge(unsettled=Allowance(WRAPPED, _trapezoid_undefined), terms=_trapezoid_terms(cumulative=False))


@ops.case(
    "cumulative_trapezoid.x",
    dtypes=NUMBERS,
    judge=replace(_OVER_ABSCISSAE, terms=_trapezoid_terms(cumulative=True)),
)
@ops.case("trapezoid.x", "trapz.x", dtypes=NUMBERS, judge=_OVER_ABSCISSAE)
def trapezoid_over(d: Draw) -> Arguments:
    shape = _shape(d, 1)
    dim = d.maybe(lambda: d.dim(len(shape)))
    axis = (-1 if dim is OMIT else dim) % len(shape)
    if d.boolean():
        return {"y": d.tensor(shape), "x": d.tensor((shape[axis],)), "dim": dim}
    # One of them may be broadcast along the others.
    ones = tuple(size if i == axis else 1 for i, size in enumerate(shape))
    heights, abscissae = d.choose(*[(shape, shape)] * 4, (ones, shape), (shape, ones))
    return {"y": d.tensor(heights), "x": d.tensor(abscissae), "dim": dim}


def _gradient(d: Draw, rank: int, dims: Any = None) -> tuple[tuple[int, ...], dict[str, Any]]:
    """A tensor that is long enough for its differences along `dims`, all by default, and their order at the
    edges."""
    order = d.maybe(lambda: d.choose(1, 2))
    low = 3 if order == 2 else 2
    along = range(rank) if dims is None else [dim % rank for dim in dims]
    shape = tuple(max(size, low if i in along else 0) for i, size in enumerate(d.shape(rank, rank)))
    return shape, {"self": d.tensor(shape), "edge_order": order}


def _spacing(d: Draw) -> int | float:
    return d.choose(1, 0.5, 2, -1.0, 0.1, 3, 1, 2.0, 0.5, -1, 0)


@ops.case("gradient.scalarint", dtypes=FLOATS + SIGNED_INTS)
def gradient(d: Draw) -> Arguments:
    rank = d.integer(1, 5)
    dim = d.maybe(lambda: d.dim(rank), none=True)
    _, arguments = _gradient(d, rank, None if dim in (OMIT, None) else [dim])
    spacing = d.maybe(lambda: _spacing(d), none=True)
    return {**arguments, "spacing": spacing, "dim": dim}


@ops.case("gradient.array", dtypes=FLOATS + SIGNED_INTS)
def gradient_dims(d: Draw) -> Arguments:
    rank = d.integer(1, 5)
    # Without a dim the call has no difference to compare.
    dims = d.dims(rank, min_count=0 if d.integer(0, 15) == 15 else 1)
    return {**_gradient(d, rank, dims)[1], "dim": dims}


@ops.case("gradient.scalararray", dtypes=FLOATS + SIGNED_INTS)
def gradient_dims_spaced(d: Draw) -> Arguments:
    return {**gradient_dims(d), "spacing": _spacing(d)}


@ops.case("gradient.scalarrayarray", dtypes=FLOATS + SIGNED_INTS)
def gradient_spacings(d: Draw) -> Arguments:
    arguments = gradient_dims(d)
    return {**arguments, "spacing": [_spacing(d) for _ in arguments["dim"]]}


@ops.case("gradient.scalarrayint", dtypes=FLOATS + SIGNED_INTS)
def gradient_spacings_all(d: Draw) -> Arguments:
    rank = d.integer(1, 5)
    dim = d.choose(OMIT, None, d.dim(rank))
    shape, arguments = _gradient(d, rank, None if dim in (OMIT, None) else [dim])
    spacings = [_spacing(d) for _ in (shape if dim in (OMIT, None) else [dim])]
    return {**arguments, "spacing": spacings, "dim": dim}


@ops.case("gradient.tensorarray", dtypes=FLOATS + SIGNED_INTS)
def gradient_coordinates(d: Draw) -> Arguments:
    rank = d.integer(1, 5)
    dims = d.dims(rank, min_count=1)
    shape, arguments = _gradient(d, rank, dims)
    return {**arguments, "spacing": [d.tensor((shape[i],)) for i in dims], "dim": dims}


@ops.case("gradient.tensorarrayint", dtypes=FLOATS + SIGNED_INTS)
def gradient_coordinates_all(d: Draw) -> Arguments:
    rank = d.integer(1, 5)
    dim = d.choose(OMIT, None, d.dim(rank))
    shape, arguments = _gradient(d, rank, None if dim in (OMIT, None) else [dim])
    sizes = shape if dim in (OMIT, None) else [shape[dim]]
    return {**arguments, "spacing": [d.tensor((size,)) for size in sizes], "dim": dim}
