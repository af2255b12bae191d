"""Comparison, logic and selection between operands, element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.compare.judge import EQUAL, EXACT, Allowance, Judge, Mask
from harness.core.dtypes import ALL, NUMBERS, WIDE_UNSIGNED, Array, is_float
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("comparison")

_ORDERS = ("eq", "ne", "lt", "le", "gt", "ge")
_LONG_NAMES = ("not_equal", "less", "less_equal", "greater", "greater_equal")


def _wrapped(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """All, where a Scalar or a 0-d tensor holds an integer that the dtype of the other operand does not, in
    which PyTorch's type promotion compares: its documentation has none for that, kernels wrap it."""
    pair = np.asarray(arguments["self"]), np.asarray(arguments["other"])
    scalar = not isinstance(arguments["other"], np.ndarray)
    for alone, other in (pair, pair[::-1]):
        decides = other.ndim > 0 or (scalar and other is pair[0])
        if alone.ndim == 0 and decides and alone.dtype.kind in "iu" and other.dtype.kind in "iu":
            limits = np.iinfo(other.dtype)
            if not int(limits.min) <= int(alone) <= int(limits.max):
                return [np.ones(expected[0].shape, dtype=bool)]
    return [None]


_ORDERED = Judge(
    exact=True,
    signed_zeros=True,
    unsettled=Allowance(
        "A Scalar or 0-d tensor holds an integer that the dtype of the other operand does not: kernels wrap "
        "it, and PyTorch's documentation says nothing of it.",
        _wrapped,
    ),
)

ops.simple(
    *(f"{name}.Tensor" for name in (*_ORDERS, *_LONG_NAMES)),
    dtypes=ALL,
    promote=ALL,
    judge=_ORDERED,
)


def _compared(d: Draw) -> Any:
    # Of wide unsigned integers the kernels know equality only, but where a float promotes them.
    return d.choose(d.number(edges=True), abs(d.int())) if d.dtype in WIDE_UNSIGNED else d.number(edges=True)


ops.simple("eq.Scalar", "ne.Scalar", "not_equal.Scalar", dtypes=ALL, judge=_ORDERED, other=_compared)
ops.simple(
    *(f"{name}.Scalar" for name in (*_ORDERS[2:], *_LONG_NAMES[1:])),
    dtypes=ALL,
    judge=_ORDERED,
    other=lambda d: d.number(edges=True),
)
ops.simple("logical_and", "logical_or", "logical_xor", dtypes=ALL, promote=ALL, judge=EXACT)
ops.simple("logical_not", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", dtypes=ALL, judge=EXACT)


def _within_rounding(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Pairs so near to |self − other| = atol + rtol·|other| that rounding in the operands' precision decides:
    the four operations err by at most half a unit each, and 2⁻⁷ is bfloat16's unit."""
    a, b = (np.asarray(arguments[name]) for name in ("self", "other"))
    if a.dtype.kind in "iub":
        unit = 2.0**-23
    else:
        unit = float(np.finfo(a.dtype).eps) if a.dtype.kind == "f" else 2.0**-7
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        distance, allowed = np.abs(a - b), abs(arguments.get("atol", 1e-8))
        allowed = allowed + arguments.get("rtol", 1e-5) * np.abs(b)
        near = np.abs(distance - allowed) <= 2 * unit * np.maximum(distance, allowed)
    return [np.broadcast_to(near & (distance > 0) & np.isfinite(allowed), expected[0].shape)]


@ops.case(
    "isclose",
    dtypes=ALL,
    judge=Judge(exact=True, undefined=Allowance("closeness that rounding decides", _within_rounding)),
)
def isclose(d: Draw) -> Arguments:
    operands = d.operands("self", "other")
    if d.boolean():
        # The same numbers, NaN and infinities too: these are close only to themselves.
        operands["other"] = replace(operands["other"], values=operands["self"].values)
    return {
        **operands,
        "rtol": d.choose(OMIT, OMIT, 1e-5, 0.0, 0.1, 0.5, 1e-3),
        "atol": d.choose(OMIT, OMIT, 1e-8, 0.0, 0.1, 1.0, 1e-3),
        "equal_nan": d.choose(OMIT, True, False),
    }


# Clamping


def _bound(d: Draw) -> bool | int | float | complex:
    # Two bools have no kernel; an int promotes.
    if d.dtype in WIDE_UNSIGNED:
        return d.float(edges=True)
    bound = d.fitting()
    return int(bound) if isinstance(bound, bool) else bound


ops.simple("clamp_min", dtypes=ALL, judge=EQUAL, min=_bound)
ops.simple("clamp_max", dtypes=ALL, judge=EQUAL, max=_bound)


@ops.case("clamp", "clip", dtypes=ALL, judge=EQUAL)
def clamp(d: Draw) -> Arguments:
    return {"self": d.any_tensor(), **_some(d, _bound(d), _bound(d))}


def _some(d: Draw, low: Any, high: Any) -> dict[str, Any]:
    """Draw both bounds or one, the other omitted or None."""
    absent = d.choose(OMIT, None)
    given = d.choose("both", "both", "min", "max")
    return {"min": absent if given == "max" else low, "max": absent if given == "min" else high}


ops.simple("clamp_min.Tensor", "clamp_max.Tensor", dtypes=NUMBERS, promote=ALL, judge=EQUAL)


@ops.case("clamp.Tensor", "clip.Tensor", dtypes=NUMBERS, judge=EQUAL)
def clamp_tensor(d: Draw) -> Arguments:
    operands = d.operands("self", "min", "max", promote=ALL)
    return {"self": operands["self"], **_some(d, operands["min"], operands["max"])}


# Selection


def _condition(d: Draw, *names: str, promote: Sequence[str] = ()) -> dict[str, Any]:
    """`names` and a bool tensor `condition` that broadcast together."""
    operands = d.operands("condition", *names, promote=promote)
    return {**operands, "condition": d.tensor(operands["condition"].shape, "bool")}


@ops.case("where.self", dtypes=ALL, judge=EXACT)
def where(d: Draw) -> Arguments:
    return _condition(d, "self", "other", promote=ALL)


ops.simple("where", dtypes=("bool",), judge=EXACT)


def _scalar(d: Draw) -> Any:
    """A number that the dtype holds, or any other: the result has the dtype that both promote to."""
    return d.number(edges=True) if d.boolean() else d.fitting()


@ops.case("where.ScalarOther", dtypes=ALL, judge=EXACT)
def where_scalar_other(d: Draw) -> Arguments:
    return {**_condition(d, "self"), "other": _scalar(d)}


@ops.case("where.ScalarSelf", dtypes=ALL, judge=EXACT)
def where_scalar_self(d: Draw) -> Arguments:
    return {**_condition(d, "other"), "self": _scalar(d)}


@ops.case("where.Scalar", dtypes=("bool",), judge=EXACT)
def where_scalars(d: Draw) -> Arguments:
    return {"condition": d.any_tensor(), "self": d.number(edges=True), "other": d.number(edges=True)}


def _masked(d: Draw) -> dict[str, Any]:
    operands = d.operands("self", "mask")
    return {"self": operands["self"], "mask": d.tensor(operands["mask"].shape, "bool")}


@ops.case("masked_fill.Scalar", dtypes=ALL, judge=EXACT)
def masked_fill(d: Draw) -> Arguments:
    return {**_masked(d), "value": d.fitting()}


@ops.case("masked_fill.Tensor", dtypes=ALL, judge=EXACT)
def masked_fill_tensor(d: Draw) -> Arguments:
    # The value is converted to the tensor's dtype, which has to hold it.
    other = d.choose(*(("float64", "float16", "int64", "bool") if is_float(d.dtype) else ("bool",)))
    value = d.choose(d.tensor(()), d.tensor((), other, between(0.0, 1.0)))
    return {**_masked(d), "value": value}
