"""Output rules for factorisations, whose factors are not unique: signs, phases and orders are open.

A computed factorisation is right if it is one of a matrix near the one that was given: its factors multiply
to it, and are orthogonal, triangular or normalised as they should be. How near is the backward error that
the textbook algorithms are proven to have,

    ‖A − product‖_F ≤ p·u·‖A‖_F    and    ‖QᵀQ − I‖_F ≤ p·u,    p = 4·m·n·√max(m, n)

for an m × n matrix and the unit roundoff u = 2⁻ᵖʳᵉᶜⁱˢⁱᵒⁿ: γ̃ₘₙ·√n for Householder QR (Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed., theorem 19.4, where γ̃ hides a small constant, here 4), and "a
modestly growing function of the dimensions" for symmetric and general eigenproblems and singular values
(LAPACK Users' Guide, 3rd ed., §4.7 to §4.9). What follows from a perturbation of that size is

- of a singular value, or an eigenvalue of a symmetric matrix, at most its norm (Weyl);
- of an eigenvalue of another matrix, at most its norm times the condition of the eigenvectors (Bauer and
Fike);
- of the solution of a least-squares problem, ε·κ·(2 + (κ + 1)·‖r‖ / (‖A‖·‖x‖)) relative to it (Wedin; Higham,
  theorem 20.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from cases.rules.right_answers import equal
from harness.compare.judge import Evidence, Mask, OutputRule
from harness.core.dtypes import PARTS, PRECISION, Array

#: From a case's evidence, one array with a matrix in its last two dims.
Matrices: TypeAlias = Callable[[Evidence], Array]


def backward_error(shape: tuple[int, ...], dtype: str) -> float:
    """p·u for matrices of `shape`."""
    m, n = shape[-2:]
    return 4.0 * max(m * n, 1) * math.sqrt(max(m, n, 1)) * 2.0 ** -PRECISION[PARTS.get(dtype, dtype)]


def wide(array: Array) -> Array:
    """Convert an array to float64, complex numbers to complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def complex_of(pairs: Array) -> Array:
    """Return complex128 numbers from pairs of real and imaginary part in the last dim."""
    parts = wide(pairs)
    return np.asarray(parts[..., 0] + 1j * parts[..., 1])


def transposed(array: Array) -> Array:
    """Exchange the last two dims."""
    return np.swapaxes(array, -1, -2)


def _norm(matrices: Array) -> Array:
    return np.asarray(np.sqrt((np.abs(matrices) ** 2).sum((-2, -1))))


def _spread(wrong: Array, shape: tuple[int, ...]) -> Mask:
    """A verdict per matrix as one per element of an output of `shape`."""
    wrong = np.asarray(wrong, dtype=bool)
    return np.broadcast_to(wrong.reshape(wrong.shape + (1,) * (len(shape) - wrong.ndim)), shape)


def _dtype(evidence: Evidence, output: int) -> str:
    return str(evidence.got[output].dtype)


def every(*rules: OutputRule) -> OutputRule:
    """Combine rules: an element is wrong if any of `rules` rejects it."""

    def rule(evidence: Evidence, output: int) -> Mask:
        wrong = np.zeros(evidence.got[output].shape, dtype=bool)
        for one in rules:
            wrong = wrong | one(evidence, output)
        return wrong

    return rule


def where(asked: Callable[[Mapping[str, Any]], bool], rule: OutputRule) -> OutputRule:
    """`rule` where the arguments ask for this output; else it is what PyTorch puts in its place."""

    def judged(evidence: Evidence, output: int) -> Mask:
        return rule(evidence, output) if asked(evidence.arguments) else equal(evidence, output)

    return judged


def reconstructs(product: Matrices, source: Matrices) -> OutputRule:
    """The factors multiply to the matrix that was given."""

    def rule(evidence: Evidence, output: int) -> Mask:
        given, made = source(evidence), product(evidence)
        bound = backward_error(given.shape, _dtype(evidence, output)) * _norm(given)
        return _spread(~(_norm(made - given) <= bound), evidence.got[output].shape)

    return rule


def same_gram(factor: Matrices, source: Matrices) -> OutputRule:
    """RᵀR = AᵀA, as it must be where Q is not returned. If Q·R = A + E, then RᵀR − AᵀA = AᵀE + EᵀA + EᵀE, to
    which the departure of QᵀQ from I adds as much."""

    def rule(evidence: Evidence, output: int) -> Mask:
        given, r = source(evidence), factor(evidence)
        bound = 4.0 * backward_error(given.shape, _dtype(evidence, output)) * _norm(given) ** 2
        error = _norm(transposed(r) @ r - transposed(given) @ given)
        return _spread(~(error <= bound), evidence.got[output].shape)

    return rule


def orthonormal(matrices: Matrices) -> OutputRule:
    """Columns are orthonormal, or rows where there are fewer of them."""

    def rule(evidence: Evidence, output: int) -> Mask:
        q = matrices(evidence)
        q = q if q.shape[-2] >= q.shape[-1] else transposed(q)
        error = _norm(transposed(np.conj(q)) @ q - np.eye(q.shape[-1]))
        bound = backward_error(q.shape, _dtype(evidence, output))
        return _spread(~(error <= bound), evidence.got[output].shape)

    return rule


def upper_triangular(evidence: Evidence, output: int) -> Mask:
    """Zeros below the diagonal."""
    got = wide(evidence.got[output])
    return np.asarray(np.tril(got, -1) != 0)


def spectrum(source: Matrices) -> OutputRule:
    """Singular values, or eigenvalues of a symmetric matrix, in PyTorch's order; PyTorch's err as much."""

    def rule(evidence: Evidence, output: int) -> Mask:
        given = source(evidence)
        bound = 2.0 * backward_error(given.shape, _dtype(evidence, output)) * _norm(given)
        apart = np.abs(wide(evidence.got[output]) - wide(evidence.expected[output]))
        return np.asarray(~(apart <= bound[..., None]))

    return rule


def eigenvalues(source: Matrices) -> OutputRule:
    """Eigenvalues in any order, as pairs of reals: each one of the true ones is near one of them."""

    def rule(evidence: Evidence, output: int) -> Mask:
        given, got = source(evidence), complex_of(evidence.got[output])
        wrong = np.zeros(got.shape[:-1], dtype=bool)
        for place in np.ndindex(wrong.shape):
            true, vectors = np.linalg.eig(given[place])
            bound = 2.0 * backward_error(given.shape, _dtype(evidence, output)) * _norm(given[place])
            wrong[place] = _unmatched(got[place], true, bound * np.linalg.cond(vectors)) if true.size else False
        return _spread(wrong, evidence.got[output].shape)

    return rule


def _unmatched(got: Array, true: Array, bound: float) -> bool:
    """Whether no assignment by nearness brings every one of `got` within `bound` of its own one of `true`."""
    left = list(got)
    for value in true:
        nearest = min(range(len(left)), key=lambda i: abs(left[i] - value))
        if not abs(left.pop(nearest) - value) <= bound:
            return True
    return False


def eigenvectors(source: Matrices, *, values: int) -> OutputRule:
    """Columns of length 1, as pairs of reals, which the matrix scales by output `values`."""

    def rule(evidence: Evidence, output: int) -> Mask:
        given, vectors = source(evidence), complex_of(evidence.got[output])
        scales = complex_of(evidence.got[values])[..., None, :]
        bound = backward_error(given.shape, _dtype(evidence, output))
        wrong = ~(_norm(given @ vectors - vectors * scales) <= bound * _norm(given) * _norm(vectors))
        length = np.sqrt((np.abs(vectors) ** 2).sum(-2))
        wrong |= ~(np.abs(length - 1.0) <= bound).all(-1)
        return _spread(wrong, evidence.got[output].shape)

    return rule


def householder(reflectors: Array, tau: Array, columns: int | None = None) -> Array:
    """H₁·H₂⋯, Hᵢ = I − τᵢ·vᵢ·vᵢᵀ, with vᵢ below the diagonal of column i and 1 on it (LAPACK's `orgqr`).

    Args:
        reflectors: (…, m, n), float64.
        tau: (…, k), float64.
        columns: How many to return; all m by default.
    """
    rows = reflectors.shape[-2]
    lead = reflectors.shape[:-2]
    q = np.broadcast_to(np.eye(rows), (*lead, rows, rows)).copy()
    for i in reversed(range(tau.shape[-1])):
        v = reflectors[..., :, i].copy()
        v[..., :i], v[..., i] = 0.0, 1.0
        row = np.einsum("...i,...ij->...j", v, q)
        q -= tau[..., i, None, None] * v[..., :, None] * row[..., None, :]
    return q[..., : rows if columns is None else columns]


def within(amplification: Callable[[Mapping[str, Any]], Array], shape_of: str) -> OutputRule:
    """Accept results near PyTorch's, within the differences between stable algorithms.

    Args:
        amplification: Returns the factor of backward errors, one number per matrix, from the arguments.
        shape_of: Name of the argument whose dimensions the error grows with.
    """

    def rule(evidence: Evidence, output: int) -> Mask:
        got, expected = wide(evidence.got[output]), wide(evidence.expected[output])
        error = backward_error(evidence.arguments[shape_of].shape, _dtype(evidence, output))
        bound = 2.0 * error * np.asarray(amplification(evidence.arguments))
        bound = bound.reshape(bound.shape + (1,) * (got.ndim - bound.ndim))
        return np.asarray(~(np.abs(got - expected) <= np.broadcast_to(bound, got.shape)))

    return rule
