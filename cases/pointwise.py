"""Elementwise functions of one tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cases.rules.undefined_elements import saturated
from harness.compare.judge import CLOSE, EQUAL, EXACT, IEEE, Allowance, Judge, Mask
from harness.core.dtypes import ALL, FLOATS, FULL_FLOATS, INTEGRAL, NUMBERS, Array
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Family

ops = Family("pointwise")

#: Special functions without kernels for the narrow floats.
NO_HALF = (*FULL_FLOATS, *INTEGRAL)


def _interval_end(d: Draw) -> Any:
    return d.choose(OMIT, None, 0.1, 1e-6, 0.0, 0.5, 0.7, 1.0, -1.0)


def _replacement(d: Draw) -> Any:
    return d.maybe(lambda: d.float(edges=True), none=True)


for names, complex_judge in (
    (("abs", "absolute"), CLOSE),
    # PyTorch's vector kernel makes 0 of the opposite of 0, and its scalar one -0.
    (("neg", "negative"), Judge(tolerances=EQUAL.tolerances, reason="changing a sign rounds nothing")),
):
    ops.simple(
        *names,
        dtypes=NUMBERS,
        judge=Judge(
            exact=True,
            signed_zeros=True,
            alternatives=saturated(lambda a: abs(a["self"])),
            complex_judge=complex_judge,
        ),
    )
ops.simple("positive", "ceil", "floor", "round", "trunc", "fix", dtypes=NUMBERS, judge=EXACT)
ops.simple("sgn", "sign", "signbit", dtypes=ALL, judge=EXACT)
ops.simple(
    "frac",
    dtypes=FLOATS,
    # The documented x - floor(|x|)·sgn(x) and the kernel's x - trunc(x) differ in the sign of zero.
    judge=Judge(tolerances=EQUAL.tolerances, reason="taking off the integral part rounds nothing"),
)
ops.simple("sqrt", dtypes=ALL, judge=IEEE)
ops.simple(
    "reciprocal",
    dtypes=ALL,
    judge=Judge(signed_zeros=True, complex_judge=Judge(terms=lambda a: 1.0 / abs(a["self"]))),
)
ops.simple(
    "square",
    dtypes=ALL,
    judge=Judge(signed_zeros=True, alternatives=saturated(lambda a: a["self"] * a["self"])),
)
ops.simple("deg2rad", "rad2deg", "rsqrt", dtypes=ALL)
ops.simple(
    "round.decimals",
    dtypes=FLOATS,
    judge=IEEE,
    decimals=lambda d: d.choose(0, 1, 2, -1, 3, -2, 5),
)
ops.simple(
    "special_round",
    dtypes=FLOATS,
    judge=IEEE,
    decimals=lambda d: d.choose(OMIT, 0, 1, 2, -1, 3, -2, 5),
)

ops.simple("sin", "cos", "tan", "asin", "acos", "atan", "arcsin", "arccos", "arctan", dtypes=ALL)
ops.simple("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "arcsinh", "arccosh", "arctanh", dtypes=ALL)
ops.simple("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "sinc", "angle", dtypes=ALL)
ops.simple("erf", "erfc", "erfinv", "lgamma", "digamma", "i0", dtypes=ALL)
ops.simple("logit", "special_logit", dtypes=ALL, eps=_interval_end)

#: A kernel sums a series term by term up from its argument: fractions far below zero take it hours.
NOT_FAR_BELOW = ("at_least", -64.0)
ops.simple(
    *("polygamma", "special_polygamma"),
    dtypes=ALL,
    n=lambda d: d.integer(0, 4),
    self=lambda d: d.tensor(d.shape(), domain=NOT_FAR_BELOW),
)
ops.simple("mvlgamma", "special_multigammaln", dtypes=NUMBERS, p=lambda d: d.integer(1, 4))
ops.simple(
    "nan_to_num",
    dtypes=ALL,
    judge=EXACT,
    nan=_replacement,
    posinf=_replacement,
    neginf=_replacement,
)

ops.simple(
    *("special_erf", "special_erfc", "special_erfinv", "special_exp2", "special_expit", "special_expm1"),
    *("special_log1p", "special_sinc", "special_digamma", "special_psi", "special_gammaln", "special_entr"),
    *("special_i0", "special_i0e", "special_i1", "special_i1e", "special_ndtr"),
    dtypes=ALL,
)
ops.simple(
    *("special_airy_ai", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1"),
    *("special_modified_bessel_i0", "special_modified_bessel_i1", "special_modified_bessel_k0"),
    *("special_modified_bessel_k1", "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1"),
    *("special_spherical_bessel_j0", "special_erfcx", "special_log_ndtr", "special_ndtri"),
    dtypes=NO_HALF,
)


def _frexp_undefined(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """The exponent of NaN and infinities, which C leaves unspecified (C17 7.12.6.4)."""
    return [None, ~np.isfinite(arguments["self"])]


ops.simple(
    "frexp.Tensor",
    dtypes=FLOATS,
    judge=Judge(exact=True, undefined=Allowance("the exponent of an infinity or NaN", _frexp_undefined)),
)
