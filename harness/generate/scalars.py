"""Python numbers as operator arguments: Scalars, floats and ints that have made exporters stumble."""

from __future__ import annotations

from functools import cache

from harness.core import INT_RANGE, is_float
from harness.generate.shapes import Chooser

_FLOATS = (1.0, 0.5, 2.0, -1.0, 0.0, 1.5, -0.5, 0.1, 3.0, -2.0, -0.0, 0.3, 1e-3, 10.0, 1e4, 2.5)
_EDGE_FLOATS = (float("inf"), float("-inf"), float("nan"), 1e-30, 3.4028234663852886e38, 16777217.0)
_INTS = (1, 2, 3, 0, -1, 5, -2, -3, 7, 10)
_EDGE_INTS = (127, 128, 255, 256, -128, -129, 16777217, 2147483647, -2147483648)
#: Numbers that the dtype tells from their neighbours and a narrower one does not, or that it rounds or
#: holds as its own extremes: what goes through another dtype on its way changes there.
_BEYOND: dict[str, tuple[int | float | complex, ...]] = {
    "complex128": (1j, 0.5 - 2j, -1.5 + 0j, 0.1 + 16777217j, 1e-300j, 0j, 3 + 0.1j),
    "complex64": (1j, 0.5 - 2j, -1.5 + 0j, 0.1 + 2049j, 1e-30j, 0j, 3 + 0.1j),
    "float64": (0.1, 16777217.0, 16777217, 1e-300, -1e300, 9007199254740993, -1 / 3),
    "float32": (0.1, 16777217, 2049.0, -70000.0, 1e-30, -1 / 3),
    "float16": (0.1, 2049, 257.0, 65504.0, -1 / 3, 6e-8),
    "bfloat16": (0.1, 257, 257.0, 1e30, -1 / 3, 1e-30),
    "int64": (9007199254740993, 16777217, 2147483648, -9007199254740993, 2**63 - 1),
    "int32": (16777217, 2147483647, -2147483648, 65536, -16777217),
    "int16": (257, 32767, -32768, 2049),
    "int8": (127, -128, 100),
    "uint8": (255, 128, 200),
    "uint16": (65535, 257, 32768),
    "uint32": (4294967295, 16777217, 2147483648),
    "uint64": (9007199254740993, 2147483648, 16777217),
}


@cache
def beyond(dtype: str, kind: type = object) -> tuple[int | float | complex, ...]:
    """Scalars of a Python type that `dtype` holds and the next narrower one does not; any for one without.

    Of a complex dtype, complex numbers.
    """
    return tuple(number for number in _BEYOND.get(dtype, ()) if isinstance(number, kind)) or (1, 0.5)


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
def fitting(dtype: str) -> tuple[bool | int | float | complex, ...]:
    """Scalars of any Python type that convert to `dtype` without overflow."""
    candidates = (*_INTS, *_FLOATS, *beyond(dtype), *_EDGE_INTS, *_EDGE_FLOATS, True, False)
    return tuple(number for number in candidates if _fits(number, dtype))


def _fits(number: float | complex, dtype: str) -> bool:
    if isinstance(number, complex):
        return True
    if dtype in INT_RANGE:
        low, high = INT_RANGE[dtype]
        return low <= number <= high
    largest = {"float16": 65504.0, "bfloat16": 3.3895e38}.get(dtype, float("inf"))
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
