"""Bitwise logic and shifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.compare.judge import EXACT, Allowance, Judge, Mask
from harness.core.dtypes import INT_RANGE, INTEGRAL, INTS, Array
from harness.generate.draw import ANY, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("bitwise")


def _integer(d: Draw) -> int | bool:
    """A Scalar without a fractional part; narrower tensors wrap it."""
    return d.choose(d.boolean(), d.int(edges=True), d.int(edges=True), d.int(edges=True))


ops.simple("bitwise_not", dtypes=INTEGRAL, judge=EXACT)
ops.simple(
    *("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor"),
    *("__and__.Tensor", "__or__.Tensor", "__xor__.Tensor"),
    dtypes=INTEGRAL,
    promote=INTEGRAL,
    judge=EXACT,
)
ops.simple(
    *("bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar"),
    *("__and__.Scalar", "__or__.Scalar", "__xor__.Scalar"),
    dtypes=INTEGRAL,
    other=_integer,
    judge=EXACT,
)
ops.simple(
    *("bitwise_and.Scalar_Tensor", "bitwise_or.Scalar_Tensor", "bitwise_xor.Scalar_Tensor"),
    dtypes=INTEGRAL,
    self=_integer,
    judge=EXACT,
)


def _shift_undefined(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Shifts by less than zero or by the width of the promoted operand or more: "the behavior is undefined"
    (documentation of `torch.bitwise_left_shift` and `torch.bitwise_right_shift`)."""
    result = expected[0]
    by = np.asarray(arguments["other"])
    return [np.broadcast_to((by < 0) | (by >= 8 * result.dtype.itemsize), result.shape)]


SHIFT = Judge(
    exact=True,
    unsettled=Allowance(
        'A shift by less than zero, or by the width or more: "the behavior is undefined" says PyTorch\'s '
        "documentation of shifts, though its kernels fill with the sign.",
        _shift_undefined,
    ),
)


@ops.case(
    *("bitwise_left_shift.Tensor", "bitwise_right_shift.Tensor", "__lshift__.Tensor", "__rshift__.Tensor"),
    dtypes=INTS,
    judge=SHIFT,
)
def shift(d: Draw) -> Arguments:
    return d.operands("self", "other", promote=INTEGRAL, domains={"other": _amount(d)})


@ops.case(
    *("bitwise_left_shift.Tensor_Scalar", "bitwise_right_shift.Tensor_Scalar"),
    *("__lshift__.Scalar", "__rshift__.Scalar"),
    dtypes=INTEGRAL,
    judge=SHIFT,
)
def shift_by_scalar(d: Draw) -> Arguments:
    # A shift of bools has no kernel.
    last = True if d.dtype != "bool" else 1
    return {"self": d.any_tensor(), "other": d.choose(1, 2, 0, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, -1, last)}


@ops.case("bitwise_left_shift.Scalar_Tensor", "bitwise_right_shift.Scalar_Tensor", dtypes=INTEGRAL, judge=SHIFT)
def shift_of_scalar(d: Draw) -> Arguments:
    number = _integer(d)
    if d.dtype == "bool":
        return {"self": int(number), "other": d.any_tensor()}
    return {"self": number, "other": d.tensor(d.shape(), domain=_amount(d))}


def _amount(d: Draw) -> tuple[str | int | float, ...]:
    bits = (INT_RANGE[d.dtype][1] - INT_RANGE[d.dtype][0]).bit_length()
    return d.choose(between(0, bits - 1), between(0, bits - 1), between(0, 7), ANY)
