"""Matrices taken into factors, and what is done with the factors. `cases.linalg` has the rest of the algebra.

Factors are judged by what they multiply to: their signs, phases and order are open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cases.rules import matrix_factors as rules
from cases.rules.matrix_factors import householder, transposed, wide
from cases.rules.right_answers import equal
from harness.compare.judge import EXACT, Allowance, Evidence, Judge, Mask, anything
from harness.core.dtypes import FULL_FLOATS, Array
from harness.core.invocation import TensorSpec
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("factorization")


def _lead(d: Draw) -> tuple[int, ...]:
    return d.shape(0, 3, max_size=4)


def _matrix(d: Draw, *, tall: bool = False) -> TensorSpec:
    """Any matrix, singular ones too: a broadcast one has equal rows or columns."""
    m, n = d.choose(3, 1, 2, 4, 5, 8, 17, 0), d.choose(3, 1, 2, 4, 5, 8, 17, 0)
    m, n = (max(m, n), min(m, n)) if tall else (m, n)
    return d.tensor((*_lead(d), m, n), domain=d.choose(between(-1.0, 1.0), between(-100.0, 100.0)))


def _square(d: Draw, lead: tuple[int, ...] | None = None, *, symmetric: bool = False) -> TensorSpec:
    """Well conditioned: its diagonal outweighs the rest."""
    side = d.choose(3, 1, 2, 4, 7, 8, 16, 0)
    shape = (*(_lead(d) if lead is None else lead), side, side)
    return d.tensor(shape, domain=("dominant", side, int(symmetric)))


def _given(name: str) -> rules.Matrices:
    return lambda evidence: wide(evidence.arguments[name])


def _output(index: int) -> rules.Matrices:
    return lambda evidence: wide(evidence.got[index])


# QR


def _qr(name: str, *, with_q: Any) -> Judge:
    """Q·R = A, QᵀQ = I, R upper triangular; without Q, RᵀR = AᵀA."""

    def product(evidence: Evidence) -> Array:
        return np.asarray(wide(evidence.got[0]) @ wide(evidence.got[1]))

    whole = rules.reconstructs(product, _given(name))

    def r_factor(evidence: Evidence, output: int) -> Mask:
        rule = whole if with_q(evidence.arguments) else rules.same_gram(_output(1), _given(name))
        return rule(evidence, output) | rules.upper_triangular(evidence, output)

    return Judge(rules={0: rules.where(with_q, rules.every(rules.orthonormal(_output(0)), whole)), 1: r_factor})


@ops.case("linalg_qr", dtypes=FULL_FLOATS, judge=_qr("A", with_q=lambda a: a.get("mode", "reduced") != "r"))
def qr(d: Draw) -> Arguments:
    return {"A": _matrix(d), "mode": d.choose(OMIT, "reduced", "complete", "r")}


@ops.case("qr", dtypes=FULL_FLOATS, judge=_qr("self", with_q=lambda a: True))
def qr_classic(d: Draw) -> Arguments:
    return {"self": _matrix(d), "some": d.maybe(d.boolean)}


def _packed_qr(evidence: Evidence) -> Array:
    packed, tau = wide(evidence.got[0]), wide(evidence.got[1])
    return np.asarray(householder(packed, tau) @ np.triu(packed))


def _packed_q(evidence: Evidence) -> Array:
    return householder(wide(evidence.got[0]), wide(evidence.got[1]))


PACKED = rules.every(rules.reconstructs(_packed_qr, _given("self")), rules.orthonormal(_packed_q))


@ops.case("geqrf", dtypes=FULL_FLOATS, judge=Judge(rules={0: PACKED, 1: PACKED}))
def packed_qr(d: Draw) -> Arguments:
    return {"self": _matrix(d)}


def _reflected(vectors: str, scales: str, other: str | None) -> Judge:
    """Each reflector I − τ·v·vᵀ amplifies by at most 1 + |τ|·‖v‖²."""

    def amplification(arguments: Mapping[str, Any]) -> Array:
        v, tau = wide(arguments[vectors]), wide(arguments[scales])
        lengths = 1.0 + (np.tril(v, -1) ** 2).sum(-2)[..., : tau.shape[-1]]
        growth = np.prod(1.0 + np.abs(tau) * lengths, -1)
        size = np.sqrt((wide(arguments[other]) ** 2).sum((-2, -1))) if other else np.sqrt(v.shape[-1])
        return np.asarray(growth * size)

    return Judge(rules={0: rules.within(amplification, vectors)})


def _reflectors(d: Draw) -> tuple[tuple[int, ...], int, int, int, TensorSpec, TensorSpec]:
    """Reflectors as `geqrf` packs them, though of no particular matrix."""
    lead, columns = _lead(d), d.choose(3, 1, 2, 4, 0)
    rows, count = columns + d.choose(0, 1, 2, 5), d.integer(0, columns)
    vectors = d.tensor((*lead, rows, columns), domain=between(-1.0, 1.0))
    return lead, rows, columns, count, vectors, d.tensor((*lead, count), domain=between(0.0, 2.0))


@ops.case("linalg_householder_product", dtypes=FULL_FLOATS, judge=_reflected("input", "tau", None))
def householder_product(d: Draw) -> Arguments:
    *_, vectors, tau = _reflectors(d)
    return {"input": vectors, "tau": tau}


@ops.case("ormqr", dtypes=FULL_FLOATS, judge=_reflected("self", "input2", "input3"))
def multiply_by_q(d: Draw) -> Arguments:
    lead, rows, columns, _, vectors, _ = _reflectors(d)
    left, width = d.choose(OMIT, True, False), d.size(1, 5)
    return {
        "self": vectors,
        "input2": d.tensor((*lead, columns), domain=between(0.0, 2.0)),
        "input3": d.tensor((*lead, width, rows) if left is False else (*lead, rows, width), domain=between(-4.0, 4.0)),
        "left": left,
        "transpose": d.maybe(d.boolean),
    }


# Singular values


def _svd(name: str, *, transposed_v: bool, with_vectors: Any = lambda a: True) -> Judge:
    """U·diag(S)·Vᵀ = A, and U and V orthonormal."""

    def product(evidence: Evidence) -> Array:
        u, s, v = (wide(array) for array in evidence.got)
        v = v if transposed_v else transposed(v)
        k = s.shape[-1]
        return np.asarray((u[..., :k] * s[..., None, :]) @ v[..., :k, :])

    whole = rules.reconstructs(product, _given(name))
    factors = {i: rules.where(with_vectors, rules.every(rules.orthonormal(_output(i)), whole)) for i in (0, 2)}
    return Judge(rules={**factors, 1: rules.spectrum(_given(name))})


@ops.case("linalg_svd", dtypes=FULL_FLOATS, judge=_svd("A", transposed_v=True))
def svd(d: Draw) -> Arguments:
    return {"A": _matrix(d), "full_matrices": d.maybe(d.boolean), "driver": d.choose(OMIT, None)}


def _asked(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments.get("compute_uv", True))


@ops.case("_linalg_svd", dtypes=FULL_FLOATS, judge=_svd("A", transposed_v=True, with_vectors=_asked))
def svd_kernel(d: Draw) -> Arguments:
    return {**svd(d), "compute_uv": d.maybe(d.boolean)}


@ops.case("svd", dtypes=FULL_FLOATS, judge=_svd("self", transposed_v=False, with_vectors=_asked))
def svd_classic(d: Draw) -> Arguments:
    return {"self": _matrix(d), "some": d.maybe(d.boolean), "compute_uv": d.maybe(d.boolean)}


# Eigenvalues


def _symmetric(name: str) -> rules.Matrices:
    """The matrix that one triangle of the argument stands for."""

    def matrices(evidence: Evidence) -> Array:
        a = wide(evidence.arguments[name])
        half = np.triu(a) if evidence.arguments.get("UPLO", "L") in ("U", "u") else transposed(np.tril(a))
        return np.asarray(half + transposed(np.triu(half, 1)))

    return matrices


def _eigh(name: str, *, with_vectors: Any = lambda a: True) -> Judge:
    """V·diag(w)·Vᵀ = A, w ascending, V orthonormal."""

    def product(evidence: Evidence) -> Array:
        w, v = (wide(array) for array in evidence.got)
        return np.asarray((v * w[..., None, :]) @ transposed(v))

    source = _symmetric(name)
    vectors = rules.every(rules.orthonormal(_output(1)), rules.reconstructs(product, source))
    return Judge(rules={0: rules.spectrum(source), 1: rules.where(with_vectors, vectors)})


def _sided(d: Draw) -> TensorSpec:
    side = d.choose(3, 1, 2, 4, 7, 8, 17, 0)
    return d.tensor((*_lead(d), side, side), domain=d.choose(between(-1.0, 1.0), between(-100.0, 100.0)))


def _triangle(d: Draw) -> Any:
    return d.maybe(lambda: d.choose("L", "U"))


@ops.case("linalg_eigh", dtypes=FULL_FLOATS, judge=_eigh("self"))
def eigh(d: Draw) -> Arguments:
    return {"self": _sided(d), "UPLO": _triangle(d)}


@ops.case("_linalg_eigh", dtypes=FULL_FLOATS, judge=_eigh("A", with_vectors=lambda a: a.get("compute_v", True)))
def eigh_kernel(d: Draw) -> Arguments:
    return {"A": _sided(d), "UPLO": _triangle(d), "compute_v": d.maybe(d.boolean)}


EIGENVALUES = rules.eigenvalues(_given("self"))


@ops.case(
    "linalg_eig",
    dtypes=FULL_FLOATS,
    judge=Judge(rules={0: EIGENVALUES, 1: rules.eigenvectors(_given("self"), values=0)}),
)
@ops.case("linalg_eigvals", "_linalg_eigvals", dtypes=FULL_FLOATS, judge=Judge(rules={0: EIGENVALUES}))
def eigenvalues(d: Draw) -> Arguments:
    return {"self": _sided(d)}


# LU and LDL. A dominant diagonal is the pivot throughout, so that the factors are unique.


def _determinants(scratch: Sequence[int]) -> Judge:
    """Accept any factors, which serve autograd: of the matrix or its transpose, as it lies in memory."""
    return Judge(rules=dict.fromkeys(scratch, anything))


@ops.case("_linalg_det", dtypes=FULL_FLOATS, judge=_determinants((1, 2)))
@ops.case("_linalg_slogdet", dtypes=FULL_FLOATS, judge=_determinants((2, 3)))
def determinant(d: Draw) -> Arguments:
    return {"A": _square(d)}


@ops.case("linalg_lu_factor_ex", dtypes=FULL_FLOATS)
def lu_factor_checked(d: Draw) -> Arguments:
    return {"A": _square(d), "pivot": d.choose(OMIT, True), "check_errors": d.maybe(d.boolean)}


@ops.case("_lu_with_info", dtypes=FULL_FLOATS)
def lu_with_info(d: Draw) -> Arguments:
    return {"self": _square(d), "pivot": d.choose(OMIT, True), "check_errors": d.maybe(d.boolean)}


def _solver(d: Draw) -> tuple[tuple[int, ...], TensorSpec, TensorSpec]:
    """Batch dims, factors in one matrix, and row exchanges."""
    lead = _lead(d)
    factors = _square(d, lead)
    side = factors.shape[-1]
    return lead, factors, d.tensor((*lead, side), "int32", ("pivots", side, 1))


def _right(d: Draw, lead: tuple[int, ...], side: int, *, left: bool = True) -> TensorSpec:
    columns = d.size(high=5)
    shape = (*lead, side, columns) if left else (*lead, columns, side)
    return d.tensor(shape, domain=between(-4.0, 4.0))


@ops.case("lu_solve", dtypes=FULL_FLOATS)
def solve_lu_classic(d: Draw) -> Arguments:
    lead, factors, pivots = _solver(d)
    return {"self": _right(d, lead, factors.shape[-1]), "LU_data": factors, "LU_pivots": pivots}


@ops.case("linalg_lu_solve", dtypes=FULL_FLOATS)
def solve_lu(d: Draw) -> Arguments:
    lead, factors, pivots = _solver(d)
    left = d.choose(OMIT, True, False)
    right = _right(d, lead, factors.shape[-1], left=left is not False)
    return {"LU": factors, "pivots": pivots, "B": right, "left": left, "adjoint": d.maybe(d.boolean)}


@ops.case("lu_unpack", dtypes=FULL_FLOATS, judge=EXACT)
def lu_unpack(d: Draw) -> Arguments:
    lead = _lead(d)
    m, n = d.choose(3, 1, 2, 4, 7), d.choose(3, 1, 2, 4, 7)
    rank = min(m, n)
    return {
        "LU_data": d.tensor((*lead, m, n)),
        "LU_pivots": d.tensor((*lead, rank), "int32", ("pivots", rank, 1)),
        "unpack_data": d.maybe(d.boolean),
        "unpack_pivots": d.maybe(d.boolean),
    }


def _upper_open(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """The compact form is in the lower triangle; PyTorch documents nothing of the rest."""
    above = np.triu(np.ones(expected[0].shape, dtype=bool), 1)
    return [above, *(None,) * (len(expected) - 1)]


LDL = Judge(undefined=Allowance("the triangle that PyTorch says nothing of", _upper_open))


@ops.case("linalg_ldl_factor", dtypes=FULL_FLOATS, judge=LDL)
def ldl_factor(d: Draw) -> Arguments:
    return {"self": _square(d, symmetric=True), "hermitian": d.maybe(d.boolean)}


@ops.case("linalg_ldl_factor_ex", dtypes=FULL_FLOATS, judge=LDL)
def ldl_factor_checked(d: Draw) -> Arguments:
    return {**ldl_factor(d), "check_errors": d.maybe(d.boolean)}


@ops.case("linalg_ldl_solve", dtypes=FULL_FLOATS)
def solve_ldl(d: Draw) -> Arguments:
    lead = _lead(d)
    factors = _square(d, lead)
    side = factors.shape[-1]
    # Exchanges would have to fit the factors, unlike those of LU.
    pivots = d.tensor((*lead, side), "int32", ("pivots", side, 0))
    return {"LD": factors, "pivots": pivots, "B": _right(d, lead, side), "hermitian": d.maybe(d.boolean)}


@ops.case("_linalg_solve_ex", dtypes=FULL_FLOATS, judge=Judge(rules={1: anything, 2: anything}))
def solve_kernel(d: Draw) -> Arguments:
    lead = _lead(d)
    matrix = _square(d, lead)
    left, side = d.choose(OMIT, True, False), matrix.shape[-1]
    right = _right(d, lead, side, left=left is not False)
    if not lead and left is not False and d.boolean():
        right = d.tensor((side,), domain=between(-4.0, 4.0))
    return {"A": matrix, "B": right, "left": left, "check_errors": d.maybe(d.boolean)}


# Least squares


def _condition(matrices: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.linalg.cond(wide(matrices)))


def _least_squares(evidence: Evidence, output: int) -> Mask:
    a, b = wide(evidence.arguments["self"]), wide(evidence.arguments["b"])
    got, expected = wide(evidence.got[output]), wide(evidence.expected[output])
    if not got.size:
        return np.zeros(got.shape, dtype=bool)
    b, got, expected = (x if x.ndim == a.ndim else x[..., None] for x in (b, got, expected))
    kappa, size = _condition(a), np.linalg.norm(a, 2, axis=(-2, -1))
    length = np.linalg.norm(expected, axis=-2)
    residual = np.linalg.norm(a @ expected - b, axis=-2)
    error = rules.backward_error(a.shape, str(evidence.got[output].dtype))
    kappa, size = kappa[..., None], size[..., None]
    bound = 2.0 * error * kappa * (2.0 * length + (kappa + 1.0) * residual / size)
    wrong = ~(np.abs(got - expected) <= bound[..., None, :])
    return np.asarray(wrong).reshape(evidence.got[output].shape)


def _residuals(evidence: Evidence, output: int) -> Mask:
    a, b = wide(evidence.arguments["self"]), wide(evidence.arguments["b"])
    got, expected = wide(evidence.got[output]), wide(evidence.expected[output])
    b = b if b.ndim == a.ndim else b[..., None]
    if not got.size:
        return np.zeros(got.shape, dtype=bool)
    error = rules.backward_error(a.shape, str(evidence.got[output].dtype))
    bound = 2.0 * error * _condition(a)[..., None] * (b**2).sum(-2)
    return np.asarray(~(np.abs(got - expected) <= bound.reshape(got.shape)))


def _values(evidence: Evidence, output: int) -> Mask:
    if not evidence.got[output].size:
        return np.zeros(evidence.got[output].shape, dtype=bool)
    return rules.spectrum(_given("self"))(evidence, output)


@ops.case(
    "linalg_lstsq",
    dtypes=FULL_FLOATS,
    judge=Judge(rules={0: _least_squares, 1: _residuals, 2: equal, 3: _values}),
)
def least_squares(d: Draw) -> Arguments:
    # Blocks with a dominant diagonal, one below another: full rank, and as well conditioned as one of them.
    lead, side, blocks = _lead(d), d.choose(3, 1, 2, 4), d.choose(1, 2, 3)
    matrix = d.tensor((*lead, blocks * side, side), None, ("dominant", side, 0), contiguous=blocks > 1)
    columns = () if not lead and d.boolean() else (d.size(1, 5),)
    return {
        "self": matrix,
        "b": d.tensor((*lead, blocks * side, *columns), domain=between(-4.0, 4.0)),
        "rcond": d.maybe(lambda: d.choose(1e-6, 1e-3), none=True),
        "driver": d.choose(OMIT, None, "gelsy", "gels", "gelsd", "gelss"),
    }
