"""Python numbers for the Scalars of a call, by how the dtype of its tensors takes them.

A converter that stores a Scalar in a tensor rounds it, cuts it off, or takes it for another kind of number. Which of
these can happen depends on the dtype, so each dtype has its own numbers of each class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import TypeAlias

from harness.core.dtypes import INT_RANGE, LARGEST, PARTS, PRECISION, is_float
from harness.generate.shapes import Chooser

Number: TypeAlias = bool | int | float | complex


class ScalarClass(StrEnum):
    """How a dtype takes a Scalar.

    `PLAIN` is any number, `TELLING` one that the dtype tells from its neighbours and the next narrower one does not.
    """

    PLAIN = "plain"
    TELLING = "telling"
    ROUNDED = "rounded in the dtype"
    BEYOND = "beyond the dtype"
    NEGATIVE = "negative in an unsigned dtype"
    OTHER_KIND = "of another kind than the dtype"


_FLOATS = (1.0, 0.5, 2.0, -1.0, 0.0, 1.5, -0.5, 0.1, 3.0, -2.0, -0.0, 0.3, 1e-3, 10.0, 1e4, 2.5)
_EDGE_FLOATS = (float("inf"), float("-inf"), float("nan"), 1e-30, LARGEST["float32"], 16777217.0)
_INTS = (1, 2, 3, 0, -1, 5, -2, -3, 7, 10)
_EDGE_INTS = (127, 128, 255, 256, -128, -129, 16777217, 2147483647, -2147483648)
#: Numbers that the dtype tells from their neighbours and a narrower one does not, or that it rounds or
#: holds as its own extremes: a conversion to another dtype on the way changes these.
_TELLING: dict[str, tuple[int | float | complex, ...]] = {
    "complex128": (1j, 0.5 - 2j, -1.5 + 0j, 0.1 + 16777217j, 1e-300j, 0j, 3 + 0.1j),
    "complex64": (1j, 0.5 - 2j, -1.5 + 0j, 0.1 + 2049j, 1e-30j, 0j, 3 + 0.1j),
    "float64": (0.1, 16777217.0, 16777217, 1e-300, -1e300, 9007199254740993, -1 / 3),
    "float32": (0.1, 16777217, 2049.0, -70000.0, 1e-30, -1 / 3),
    "float16": (0.1, 2049, 257.0, LARGEST["float16"], -1 / 3, 6e-8),
    "bfloat16": (0.1, 257, 257.0, 1e30, -1 / 3, 1e-30),
    "int64": (9007199254740993, 16777217, 2147483648, -9007199254740993, 2**63 - 1),
    "int32": (16777217, 2147483647, -2147483648, 65536, -16777217),
    "int16": (257, 32767, -32768, 2049),
    "int8": (127, -128, 100),
    "uint8": (255, 128, 200),
    "uint16": (65535, 257, 32768),
    "uint32": (4294967295, 16777217, 2147483648),
    "uint64": (9007199254740993, 2147483648, 16777217),
    "bool": (True, False, 1, 0),
}
#: Numbers that the dtype does not hold.
_OUTSIDE: dict[str, tuple[int | float, ...]] = {
    "float64": (2**53 + 1,),
    "float32": (1e39, 1e-46, 16777217),
    "float16": (70000.0, 1e-8, 1e300),
    "bfloat16": (1e39, 1e-46, 257),
    "int64": (0.5, 2.0**63),
    "int32": (2**31, -2.5, 2**40),
    "int16": (32768, 0.5, 100000),
    "int8": (128, -129, 0.5, 300),
    "uint8": (256, -1, 0.5, -200, -3),
    "bool": (2, -1, 0.5),
}


@cache
def telling(dtype: str) -> tuple[int | float | complex, ...]:
    """Return Scalars that `dtype` holds and the next narrower one does not; any for a dtype without one.

    Of a complex dtype, complex numbers.
    """
    return _TELLING.get(dtype, (1, 0.5))


def floats(*, edges: bool = False) -> tuple[float, ...]:
    """Python floats; with `edges` also NaN, infinities and magnitudes that float32 does not hold."""
    return _FLOATS * 2 + _EDGE_FLOATS if edges else _FLOATS


def ints(*, edges: bool = False) -> tuple[int, ...]:
    """Python ints; with `edges` also those around the limits of narrow dtypes."""
    return _INTS * 2 + _EDGE_INTS if edges else _INTS


def numbers(*, edges: bool = False) -> tuple[bool | int | float, ...]:
    """Scalars: ints, floats and, more rarely, bools, whatever the tensor's dtype, so that type promotion
    is exercised."""
    plain: tuple[bool | int | float, ...] = (*_INTS, *_FLOATS, True, False)
    return (*plain, *_EDGE_INTS[:4], *_EDGE_FLOATS) if edges else plain


@cache
def numbers_by_class(dtype: str, *, edges: bool = False) -> Mapping[ScalarClass, tuple[Number, ...]]:
    """Return the Scalars of each class that has some for `dtype`, plain ones first."""
    known = dict.fromkeys((*_INTS[:4], *_FLOATS, *_OUTSIDE.get(dtype, ())))
    others: tuple[Number, ...] = () if dtype == "bool" else _INTS if is_float(dtype) else _FLOATS
    classes: dict[ScalarClass, tuple[Number, ...]] = {
        ScalarClass.PLAIN: numbers(edges=edges),
        ScalarClass.TELLING: telling(dtype),
        **{
            one: tuple(n for n in known if n not in (0, 1) and scalar_fit(n, dtype) is one)
            for one in (ScalarClass.ROUNDED, ScalarClass.BEYOND, ScalarClass.NEGATIVE)
        },
        ScalarClass.OTHER_KIND: others,
    }
    return {one: members for one, members in classes.items() if members}


def draw_number(d: Chooser, *, edges: bool = False) -> Number:
    """Choose a Scalar of any Python type: a plain one in half of the draws, and each other class as often."""
    classes = numbers_by_class(d.dtype, edges=edges)
    plain = [ScalarClass.PLAIN] * (len(classes) - 2)
    return d.choose(*classes[d.choose(*plain, *classes)])


@cache
def fitting(dtype: str) -> tuple[bool | int | float | complex, ...]:
    """Return Scalars of any Python type that convert to `dtype` without overflow."""
    candidates = (*_INTS, *_FLOATS, *telling(dtype), *_EDGE_INTS, *_EDGE_FLOATS, True, False)
    return tuple(number for number in candidates if _fits(number, dtype))


def _fits(number: float | complex, dtype: str) -> bool:
    if isinstance(number, complex):
        return True
    if dtype in INT_RANGE:
        low, high = INT_RANGE[dtype]
        return low <= number <= high
    largest = LARGEST[dtype] if dtype in ("float16", "bfloat16") else float("inf")
    return not largest < abs(number) < float("inf")


def respelled(d: Chooser, number: object) -> object:
    """Now and then the same number as a Python value of another type, for a Scalar argument.

    To a floating tensor 2 and 2.0 say the same; an exporter sees different types.
    """
    if isinstance(number, float) and number.is_integer() and is_float(d.dtype):
        kind = d.choose("drawn", "drawn", "drawn", "int", "bool")
        if kind == "int":
            return int(number)
        if kind == "bool" and number in (0.0, 1.0):
            return bool(number)
    return number


_LARGEST_EXPONENT = {"float64": 1024, "float32": 128, "float16": 16, "bfloat16": 128}


def scalar_fit(value: int | float, dtype: str) -> ScalarClass:
    """Return how a dtype holds a finite number: `PLAIN` if exactly, or else `ROUNDED`, `BEYOND` or `NEGATIVE`."""
    dtype = PARTS.get(dtype, dtype)
    if dtype in PRECISION:
        if isinstance(value, float):
            significand, exponent = math.frexp(abs(value))
            bits = int(math.ldexp(significand, 53))
        else:
            bits, exponent = abs(value), abs(value).bit_length()
        if exponent > _LARGEST_EXPONENT[dtype]:
            return ScalarClass.BEYOND
        wide = bits and (bits // (bits & -bits)).bit_length() > PRECISION[dtype]
        return ScalarClass.ROUNDED if wide else ScalarClass.PLAIN
    low, high = INT_RANGE.get(dtype, (0, 1))
    if value < 0 and dtype.startswith("uint"):
        return ScalarClass.NEGATIVE
    if not low <= value <= high:
        return ScalarClass.BEYOND
    return ScalarClass.PLAIN if value == int(value) else ScalarClass.ROUNDED
