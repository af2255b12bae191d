"""What a wrong element tells of how it was computed: PyTorch's number, and the backend's."""

from __future__ import annotations

import math

#: An integer that had no room in a smaller dtype.
NARROW = "narrow"
#: A float64 number or an integer as exact as one of float32.
DIGITS = "digits"
#: The same, where the graph is known to have a cast that causes it.
CAST = "cast"
#: One that is exact in another degree, as where most of it cancels out, or little of it is in question.
CANCELLED = "cancelled"
#: A number of fewer digits that is near the right one.
INEXACT = "inexact"
#: The first or the last integer of a dtype: a float was none of them on the way.
THROUGH_INTEGERS = "through integers"
#: A number of which arithmetic makes none, by leaving its range or otherwise, and one that float32 lacks.
LEFT, BEYOND = "left", "beyond"
#: NaN that is a number here. Arithmetic that is put another way has an infinity.
LOST = "lost"

_EXACT_DTYPES = frozenset({"float64", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"})
#: How much a float64 result is off, relatively, that was rounded to float32 on the way.
_LEAST, _MOST = 2.0**-36, 2.0**-20
#: A few roundings of a float64 about 1.
_ROUNDING_OF_ONE = 2.0**-50
#: How much a result is off that is inexact, and not another; a formula that is not stable loses digits in all
#: dtypes, of which float16 and bfloat16 have few.
_NEAR = 2.0**-5
#: Up to this all whole numbers are numbers of float64.
_EXACT = 2.0**53
#: What a cast gives for NaN, infinities and large numbers, and how exactly it is recognised.
_ENDS, _TOLD = (2.0**31, 2.0**63), 2.0**-8
_LARGEST_FLOAT32 = 2.0**128


def wrong_element(right: object, wrong: object, dtype: str) -> str:
    """The kind of a wrong element; "" where it says nothing.

    Args:
        right: PyTorch's number.
        wrong: The backend's.
        dtype: Of the output.
    """
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in (right, wrong)):
        return ""
    r, w = float(right), float(wrong)  # type: ignore[arg-type]
    if any(abs(abs(w) - end) <= _TOLD * end and not abs(r) < end for end in _ENDS):
        return THROUGH_INTEGERS
    if not (math.isfinite(r) and math.isfinite(w)):
        return _of_infinite(r, w)
    if _is_wrapped(r, w):
        return NARROW
    # No shorter dtype than these has so many digits.
    return _of_number(r, w, is_exact=dtype in _EXACT_DTYPES)


def _of_infinite(right: float, wrong: float) -> str:
    if math.isnan(right) and math.isfinite(wrong):
        return LOST
    if not math.isfinite(right):
        return ""
    return BEYOND if math.isinf(wrong) and abs(right) >= _LARGEST_FLOAT32 else LEFT


def _of_number(right: float, wrong: float, *, is_exact: bool) -> str:
    off = abs(right - wrong)
    size = max(abs(right), abs(wrong))
    # What is left of numbers about 1 is off by a rounding of these.
    if is_exact and off > _ROUNDING_OF_ONE and _LEAST * size <= off <= _MOST * size:
        return DIGITS
    # Where next to nothing is left of numbers about 1, what is wrong with them is.
    if 0 < off <= _NEAR * size or size <= _MOST:
        return CANCELLED if is_exact else INEXACT
    return ""


def _is_wrapped(right: float, wrong: float) -> bool:
    """Whether a number has the last bits of another, as where an integer in it had no room for more."""
    if wrong == 0 or not abs(right) < _EXACT:
        return False
    return any(
        (right - wrong) % 2**bits == 0 and low <= wrong < low + 2**bits and not low <= right < low + 2**bits
        for bits in (8, 16, 32)
        for low in (0, -(2 ** (bits - 1)))
    )
