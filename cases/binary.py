"""Arithmetic and elementwise functions of two or three operands, tensors and Scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cases.rules.undefined_elements import saturated
from harness.compare.judge import CLOSE, EQUAL, EXACT, Allowance, Judge, Mask
from harness.core.dtypes import (
    ALL,
    FLOATS,
    FULL_FLOATS,
    INT_RANGE,
    INTEGRAL,
    INTS,
    NUMBERS,
    PARTS,
    UNSIGNED,
    WIDE_UNSIGNED,
    Array,
    is_float,
)
from harness.core.invocation import Recipe
from harness.generate.draw import ANY, NONZERO, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("binary")

NO_HALF = (*FULL_FLOATS, *INTEGRAL)


def _scalar(d: Draw) -> bool | int | float | complex:
    return d.number(edges=True)


def _unboolean(d: Draw) -> int | float | complex:
    """Subtraction rejects bools."""
    if d.dtype in WIDE_UNSIGNED:
        return d.float(edges=True)
    if d.dtype in PARTS:
        return d.choose(d.like_dtype(), d.float(edges=True), d.int(edges=True))
    return d.choose(d.int(edges=True), d.float(edges=True))


def _multiplier(d: Draw, *operands: Any) -> Any:
    """`alpha` or `value`: integral where all operands are, since a factor may not raise the category."""
    dtypes = {getattr(o, "dtype", type(o).__name__) for o in operands}
    if any(dtype in PARTS or dtype == "complex" for dtype in dtypes):
        return d.maybe(lambda: d.choose(d.like_dtype(), d.float(), d.int()))
    if any(is_float(dtype) or dtype == "float" for dtype in dtypes):
        return d.maybe(lambda: d.choose(d.float(), d.int()))
    factor = d.int()
    return d.maybe(lambda: abs(factor) if dtypes & set(UNSIGNED) else factor)


# Sums and products


def _sum(a: Any) -> Any:
    return a["self"] + a.get("alpha", 1) * a["other"]


def _difference(a: Any) -> Any:
    return a["self"] - a.get("alpha", 1) * a["other"]


def _reverse_difference(a: Any) -> Any:
    return a["other"] - a.get("alpha", 1) * a["self"]


def _terms(exact: Any) -> Any:
    """The sum of the terms' magnitudes: that of absolute operands, the second's sign being turned."""

    def magnitudes(a: Any) -> Any:
        turned = -1 if exact is not _sum else 1
        factor = turned * abs(a.get("alpha", 1))
        return exact({"self": abs(a["self"]), "other": abs(a["other"]), "alpha": factor})

    return magnitudes


for names, dtypes, exact in (
    (("add",), ALL, _sum),
    (("sub", "subtract"), NUMBERS, _difference),
    (("rsub",), NUMBERS, _reverse_difference),
):
    judge = Judge(
        signed_zeros=True,
        alternatives=saturated(exact),
        terms=_terms(exact),
        complex_judge=Judge(terms=_terms(exact)),
    )

    @ops.case(*(f"{name}.Tensor" for name in names), dtypes=dtypes, judge=judge)
    def add_tensor(d: Draw, dtypes: tuple[str, ...] = dtypes) -> Arguments:
        operands = d.operands("self", "other", promote=dtypes)
        return {**operands, "alpha": _multiplier(d, *operands.values())}

    @ops.case(*(f"{name}.Scalar" for name in names), dtypes=dtypes, judge=judge)
    def add_scalar(d: Draw, dtypes: tuple[str, ...] = dtypes) -> Arguments:
        tensor = d.any_tensor()
        other = _scalar(d) if "bool" in dtypes else _unboolean(d)
        return {"self": tensor, "other": other, "alpha": _multiplier(d, tensor, other)}


PRODUCT = Judge(
    signed_zeros=True,
    alternatives=saturated(lambda a: a["self"] * a["other"]),
    complex_judge=Judge(terms=lambda a: abs(a["self"]) * abs(a["other"])),
)
ops.simple("mul.Tensor", "multiply.Tensor", dtypes=ALL, promote=ALL, judge=PRODUCT)
ops.simple("mul.Scalar", "multiply.Scalar", dtypes=ALL, other=_scalar, judge=PRODUCT)


@ops.case(
    "addcmul",
    dtypes=NUMBERS,
    judge=Judge(
        alternatives=saturated(lambda a: a["self"] + a.get("value", 1) * a["tensor1"] * a["tensor2"]),
        terms=lambda a: abs(a["self"]) + abs(a.get("value", 1) * a["tensor1"] * a["tensor2"]),
    ),
)
def addcmul(d: Draw) -> Arguments:
    operands = d.operands("self", "tensor1", "tensor2", promote=(*ALL, "bool", "bool"))
    return {**operands, "value": _multiplier(d, *operands.values())}


@ops.case(
    "addcdiv",
    dtypes=FLOATS,
    judge=Judge(terms=lambda a: abs(a["self"]) + abs(a.get("value", 1) * a["tensor1"] / a["tensor2"])),
)
def addcdiv(d: Draw) -> Arguments:
    # Two integer operands in the quotient are rejected: at most one tensor is promoted.
    operands = d.operands("self", "tensor1", "tensor2", promote=(*ALL, "bool", "bool"))
    return {**operands, "value": _multiplier(d, *operands.values())}


def _lerp_undefined(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Mask the elements at which the documented start + weight·(end - start) and the equal
    end - (end - start)·(1 - weight), which the kernel takes for greater weights, differ by infinities or NaN."""
    with np.errstate(all="ignore"):
        start, end, weight = (
            array if array.dtype.kind == "c" else array.astype(np.float64)
            for array in (np.asarray(arguments[name]) for name in ("self", "end", "weight"))
        )
        documented, other = start + weight * (end - start), end - (end - start) * (1.0 - weight)
    unlike = ~(np.isfinite(documented) & np.isfinite(other)) & (documented != other)
    return [np.asarray(unlike & ~(np.isnan(documented) & np.isnan(other)))]


LERP = Judge(
    terms=lambda a: abs(a["self"]) + abs(a["weight"]) * (abs(a["end"]) + abs(a["self"])),
    undefined=Allowance("infinities that lerp's two formulas disagree on", _lerp_undefined),
)
ops.simple("lerp.Scalar", dtypes=FLOATS, judge=LERP, weight=lambda d: d.choose(d.float(), d.int()))
ops.simple("lerp.Tensor", dtypes=FLOATS, judge=LERP)


# Quotients


def _divisor(d: Draw, dtype: str) -> bool | int | float | complex:
    """A Scalar that is not an integral zero, nor one in `dtype`, which wraps it."""
    number = d.number(edges=True) if dtype in WIDE_UNSIGNED else d.choose(d.number(edges=True), d.int())
    if not isinstance(number, int):
        return number
    modulus = 2 ** int(dtype.lstrip("uint")) if dtype in INT_RANGE else 2**64
    return number if number % modulus else 1


def _mode(d: Draw) -> str | None:
    return d.choose("trunc", "floor", None)


QUOTIENT = Judge(signed_zeros=True, complex_judge=Judge(terms=lambda a: abs(a["self"] / a["other"])))
ops.simple("div.Tensor", "divide.Tensor", "true_divide.Tensor", dtypes=ALL, promote=ALL, judge=QUOTIENT)
ops.simple("div.Scalar", "divide.Scalar", "true_divide.Scalar", dtypes=ALL, other=_scalar, judge=QUOTIENT)


@ops.case("div.Tensor_mode", "divide.Tensor_mode", dtypes=NUMBERS)
def div_mode(d: Draw) -> Arguments:
    # Wide unsigned integers have kernels for the exact quotient alone.
    return {**_dividend_and_divisor(d), "rounding_mode": None if d.dtype in WIDE_UNSIGNED else _mode(d)}


@ops.case("floor_divide", "fmod.Tensor", "remainder.Tensor", dtypes=NUMBERS)
def divide_integrally(d: Draw) -> Arguments:
    return _dividend_and_divisor(d)


def _dividend_and_divisor(d: Draw) -> dict[str, Any]:
    operands = d.operands("self", "other", promote=ALL, domains={"other": NONZERO})
    values = operands["other"].values
    if is_float(operands["self"].dtype) and isinstance(values, Recipe):
        # Among integers alone a division by zero is refused.
        operands["other"] = replace(operands["other"], values=replace(values, domain=ANY))
    return operands


@ops.case("div.Scalar_mode", "divide.Scalar_mode", dtypes=NUMBERS)
def div_mode_scalar(d: Draw) -> Arguments:
    return {**divide_by_scalar(d), "rounding_mode": _mode(d)}


@ops.case("floor_divide.Scalar", "fmod.Scalar", "remainder.Scalar", dtypes=NUMBERS)
def divide_by_scalar(d: Draw) -> Arguments:
    return {"self": d.any_tensor(), "other": _divisor(d, d.dtype)}


@ops.case("remainder.Scalar_Tensor", dtypes=NUMBERS)
def remainder_of_scalar(d: Draw) -> Arguments:
    dividend = _scalar(d)
    # Among integers a division by zero is refused.
    return {
        "self": dividend,
        "other": d.tensor(d.shape(), domain=ANY if isinstance(dividend, float) else NONZERO),
    }


# Powers


def _power(base: str, exponent: str) -> Any:
    def one(b: int, e: int) -> int:
        # Beyond 64 the exponent decides between overflow and bases of magnitude at most 1 by parity alone;
        # negative ones give 0 or ±1.
        return 0 if e < 0 else b ** (64 + e % 2 if e > 64 else e)

    def exact(a: Any) -> Any:
        return np.frompyfunc(one, 2, 1)(a[base], a[exponent])

    def poles(a: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
        # No integer is 0 to a negative power: the reciprocal of zero. Neither PyTorch nor ONNX says a word.
        if expected[0].dtype.kind not in "iu":
            return [None]
        return [np.broadcast_to((np.asarray(a[base]) == 0) & (np.asarray(a[exponent]) < 0), expected[0].shape)]

    return Judge(undefined=Allowance("a negative power of an integral zero", poles), alternatives=saturated(exact))


ops.simple("pow.Tensor_Tensor", dtypes=NUMBERS, promote=ALL, judge=_power("self", "exponent"))
ops.simple("float_power.Tensor_Tensor", dtypes=ALL, promote=ALL)
ops.simple("float_power.Tensor_Scalar", dtypes=ALL, exponent=_scalar)
ops.simple("float_power.Scalar", dtypes=ALL, self=_scalar)


@ops.case("pow.Tensor_Scalar", dtypes=ALL, judge=_power("self", "exponent"))
def pow_scalar(d: Draw) -> Arguments:
    exponent = d.choose(2, 3, 0.5, -1.0, -2.0, 0, 1, -0.5, 1.5, 4, 7, 2.0, 3.0, 0.0, -1, -2, _scalar(d))
    if d.dtype in WIDE_UNSIGNED and isinstance(exponent, int):
        return {"self": d.any_tensor(), "exponent": float(exponent)}
    if d.dtype in INTEGRAL and isinstance(exponent, int):
        # Integers have no negative integer powers, and the exponent must fit the dtype.
        exponent = abs(exponent) % 128
    return {"self": d.any_tensor(), "exponent": exponent}


@ops.case("pow.Scalar", dtypes=ALL, judge=_power("self", "exponent"))
def pow_of_scalar(d: Draw) -> Arguments:
    base = _scalar(d)
    # A power of two bools has no kernel.
    return {"self": int(base) if isinstance(base, bool) else base, "exponent": d.any_tensor()}


# Selection


ops.simple(*("maximum", "minimum", "max.other", "min.other", "fmax", "fmin"), dtypes=ALL, promote=ALL, judge=EQUAL)

# Functions

ops.simple("atan2", "arctan2", dtypes=ALL, promote=ALL)
ops.simple("copysign.Tensor", dtypes=ALL, promote=ALL, judge=EXACT)
ops.simple("copysign.Scalar", dtypes=ALL, other=_scalar, judge=EXACT)
ops.simple("hypot", "logaddexp", "logaddexp2", dtypes=FLOATS, promote=ALL)
ops.simple("nextafter", dtypes=FLOATS, promote=ALL, judge=EXACT)
ops.simple("heaviside", dtypes=ALL, judge=EXACT)
ops.simple("xlogy.Tensor", "special_xlogy", "special_xlog1py", dtypes=ALL, promote=ALL)
ops.simple(
    *("xlogy.Scalar_Other", "special_xlogy.other_scalar", "special_xlog1py.other_scalar"),
    dtypes=ALL,
    other=_scalar,
)
ops.simple(
    *("xlogy.Scalar_Self", "special_xlogy.self_scalar", "special_xlog1py.self_scalar"),
    dtypes=ALL,
    self=_scalar,
)
#: The kernel sums a series term by term up from its second argument: fractions far below zero take it hours.
NOT_FAR_BELOW = ("at_least", -64.0)
ops.simple(
    "special_zeta.self_scalar",
    dtypes=NO_HALF,
    self=_scalar,
    other=lambda d: d.tensor(d.shape(), domain=NOT_FAR_BELOW),
)


@ops.case("special_zeta", dtypes=NO_HALF)
def zeta(d: Draw) -> Arguments:
    return d.operands("self", "other", promote=NO_HALF, domains={"other": NOT_FAR_BELOW})


ops.simple("special_zeta.other_scalar", dtypes=NO_HALF, other=_scalar)
ops.simple("igamma", "igammac", "special_gammainc", "special_gammaincc", dtypes=FLOATS, promote=ALL)


@ops.case("ldexp.Tensor", dtypes=ALL, judge=CLOSE)
def ldexp(d: Draw) -> Arguments:
    return d.operands("self", "other", promote=ALL, domains={"other": d.choose(between(-9, 9), ANY)})


@ops.case("gcd", "lcm", dtypes=INTS)
def gcd(d: Draw) -> Arguments:
    return d.operands("self", "other", promote=INTS)


# Orthogonal polynomials, by recurrence over the degree

_POLYNOMIALS = (
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
)


def _degree(d: Draw) -> int:
    return d.choose(2, 1, 0, 3, 5, 8, -1)


@ops.case(*(f"special_{name}" for name in _POLYNOMIALS), dtypes=NO_HALF)
def polynomial(d: Draw) -> Arguments:
    degrees = between(0 if d.dtype in (*UNSIGNED, "bool") else -1, 1 if d.dtype == "bool" else 9)
    return d.operands("x", "n", promote=("int64", "int32", *FULL_FLOATS), domains={"n": degrees})


ops.simple(*(f"special_{name}.n_scalar" for name in _POLYNOMIALS), dtypes=NO_HALF, n=_degree)


@ops.case(*(f"special_{name}.x_scalar" for name in _POLYNOMIALS), dtypes=NO_HALF)
def polynomial_at_scalar(d: Draw) -> Arguments:
    low, high = (0, 1) if d.dtype == "bool" else (0 if d.dtype in UNSIGNED else -1, 9)
    return {"x": d.number(), "n": d.tensor(d.shape(), domain=between(low, high))}
