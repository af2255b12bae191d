"""Reductions: one output element from all elements along some dims, or along all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cases.rules.right_answers import equal, index_along
from cases.rules.undefined_elements import infinite_mean
from harness.compare.judge import ACCUMULATES, EXACT, Judge
from harness.core.dtypes import ALL, COMPLEX, FLOATS, FULL_FLOATS, INTS, NUMBERS, Array, is_float
from harness.generate.draw import ANY, OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("reduction")

#: A maximum of zeros of both signs may be either: IEEE 754-2019 leaves `maximumNumber` free, PyTorch silent.
EQUAL = Judge(rules={0: equal})
EQUAL_PAIR = Judge(rules={0: equal, 1: equal})
#: Which of several equal elements is reported is open (documentation of `median`, `mode`, `kthvalue`).
PICKS = Judge(rules={0: equal, 1: index_along("dim")})
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def long_or_any_shape(d: Draw, min_rank: int = 0, *, wide: bool = True) -> tuple[int, ...]:
    """Any shape; sometimes one long enough for the order of accumulation to matter."""
    if wide and d.integer(0, 15) == 15:
        return d.choose((1025,), (3, 700), (257, 9), (2, 3, 131))
    return d.shape(min_rank)


def filled(shape: Sequence[int], dim: Any) -> tuple[int, ...]:
    """`shape` without size 0 in the dims that `dim` reduces: no extremum of nothing exists."""
    rank = len(shape)
    if dim is OMIT or dim is None or dim == []:
        return tuple(size or 1 for size in shape)
    axes = {a % rank for a in ([dim] if isinstance(dim, int) else dim)} if rank else set()
    return tuple(1 if i in axes and not size else size for i, size in enumerate(shape))


def keepdim(d: Draw) -> Any:
    return d.choose(OMIT, False, True, True)


def dim_list(d: Draw, rank: int, *, none: bool = True) -> Any:
    """A dim list: given, empty, omitted or None."""
    return d.maybe(lambda: d.dims(rank), none=none)


def _dim_argument(d: Draw, rank: int, *, none: bool = True) -> Any:
    return d.maybe(lambda: d.dim(rank), none=none)


def _cast(d: Draw, *targets: str, required: bool = False) -> tuple[Any, tuple[Any, ...]]:
    """A `dtype` argument, and the domain of values whose conversion to it C++ defines."""
    if not required and d.choose(True, False, False):
        return d.choose(OMIT, None), ANY
    # Of complex numbers a real dtype drops half.
    if d.dtype in COMPLEX:
        return d.choose(OMIT, None, d.dtype_argument(*COMPLEX)), ANY
    chosen = d.dtype_argument(*targets)
    if is_float(d.dtype) and not is_float(chosen.name):
        return chosen, between(0, 5) if chosen.name == "uint8" else between(-5, 5)
    return chosen, ANY


# Sums and products


def _sum(d: Draw) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape = long_or_any_shape(d)
    dtype, domain = _cast(d, *FLOATS, *INTS, "bool")
    return shape, {"self": d.tensor(shape, domain=domain), "dtype": dtype}


@ops.case("sum", dtypes=ALL, judge=ACCUMULATES)
def sum_all(d: Draw) -> Arguments:
    return _sum(d)[1]


@ops.case("sum.dim_IntList", "nansum", dtypes=ALL, judge=ACCUMULATES)
def sum_dims(d: Draw) -> Arguments:
    shape, arguments = _sum(d)
    # Only nansum has a default for `dim`, and a sum over None is a call of its own.
    dim = d.maybe(lambda: d.dims(len(shape)), none=True)
    return {**arguments, "dim": None if dim is OMIT else dim, "keepdim": keepdim(d)}


def _mean(d: Draw) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape = long_or_any_shape(d)
    dtype = _cast(d, *FLOATS, required=not is_float(d.dtype) and d.dtype not in COMPLEX)[0]
    return shape, {"self": d.tensor(shape), "dtype": dtype}


@ops.case("mean", dtypes=ALL, judge=ACCUMULATES)
def mean_all(d: Draw) -> Arguments:
    return _mean(d)[1]


@ops.case("mean.dim", dtypes=ALL, judge=ACCUMULATES)
def mean_dims(d: Draw) -> Arguments:
    shape, arguments = _mean(d)
    dim = d.choose(None, d.dims(len(shape)), d.dims(len(shape)))
    return {**arguments, "dim": dim, "keepdim": keepdim(d)}


@ops.case("nanmean", dtypes=FLOATS, judge=ACCUMULATES)
def nanmean(d: Draw) -> Arguments:
    shape, arguments = _mean(d)
    return {**arguments, "dim": dim_list(d, len(shape)), "keepdim": keepdim(d)}


@ops.case("sum_to_size", dtypes=ALL, judge=ACCUMULATES)
def sum_to_size(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    return {"self": d.tensor(shape), "size": list(d.broadcastable(shape))}


def _prod(d: Draw) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape = long_or_any_shape(d, wide=False)
    dtype, domain = _cast(d, *FLOATS, *INTS, "bool")
    return shape, {"self": d.tensor(shape, domain=domain), "dtype": dtype}


@ops.case("prod", dtypes=ALL)
def prod(d: Draw) -> Arguments:
    return _prod(d)[1]


@ops.case("prod.dim_int", dtypes=ALL)
def prod_dim(d: Draw) -> Arguments:
    shape, arguments = _prod(d)
    return {**arguments, "dim": d.dim(len(shape)), "keepdim": keepdim(d)}


# Extrema


@ops.case("amax", "amin", dtypes=ALL, judge=EQUAL)
def extremum_dims(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    dim = dim_list(d, len(shape), none=False)
    return {"self": d.tensor(filled(shape, dim)), "dim": dim, "keepdim": keepdim(d)}


@ops.case("aminmax", dtypes=ALL, judge=EQUAL_PAIR)
def aminmax(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    dim = _dim_argument(d, len(shape))
    return {"self": d.tensor(filled(shape, dim)), "dim": dim, "keepdim": keepdim(d)}


@ops.case("_aminmax", dtypes=ALL, judge=EQUAL_PAIR)
@ops.case("max", "min", dtypes=ALL, judge=EQUAL)
def extremum(d: Draw) -> Arguments:
    return {"self": d.tensor(filled(long_or_any_shape(d), None))}


@ops.case("_aminmax.dim", dtypes=ALL, judge=EQUAL_PAIR)
# The first of several equal extrema is returned, by the documentation of `max` and `min`.
@ops.case("max.dim", "min.dim", dtypes=ALL, judge=EXACT)
def extremum_dim(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    dim = d.dim(len(shape))
    return {"self": d.tensor(filled(shape, dim)), "dim": dim, "keepdim": keepdim(d)}


@ops.case("argmax", "argmin", dtypes=NUMBERS, judge=EXACT)
def arg_extremum(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    dim = _dim_argument(d, len(shape))
    return {"self": d.tensor(filled(shape, dim)), "dim": dim, "keepdim": keepdim(d)}


# Logic and counting


@ops.case("any", "all", dtypes=ALL, judge=EXACT)
def truth(d: Draw) -> Arguments:
    return {"self": d.tensor(long_or_any_shape(d))}


@ops.case("_is_all_true", "_is_any_true", dtypes=("bool",), judge=EXACT)
def truth_of_bools(d: Draw) -> Arguments:
    return {"self": d.tensor(long_or_any_shape(d))}


@ops.case("any.dim", "all.dim", dtypes=ALL, judge=EXACT)
def truth_dim(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    return {"self": d.tensor(shape), "dim": d.dim(len(shape)), "keepdim": keepdim(d)}


@ops.case("any.dims", "all.dims", dtypes=ALL, judge=EXACT)
def truth_dims(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    return {"self": d.tensor(shape), "dim": dim_list(d, len(shape)), "keepdim": keepdim(d)}


@ops.case("count_nonzero", dtypes=ALL, judge=EXACT)
def count_nonzero(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    return {"self": d.tensor(shape), "dim": _dim_argument(d, len(shape))}


@ops.case("count_nonzero.dim_IntList", dtypes=ALL, judge=EXACT)
def count_nonzero_dims(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    return {"self": d.tensor(shape), "dim": d.dims(len(shape))}


# Log-sum-exp


@ops.case("logsumexp", "special_logsumexp", dtypes=ALL)
def logsumexp(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    dim = d.dims(len(shape))
    # PyTorch reduces over all dims for an empty list, but then only keeps them.
    return {"self": d.tensor(shape), "dim": dim, "keepdim": keepdim(d) if dim or not shape else True}


# Moments


def _averaged(arguments: Mapping[str, Any]) -> tuple[int, ...] | None:
    return tuple(arguments.get("dim") or ()) or None


def _exact_variances(
    arguments: Mapping[str, Any], expected: Sequence[Array], root: bool = False
) -> Sequence[Array | None]:
    """Compute float64 variances, or their roots, of finite numbers in the machine's long double.

    PyTorch's kernel updates a mean and a variance element by element: its error grows with their number, and at
    the ends of the range it is NaN.
    """
    values = arguments["self"]
    if values.dtype != np.float64 or not values.size:
        return [None] * len(expected)
    dims = arguments.get("dim")
    axes = tuple(np.arange(values.ndim)) if dims is None or not np.size(dims) else tuple(np.ravel(dims))
    correction = arguments.get("correction", float(arguments.get("unbiased", True)))
    with np.errstate(all="ignore"):
        wide = values.astype(np.longdouble)
        mean = wide.mean(axis=axes, keepdims=True)
        count = values.size / max(mean.size, 1) - (1.0 if correction is None else correction)
        variance = ((wide - mean) ** 2).sum(axis=axes, keepdims=True) / max(count, 0.0)
        exact = (np.sqrt(variance) if root else variance).astype(np.float64)
    finite = np.isfinite(values).all(axis=axes, keepdims=True)
    first = np.where(finite, exact, expected[0].reshape(exact.shape))
    return [first.reshape(expected[0].shape), *([None] * (len(expected) - 1))]


#: The mean is a sum; deviations cancel in absolute inputs as they do in the inputs, so that nothing is gained
#: for the variance.
VARIANCE_AND_MEAN = Judge(
    accumulates=True,
    undefined=infinite_mean(_averaged, source="self", output=1),
    alternatives=_exact_variances,
)
DEVIATION_AND_MEAN = replace(VARIANCE_AND_MEAN, alternatives=partial(_exact_variances, root=True))
VARIANCE = Judge(alternatives=_exact_variances)
DEVIATION = Judge(alternatives=partial(_exact_variances, root=True))


@ops.case("var_mean", dtypes=FLOATS, judge=VARIANCE_AND_MEAN)
@ops.case("std_mean", dtypes=FLOATS, judge=DEVIATION_AND_MEAN)
@ops.case("var", dtypes=FLOATS, judge=VARIANCE)
@ops.case("std", dtypes=FLOATS, judge=DEVIATION)
def moments(d: Draw) -> Arguments:
    return {"self": d.tensor(long_or_any_shape(d)), "unbiased": d.maybe(d.boolean)}


@ops.case("var_mean.dim", dtypes=FLOATS, judge=VARIANCE_AND_MEAN)
@ops.case("std_mean.dim", dtypes=FLOATS, judge=DEVIATION_AND_MEAN)
@ops.case("var.dim", dtypes=FLOATS, judge=VARIANCE)
@ops.case("std.dim", dtypes=FLOATS, judge=DEVIATION)
def moments_dim(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    return {
        "self": d.tensor(shape),
        "dim": d.choose(None, d.dims(len(shape)), d.dims(len(shape))),
        "unbiased": d.maybe(d.boolean),
        "keepdim": keepdim(d),
    }


@ops.case("var_mean.correction", dtypes=FLOATS, judge=VARIANCE_AND_MEAN)
@ops.case("std_mean.correction", dtypes=FLOATS, judge=DEVIATION_AND_MEAN)
@ops.case("var.correction", dtypes=FLOATS, judge=VARIANCE)
@ops.case("std.correction", dtypes=FLOATS, judge=DEVIATION)
def moments_correction(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    return {
        "self": d.tensor(shape),
        "dim": dim_list(d, len(shape)),
        "correction": d.maybe(lambda: d.choose(1, 0, 2, 5, 1.0, 0.5, -1), none=True),
        "keepdim": keepdim(d),
    }


# Order statistics


@ops.case("median", "nanmedian", dtypes=NUMBERS, judge=EQUAL)
def median(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    return {"self": d.tensor(shape if is_float(d.dtype) else filled(shape, None))}


@ops.case("median.dim", "nanmedian.dim", dtypes=NUMBERS, judge=PICKS)
def median_dim(d: Draw) -> Arguments:
    shape = long_or_any_shape(d)
    dim = d.dim(len(shape))
    return {"self": d.tensor(filled(shape, dim)), "dim": dim, "keepdim": keepdim(d)}


@ops.case("mode", dtypes=ALL, judge=PICKS)
def mode(d: Draw) -> Arguments:
    shape = long_or_any_shape(d, wide=False)
    dim = _dim_argument(d, len(shape), none=False)
    return {"self": d.tensor(filled(shape, -1 if dim is OMIT else dim)), "dim": dim, "keepdim": keepdim(d)}


@ops.case("kthvalue", dtypes=NUMBERS, judge=PICKS)
def kthvalue(d: Draw) -> Arguments:
    dim = OMIT
    shape = d.shape()
    if d.boolean():
        dim = d.dim(len(shape))
    axis = -1 if dim is OMIT else dim
    shape = filled(shape, axis)
    k = d.integer(1, shape[axis] if shape else 1)
    return {"self": d.tensor(shape), "k": k, "dim": dim, "keepdim": keepdim(d)}


def _quantile(d: Draw) -> dict[str, Any]:
    shape = d.shape()
    dim = _dim_argument(d, len(shape))
    return {
        "self": d.tensor(filled(shape, None)),
        "dim": dim,
        "keepdim": keepdim(d),
        "interpolation": d.maybe(lambda: d.choose(*INTERPOLATIONS)),
    }


@ops.case("quantile", "nanquantile", dtypes=FULL_FLOATS)
def quantile(d: Draw) -> Arguments:
    return {**_quantile(d), "q": d.tensor(d.shape(0, 1, max_size=5), domain=between(0.0, 1.0))}


@ops.case("quantile.scalar", "nanquantile.scalar", dtypes=FULL_FLOATS)
def quantile_scalar(d: Draw) -> Arguments:
    return {**_quantile(d), "q": d.choose(0.5, 0.0, 1.0, 0.25, 0.1, 0.3, 0.99)}


@ops.case("hash_tensor", dtypes=ALL, judge=EXACT)
def hash_tensor(d: Draw) -> Arguments:
    shape = d.shape()
    dim = dim_list(d, len(shape), none=False)
    return {
        "self": d.tensor(filled(shape, dim)),
        "dim": dim,
        "keepdim": keepdim(d),
        "mode": d.choose(OMIT, 0),
    }
