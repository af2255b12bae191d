"""Numbers and inverses that rest on singular values: condition, rank, pseudo-inverse, tensor inverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cases.rules import matrix_factors as rules
from cases.rules.matrix_factors import wide
from harness.compare.judge import Allowance, Judge, Mask
from harness.core.dtypes import FLOATS, FULL_FLOATS, INTS, UNSIGNED, Array
from harness.core.invocation import TensorSpec
from harness.generate.draw import ANY, OMIT, Domain, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("conditioned")


def _lead(d: Draw) -> tuple[int, ...]:
    return d.shape(0, 3, max_size=4)


def _square(d: Draw, *, symmetric: bool = False) -> TensorSpec:
    side = d.choose(3, 1, 2, 4, 7)
    return d.tensor((*_lead(d), side, side), domain=("dominant", side, int(symmetric)))


# Condition numbers


def _condition(arguments: Mapping[str, Any]) -> Array:
    # A condition number is as ill-conditioned as its matrix (Higham, theorem 15.7): κ of it, κ² of a result
    # of size κ.
    kappa = np.linalg.cond(wide(arguments["self"]))
    return np.asarray(kappa**2 * arguments["self"].shape[-1])


CONDITION = Judge(rules={0: rules.within(_condition, "self")})


@ops.case("linalg_cond", dtypes=FULL_FLOATS, judge=CONDITION)
def condition(d: Draw) -> Arguments:
    p = d.choose(OMIT, None, 2, -2, 1, -1, float("inf"), float("-inf"), 2.0)
    return {"self": _square(d), "p": p}


@ops.case("linalg_cond.p_str", dtypes=FULL_FLOATS, judge=CONDITION)
def condition_named(d: Draw) -> Arguments:
    return {"self": _square(d), "p": d.choose("fro", "nuc")}


# Ranks


def _singular_values(arguments: Mapping[str, Any], name: str) -> Array:
    data = wide(arguments[name])
    if arguments.get("hermitian", False):
        half = np.tril(data)
        data = half + np.swapaxes(np.tril(data, -1), -1, -2)
    return np.asarray(np.linalg.svd(data, compute_uv=False))


def _near_threshold(name: str, threshold: Callable[[Mapping[str, Any], Array, Array], Array]) -> Judge:
    """A rank is open where a singular value is as near to the threshold as rounding may carry it."""

    def undefined(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
        values = _singular_values(arguments, name)
        if not values.size:
            return [None]
        largest = values.max(-1, keepdims=True)
        limit = threshold(arguments, largest, arguments[name])
        slack = rules.backward_error(arguments[name].shape, str(arguments[name].dtype)) * largest
        open_ = (np.abs(values - limit) <= slack).any(-1)
        # The default threshold is about as large as the rounding errors of a singular matrix.
        return [np.broadcast_to(open_, expected[0].shape)]

    return Judge(undefined=Allowance("a singular value beside the threshold", undefined))


def _expand(tolerance: Any) -> Any:
    return np.asarray(tolerance)[..., None]


def _two_tolerances(arguments: Mapping[str, Any], largest: Array, data: Array) -> Array:
    atol, rtol = arguments.get("atol"), arguments.get("rtol")
    if rtol is None:
        # The default, unless an absolute one is given.
        epsilon = np.finfo(data.dtype).eps * max(data.shape[-2:])
        rtol = epsilon if atol is None else np.where(np.asarray(atol) > 0, 0.0, epsilon)
    atol = 0.0 if atol is None else atol
    return np.asarray(np.maximum(_expand(atol), _expand(rtol) * largest))


def _tolerance(arguments: Mapping[str, Any], largest: Array, data: Array) -> Array:
    return np.asarray(_expand(arguments["tol"]) + 0.0 * largest)


def _ranked(d: Draw, *, hermitian: Any) -> TensorSpec:
    """Draw a matrix of full rank, of rank one, or of rank zero."""
    if hermitian is True or d.boolean():
        return _square(d, symmetric=hermitian is True)
    shape = (*_lead(d), d.choose(3, 1, 2, 5, 8), d.choose(3, 1, 2, 5, 8))
    return d.tensor(shape, domain=d.choose(between(-1.0, 1.0), between(0.0, 0.0)))


def _hermitian(d: Draw) -> Any:
    return d.choose(OMIT, False, True)


def _cut(d: Draw) -> Any:
    return d.choose(1e-3, 0.5, 2.5, 4.2, 100.0)


@ops.case("linalg_matrix_rank.atol_rtol_float", dtypes=FULL_FLOATS, judge=_near_threshold("self", _two_tolerances))
def rank(d: Draw) -> Arguments:
    hermitian = _hermitian(d)
    return {
        "self": _ranked(d, hermitian=hermitian),
        "atol": d.maybe(lambda: _cut(d), none=True),
        "rtol": d.maybe(lambda: d.choose(1e-3, 0.1, 0.7), none=True),
        "hermitian": hermitian,
    }


def _tolerance_tensor(d: Draw, matrix: TensorSpec, low: float, high: float) -> TensorSpec:
    return d.tensor(d.choose((), matrix.shape[:-2]), d.dtype, between(low, high))


@ops.case("linalg_matrix_rank.atol_rtol_tensor", dtypes=FULL_FLOATS, judge=_near_threshold("input", _two_tolerances))
def rank_tensors(d: Draw) -> Arguments:
    hermitian = _hermitian(d)
    matrix = _ranked(d, hermitian=hermitian)
    return {
        "input": matrix,
        "atol": d.maybe(lambda: _tolerance_tensor(d, matrix, 1e-3, 5.0), none=True),
        "rtol": d.maybe(lambda: _tolerance_tensor(d, matrix, 1e-3, 0.9), none=True),
        "hermitian": hermitian,
    }


@ops.case("linalg_matrix_rank", dtypes=FULL_FLOATS, judge=_near_threshold("self", _tolerance))
def rank_classic(d: Draw) -> Arguments:
    hermitian = _hermitian(d)
    return {"self": _ranked(d, hermitian=hermitian), "tol": _cut(d), "hermitian": hermitian}


@ops.case("linalg_matrix_rank.tol_tensor", dtypes=FULL_FLOATS, judge=_near_threshold("input", _tolerance))
def rank_classic_tensor(d: Draw) -> Arguments:
    hermitian = _hermitian(d)
    matrix = _ranked(d, hermitian=hermitian)
    return {"input": matrix, "tol": _tolerance_tensor(d, matrix, 1e-3, 5.0), "hermitian": hermitian}


# Inverses


@ops.case("linalg_pinv.atol_rtol_tensor", dtypes=FULL_FLOATS)
def pseudo_inverse_tensors(d: Draw) -> Arguments:
    matrix = _square(d, symmetric=True)
    return {
        "self": matrix,
        "atol": d.maybe(lambda: _tolerance_tensor(d, matrix, 0.0, 1e-3), none=True),
        "rtol": d.maybe(lambda: _tolerance_tensor(d, matrix, 1e-6, 1e-3), none=True),
        "hermitian": _hermitian(d),
    }


@ops.case("linalg_pinv.rcond_tensor", dtypes=FULL_FLOATS)
def pseudo_inverse_tensor(d: Draw) -> Arguments:
    matrix = _square(d, symmetric=True)
    return {"self": matrix, "rcond": _tolerance_tensor(d, matrix, 1e-6, 1e-3), "hermitian": _hermitian(d)}


#: Sides of a square matrix as the sizes of two groups of dims.
_GROUPED = (
    *(((2, 3), (6,)), ((6,), (3, 2)), ((4,), (4,)), ((2, 2), (4, 1)), ((1,), (1,)), ((2, 3), (3, 2))),
    *(((8, 4), (32,)), ((64,), (8, 8)), ((0, 2), (3, 0)), ((1, 2, 3), (6,)), ((2, 1, 1, 2), (4,))),
)


@ops.case("linalg_tensorinv", dtypes=FULL_FLOATS)
def tensor_inverse(d: Draw) -> Arguments:
    front, back = d.choose(*_GROUPED)
    side = int(np.prod(front))
    return {
        "self": d.tensor((*front, *back), domain=("dominant", side, 0)),
        "ind": OMIT if len(front) == 2 and d.boolean() else len(front),
    }


@ops.case("linalg_tensorsolve", dtypes=FULL_FLOATS)
def tensor_solve(d: Draw) -> Arguments:
    front, back = d.choose(*_GROUPED, ((), ()), ((), (1,)), ((1, 2, 1, 2, 1), (4,)))
    side = int(np.prod(front))
    first = d.choose(False, False, True)
    # Dims that stand first and belong to the back; a dominant matrix is dominant transposed, too.
    places = [i - (len(front) + len(back) if d.boolean() else 0) for i in range(len(back))]
    return {
        "self": d.tensor((*back, *front) if first else (*front, *back), domain=("dominant", side, 0)),
        "other": d.tensor(front, domain=between(-4.0, 4.0)),
        "dims": places if first else d.choose(OMIT, None, []),
    }


# Covariance


def _deviations(arguments: Mapping[str, Any], weights: Array) -> tuple[Array, Array]:
    data = np.atleast_2d(wide(arguments["self"]))
    total = weights.sum()
    mean = (data * weights).sum(-1, keepdims=True) / total
    # The mean's rounding errors scale with the mean of magnitudes, which each deviation inherits.
    return np.abs(data - mean), (np.abs(data) * weights).sum(-1, keepdims=True) / total


def _weights(arguments: Mapping[str, Any]) -> Array:
    columns = np.atleast_2d(arguments["self"]).shape[-1]
    weights = np.ones(columns)
    for name in ("fweights", "aweights"):
        if arguments.get(name) is not None:
            weights = weights * wide(arguments[name])
    return weights


def _covariance_terms(arguments: Mapping[str, Any]) -> Array:
    weights = _weights(arguments)
    away, size = _deviations(arguments, weights)
    both = away + size
    frequency, importance = arguments.get("fweights"), arguments.get("aweights")
    correction = arguments.get("correction", 1)
    total = weights.sum()
    if importance is None:
        divisor = total - correction
    else:
        divisor = total - correction * (weights * wide(importance)).sum() / total
    del frequency
    with np.errstate(all="ignore"):
        return np.asarray(((both * weights) @ both.T / max(divisor, 0.0)).squeeze())


@ops.case("cov", dtypes=(*FLOATS, *INTS), judge=Judge(terms=_covariance_terms))
def covariance(d: Draw) -> Arguments:
    columns = d.choose(3, 2, 5, 8, 17, 1, 33, 64)
    domain = _values(d)
    weighted = d.choose(False, False, True)
    importance = "float64" if d.dtype == "float64" else "float32" if d.dtype in INTS else d.dtype
    return {
        "self": d.tensor(d.choose((columns,), (d.choose(1, 2, 4, 7), columns)), domain=domain),
        "correction": d.choose(OMIT, 0, 1, -1),
        "fweights": d.tensor((columns,), "int64", between(1, 4)) if weighted else d.choose(OMIT, None),
        "aweights": d.maybe(lambda: d.tensor((columns,), importance, between(0.5, 2.0)), none=True),
    }


def _values(d: Draw) -> Domain:
    if d.dtype in UNSIGNED:
        return d.choose(between(0, 9), ANY)
    return d.choose(between(-9, 9), between(-9, 9), ANY) if d.dtype in INTS else between(-4.0, 4.0)


def _correlation_bound(arguments: Mapping[str, Any]) -> Array:
    """Bound the errors of covariances divided by deviations: the sums of magnitudes divided in the same way."""
    weights = np.ones(np.atleast_2d(arguments["self"]).shape[-1])
    away, size = _deviations(arguments, weights)
    with np.errstate(all="ignore"):
        ratio = np.sqrt(((away + size) ** 2).sum(-1) / (away**2).sum(-1))
        return np.asarray(np.outer(ratio, ratio).squeeze())


@ops.case("corrcoef", dtypes=(*FLOATS, *INTS), judge=Judge(terms=_correlation_bound))
def correlation(d: Draw) -> Arguments:
    columns = d.choose(3, 2, 5, 8, 17, 1, 33, 64, 0)
    shape = d.choose((columns,), (d.choose(1, 2, 4, 7), columns), (columns,), (3, columns), ())
    return {"self": d.tensor(shape, domain=_values(d))}
