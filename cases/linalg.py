"""Linear algebra on square matrices and batches of them: determinants, inverses, systems, factors.

The matrices are well conditioned, so that the result of one algorithm is close to that of another.
"""

from __future__ import annotations

from typing import Any

from harness.compare.judge import ACCUMULATES, Judge
from harness.core.dtypes import FLOATS, FULL_FLOATS, INTS
from harness.core.invocation import TensorSpec
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("linalg")


def _lead(d: Draw) -> tuple[int, ...]:
    return d.shape(0, 3, max_size=4)


def _square(d: Draw, *, lead: tuple[int, ...] | None = None, symmetric: bool = False) -> TensorSpec:
    """A batch of matrices that dominate on their diagonal."""
    side = d.choose(3, 1, 2, 4, 7, 8, 16, 0)
    shape = (*(_lead(d) if lead is None else lead), side, side)
    return d.tensor(shape, domain=("dominant", side, int(symmetric)))


@ops.case("linalg_det", "linalg_slogdet", "linalg_inv", dtypes=FULL_FLOATS)
def matrix_argument(d: Draw) -> Arguments:
    return {"A": _square(d)}


@ops.case("det", "slogdet", "logdet", "inverse", dtypes=FULL_FLOATS)
def self_argument(d: Draw) -> Arguments:
    return {"self": _square(d)}


@ops.case("linalg_inv_ex", dtypes=FULL_FLOATS)
def inverse_checked(d: Draw) -> Arguments:
    return {"A": _square(d), "check_errors": d.maybe(d.boolean)}


@ops.case("linalg_cholesky", "cholesky", dtypes=FULL_FLOATS)
def cholesky(d: Draw) -> Arguments:
    return {"self": _square(d, symmetric=True), "upper": d.maybe(d.boolean)}


@ops.case("linalg_cholesky_ex", dtypes=FULL_FLOATS)
def cholesky_checked(d: Draw) -> Arguments:
    return {**cholesky(d), "check_errors": d.maybe(d.boolean)}


@ops.case("cholesky_inverse", dtypes=FULL_FLOATS)
def cholesky_inverse(d: Draw) -> Arguments:
    # Either triangle of a dominant matrix is a regular factor.
    return {"self": _square(d), "upper": d.maybe(d.boolean)}


@ops.case(
    "matrix_power",
    "linalg_matrix_power",
    dtypes=(*FLOATS, *INTS),
    judge=Judge(complex_judge=ACCUMULATES),
)
def matrix_power(d: Draw) -> Arguments:
    # Inverses are taken of full floats only.
    exponents = (2, 0, 1, 3, 4, *((-1, -2) if d.dtype in FULL_FLOATS else ()))
    return {"self": _square(d), "n": d.choose(*exponents)}


@ops.case("linalg_matrix_exp", "matrix_exp", dtypes=FLOATS)
def matrix_exp(d: Draw) -> Arguments:
    side = d.choose(2, 1, 3, 0)
    lead = _lead(d)
    # PyTorch views several batch dims as one.
    values = between(-1.0, 1.0)
    return {"self": d.tensor((*lead, side, side), domain=values, contiguous=len(lead) > 1)}


@ops.case("linalg_eigvalsh", dtypes=FULL_FLOATS)
def eigenvalues(d: Draw) -> Arguments:
    return {"self": _square(d, symmetric=True), "UPLO": d.maybe(lambda: d.choose("L", "U"))}


@ops.case("linalg_svdvals", dtypes=FULL_FLOATS)
def singular_values(d: Draw) -> Arguments:
    shape = (*_lead(d), d.size(1, 5), d.size(1, 5))
    return {"A": d.tensor(shape, domain=between(-1.0, 1.0)), "driver": d.choose(OMIT, None)}


@ops.case("pinverse", dtypes=FULL_FLOATS)
def pseudo_inverse(d: Draw) -> Arguments:
    return {"self": _square(d), "rcond": d.maybe(lambda: d.choose(1e-15, 1e-3))}


@ops.case("linalg_pinv", dtypes=FULL_FLOATS)
def pseudo_inverse_cut(d: Draw) -> Arguments:
    return {
        "self": _square(d, symmetric=True),
        "rcond": d.choose(1e-15, 1e-3),
        "hermitian": d.maybe(d.boolean),
    }


@ops.case("linalg_pinv.atol_rtol_float", dtypes=FULL_FLOATS)
def pseudo_inverse_tolerances(d: Draw) -> Arguments:
    return {
        "self": _square(d, symmetric=True),
        "atol": d.maybe(lambda: d.choose(0.0, 1e-3), none=True),
        "rtol": d.maybe(lambda: d.choose(1e-6, 1e-3), none=True),
        "hermitian": d.maybe(d.boolean),
    }


# Systems


def _system(d: Draw, *, vectors: bool) -> dict[str, Any]:
    lead = _lead(d)
    matrix = _square(d, lead=lead)
    side, left = matrix.shape[-1], d.choose(OMIT, True, False)
    columns = d.size(high=5)
    right = (*lead, columns, side) if left is False else (*lead, side, columns)
    if vectors and left is not False and d.boolean():
        right = (*lead, side)
    return {"A": matrix, "B": d.tensor(right, domain=between(-4.0, 4.0)), "left": left}


@ops.case("linalg_solve", dtypes=FULL_FLOATS)
def solve(d: Draw) -> Arguments:
    return _system(d, vectors=True)


@ops.case("linalg_solve_ex", dtypes=FULL_FLOATS)
def solve_checked(d: Draw) -> Arguments:
    return {**_system(d, vectors=True), "check_errors": d.maybe(d.boolean)}


@ops.case("linalg_solve_triangular", dtypes=FULL_FLOATS)
def solve_triangular(d: Draw) -> Arguments:
    system = _system(d, vectors=False)
    return {
        "self": system["A"],
        "B": system["B"],
        "left": system["left"],
        "upper": d.boolean(),
        "unitriangular": d.maybe(d.boolean),
    }


@ops.case("triangular_solve", dtypes=FULL_FLOATS)
def solve_triangular_classic(d: Draw) -> Arguments:
    lead = _lead(d)
    matrix = _square(d, lead=lead)
    return {
        "self": d.tensor((*lead, matrix.shape[-1], d.size(high=5)), domain=between(-4.0, 4.0)),
        "A": matrix,
        "upper": d.maybe(d.boolean),
        "transpose": d.maybe(d.boolean),
        "unitriangular": d.maybe(d.boolean),
    }


@ops.case("cholesky_solve", dtypes=FULL_FLOATS)
def solve_cholesky(d: Draw) -> Arguments:
    lead = _lead(d)
    factor = _square(d, lead=lead)
    right = d.tensor((*lead, factor.shape[-1], d.size(high=5)), domain=between(-4.0, 4.0))
    return {"self": right, "input2": factor, "upper": d.maybe(d.boolean)}


@ops.case("linalg_lu", dtypes=FULL_FLOATS)
def lu(d: Draw) -> Arguments:
    # A dominant diagonal is the pivot throughout, so that the factors are unique.
    return {"A": _square(d), "pivot": d.choose(OMIT, True)}


@ops.case("linalg_lu_factor", dtypes=FULL_FLOATS)
def lu_factor(d: Draw) -> Arguments:
    return {"A": _square(d), "pivot": d.choose(OMIT, True)}
