"""Output rules for gamma and Dirichlet variates, tested as `harness.compare.drawn.Fit` describes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cases.rules.random_draws import distributed
from harness.compare.drawn import DistributionTest, Fit
from harness.compare.judge import Evidence, Mask, OutputRule
from harness.core.dtypes import PRECISION, Array

#: Terms of the series and of the continued fraction: enough for arguments below 100.
_TERMS = 400


def gamma_cdf(shape: Array, x: Array) -> Array:
    """The regularised lower incomplete gamma function P(a, x), by its series (DLMF 8.11.4), float64.

    Args:
        shape: a > 0, below about 10.
        x: Any number; P is 0 below 0, and 1 from 100 on.
    """
    a, x = np.broadcast_arrays(shape, np.clip(x, 0.0, 100.0))
    term = 1.0 / a
    total = term.copy()
    for n in range(1, _TERMS):
        term = term * x / (a + n)
        total += term
    log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])(a)
    with np.errstate(all="ignore"):
        scale = np.exp(a * np.log(x) - x - log_gamma)
    return np.asarray(np.where(x > 0, np.clip(total * scale, 0.0, 1.0), 0.0))


def beta_cdf(a: Array, b: Array, x: Array) -> Array:
    """The regularised incomplete beta function I(x; a, b), by its power series (DLMF 8.17.8), float64.

    The series converges for x < 1 and is taken on the side of the mean where x is at most about a half:
    I(x; a, b) = 1 − I(1 − x; b, a).
    """
    a, b, x = np.broadcast_arrays(a, b, np.clip(x, 0.0, 1.0))
    turned = x > a / (a + b)
    a, b, x = np.where(turned, b, a), np.where(turned, a, b), np.where(turned, 1.0 - x, x)
    # x^a·(1 − x)^b / (a·B(a, b)) · Σ (a + b)ₙ / (a + 1)ₙ · xⁿ
    term = np.ones_like(x)
    total = term.copy()
    for n in range(_TERMS):
        term = term * (a + b + n) / (a + 1.0 + n) * x
        total += term
    lgamma = np.vectorize(math.lgamma, otypes=[np.float64])
    with np.errstate(all="ignore"):
        logs = a * np.log(x) + b * np.log1p(-x) + lgamma(a + b) - lgamma(a) - lgamma(b) - np.log(a)
        value = np.where(x > 0, total * np.exp(logs), 0.0)
    return np.asarray(np.clip(np.where(turned, 1.0 - value, value), 0.0, 1.0))


def gamma(shape: str) -> OutputRule:
    """Gamma variates of rate 1; `shape` names the argument that holds their shape parameters."""

    def distribution(a: Mapping[str, Any], x: Array, spacing: Array) -> tuple[Array, Array, Mask]:
        parameter = a[shape].astype(np.float64)
        below, upto = gamma_cdf(parameter, x - spacing), gamma_cdf(parameter, x + spacing)
        return below, upto, ~(np.isfinite(x) & (x >= 0))

    return distributed(distribution)


def dirichlet(concentration: str) -> OutputRule:
    """Dirichlet variates along the last dim: each row adds up to 1, and the first of its elements, which is
    independent of the other rows, has the distribution Beta(α₀, Σα − α₀)."""

    @DistributionTest
    def rule(evidence: Evidence, output: int) -> Fit:
        got = evidence.got[output]
        x, alpha = got.astype(np.float64), evidence.arguments[concentration].astype(np.float64)
        unit = 2.0 ** -PRECISION[str(got.dtype)]
        wrong = ~((x >= 0) & (x <= 1.0 + 4.0 * unit))
        # Each of n elements is rounded when it is divided by their sum, which n − 1 additions rounded before.
        n = x.shape[-1]
        wrong = wrong | (np.abs(x.sum(-1, keepdims=True) - 1.0) > 2.0 * n * unit)
        if n < 2 or not x.size:
            return Fit(impossible=np.asarray(wrong))
        first, rest = alpha[..., 0], alpha[..., 1:].sum(-1)
        below, upto = (beta_cdf(first, rest, x[..., 0] + side * 4.0 * unit) for side in (-1, 1))
        return Fit(impossible=np.asarray(wrong), below=below.ravel(), upto=upto.ravel())

    return rule
