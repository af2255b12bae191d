"""Norms of vectors and matrices along dims."""

from __future__ import annotations

from typing import Any

from cases.reduction import dim_list, filled, keepdim, long_or_any_shape
from harness.core.dtypes import FLOATS, FULL_FLOATS
from harness.core.invocation import TensorSpec
from harness.generate.draw import FINITE, OMIT, Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("norms")


def _order(d: Draw) -> bool | int | float:
    return d.choose(2, 1, 0, 2.0, float("inf"), float("-inf"), 3, 0.5, -1, 1.5, -2.0)


def _normed(d: Draw, p: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dims of a vector norm; negative and infinite orders have no value for no elements."""
    shape = long_or_any_shape(d)
    dim = dim_list(d, len(shape))
    needs_elements = isinstance(p, int | float) and (p < 0 or p == float("inf"))
    return (filled(shape, dim) if needs_elements else shape), dim


def _wider(d: Draw) -> Any:
    """A `dtype` that a norm computes in: PyTorch refuses narrower ones."""
    wider = {"float32": ("float32", "float64"), "float64": ("float64",)}
    return d.dtype_argument(*wider.get(d.dtype, (d.dtype, "float32", "float64")))


@ops.case("norm.Scalar", dtypes=FLOATS)
def norm(d: Draw) -> Arguments:
    p = d.maybe(lambda: _order(d))
    return {"self": d.tensor(filled(long_or_any_shape(d), None)), "p": p}


@ops.case("norm.ScalarOpt_dtype", dtypes=FLOATS)
def norm_dtype(d: Draw) -> Arguments:
    p = d.choose(None, _order(d), _order(d))
    return {"self": d.tensor(filled(long_or_any_shape(d), None)), "p": p, "dtype": _wider(d)}


@ops.case("norm.ScalarOpt_dim", dtypes=FLOATS)
def norm_dim(d: Draw) -> Arguments:
    p = d.choose(None, _order(d), _order(d))
    shape, dim = _normed(d, p)
    return {
        "self": d.tensor(shape),
        "p": p,
        "dim": [] if dim is OMIT or dim is None else dim,
        "keepdim": keepdim(d),
    }


@ops.case("norm.ScalarOpt_dim_dtype", dtypes=FLOATS)
def norm_dim_dtype(d: Draw) -> Arguments:
    return {**norm_dim(d), "keepdim": d.boolean(), "dtype": _wider(d)}


@ops.case("linalg_vector_norm", dtypes=FLOATS)
def vector_norm(d: Draw) -> Arguments:
    p = d.maybe(lambda: _order(d))
    shape, dim = _normed(d, p)
    dtype = d.choose(OMIT, None, _wider(d))
    return {"self": d.tensor(shape), "ord": p, "dim": dim, "keepdim": keepdim(d), "dtype": dtype}


def _matrix_order(d: Draw) -> int | float:
    """The order of a matrix norm; singular values exist for full floats only."""
    orders: tuple[int | float, ...] = (1, -1, float("inf"), float("-inf"))
    return d.choose(*orders, 2, -2) if d.dtype in FULL_FLOATS else d.choose(*orders)


def _matrix(d: Draw, min_size: int = 1) -> tuple[TensorSpec, list[int], Any]:
    """A batch of matrices, the dims that they lie in, and those dims as an argument with a default."""
    shape = d.shape(2, 5, min_size=min_size, max_size=9)
    dims = d.dims(len(shape), min_count=2, max_count=2)
    default = d.boolean()
    return d.tensor(shape, domain=FINITE), dims, OMIT if default else dims


@ops.case("linalg_norm", dtypes=FLOATS)
def linalg_norm(d: Draw) -> Arguments:
    rest = {"keepdim": keepdim(d), "dtype": d.choose(OMIT, None, _wider(d))}
    kind = d.choose("flat", "vector", "matrix")
    if kind == "matrix":
        matrix, dims, _ = _matrix(d)
        return {"self": matrix, "ord": _matrix_order(d), "dim": dims, **rest}
    if kind == "flat":
        return {
            "self": d.tensor(long_or_any_shape(d)),
            "ord": d.choose(OMIT, None),
            "dim": d.choose(OMIT, None),
            **rest,
        }
    shape = long_or_any_shape(d, 1)
    dim = [d.dim(len(shape))]
    p = d.maybe(lambda: _order(d), none=True)
    return {"self": d.tensor(filled(shape, dim)), "ord": p, "dim": dim, **rest}


@ops.case("linalg_matrix_norm", dtypes=FLOATS)
def matrix_norm(d: Draw) -> Arguments:
    matrix, _, dim = _matrix(d)
    dtype = d.choose(OMIT, None, _wider(d))
    return {"self": matrix, "ord": _matrix_order(d), "dim": dim, "keepdim": keepdim(d), "dtype": dtype}


def _named_order(d: Draw) -> str:
    return d.choose("fro", "nuc") if d.dtype in FULL_FLOATS else "fro"


@ops.case("linalg_matrix_norm.str_ord", dtypes=FLOATS)
def matrix_norm_named(d: Draw) -> Arguments:
    matrix, _, dim = _matrix(d)
    dtype = d.choose(OMIT, None, _wider(d))
    order = d.choose(OMIT, _named_order(d), _named_order(d))
    return {"self": matrix, "ord": order, "dim": dim, "keepdim": keepdim(d), "dtype": dtype}


@ops.case("linalg_norm.ord_str", dtypes=FLOATS)
def linalg_norm_named(d: Draw) -> Arguments:
    matrix, dims, _ = _matrix(d)
    dtype = d.choose(OMIT, None, _wider(d))
    dim = d.choose(dims, OMIT, None) if len(matrix.shape) == 2 else dims
    return {"self": matrix, "ord": _named_order(d), "dim": dim, "keepdim": keepdim(d), "dtype": dtype}


@ops.case("nuclear_norm.dim", dtypes=FULL_FLOATS)
def nuclear_norm_dim(d: Draw) -> Arguments:
    matrix, dims, _ = _matrix(d, 0)
    return {"self": matrix, "dim": dims, "keepdim": keepdim(d)}


@ops.case("nuclear_norm", dtypes=FULL_FLOATS)
def nuclear_norm(d: Draw) -> Arguments:
    return {"self": d.tensor(d.shape(2, max_size=9), domain=FINITE), "keepdim": keepdim(d)}


@ops.case("frobenius_norm.dim", dtypes=FLOATS)
def frobenius_norm(d: Draw) -> Arguments:
    shape = long_or_any_shape(d, 0)
    return {"self": d.tensor(shape), "dim": d.dims(len(shape), max_count=2), "keepdim": keepdim(d)}


@ops.case("dist", dtypes=FLOATS)
def dist(d: Draw) -> Arguments:
    p = d.maybe(lambda: d.choose(2, 1, 0, 3.0, 0.5, float("inf"), float("-inf")))
    shape = filled(d.shape(), None) if p is not OMIT and p in (float("inf"), float("-inf")) else d.shape()
    integral = d.choose(*[""] * 6, "self", "other")
    return {
        "self": d.tensor(shape, "int64" if integral == "self" else d.dtype),
        "other": d.tensor(d.broadcastable(shape), "int64" if integral == "other" else d.dtype),
        "p": p,
    }
