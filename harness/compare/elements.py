"""Infer from a wrong element and PyTorch's how it was computed."""

from __future__ import annotations

import math

#: An integer that did not fit into a smaller dtype.
NARROW = "narrow"
#: A float64 number or an integer that is only as exact as float32.
DIGITS = "digits"
#: The same, where the graph is known to contain a cast that causes it.
CAST = "cast"
#: A number whose exactness cannot be determined, because most of it cancels out or little of it differs.
CANCELLED = "cancelled"
#: A number with fewer digits, near the right one.
INEXACT = "inexact"
#: The first or last integer of a dtype: a float was converted to an integer that could not hold it.
THROUGH_INTEGERS = "through integers"
#: An infinity or NaN in place of a finite number; the second where float32 cannot hold the right number.
LEFT, BEYOND = "left", "beyond"
#: Zero in place of a number that is too small for float32.
UNDER = "under"
#: A finite number in place of NaN. Rearranged arithmetic would give an infinity.
LOST = "lost"

_EXACT_DTYPES = frozenset({"float64", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"})
#: The relative error of a float64 result that was rounded to float32 on the way.
_LEAST, _MOST = 2.0**-36, 2.0**-20
#: A few roundings of a float64 near 1.
_ROUNDING_OF_ONE = 2.0**-50
#: Largest relative error of a result that is inexact rather than different. An unstable formula loses digits in all
#: dtypes, and float16 and bfloat16 have few.
_NEAR = 2.0**-5
#: Up to this number float64 represents every integer.
_EXACT = 2.0**53
#: The results of a cast for NaN, infinities and large numbers, and the tolerance for recognising them.
_ENDS, _TOLD = (2.0**31, 2.0**63), 2.0**-8
_LARGEST_FLOAT32, _SMALLEST_FLOAT32 = 2.0**128, 2.0**-149


def wrong_element(right: object, wrong: object, dtype: str) -> str:
    """Return the kind of a wrong element; "" if it reveals nothing.

    Args:
        right: PyTorch's number.
        wrong: The backend's number.
        dtype: The output's dtype.
    """
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in (right, wrong)):
        return ""
    r, w = float(right), float(wrong)  # type: ignore[arg-type]
    if any(abs(abs(w) - end) <= _TOLD * end and not abs(r) < end for end in _ENDS):
        return THROUGH_INTEGERS
    if not (math.isfinite(r) and math.isfinite(w)):
        return _kind_of_infinite(r, w)
    if _is_wrapped(r, w):
        return NARROW
    # Only these dtypes have enough digits to tell.
    return _kind_of_finite(r, w, is_exact=dtype in _EXACT_DTYPES)


def _kind_of_infinite(right: float, wrong: float) -> str:
    if math.isnan(right) and math.isfinite(wrong):
        return LOST
    if not math.isfinite(right):
        return ""
    return BEYOND if math.isinf(wrong) and abs(right) >= _LARGEST_FLOAT32 else LEFT


def _kind_of_finite(right: float, wrong: float, *, is_exact: bool) -> str:
    off = abs(right - wrong)
    size = max(abs(right), abs(wrong))
    if wrong == 0 and 0 < abs(right) < _SMALLEST_FLOAT32:
        return UNDER
    # The rest of numbers near 1 after cancellation differs by a rounding of those numbers.
    if is_exact and off > _ROUNDING_OF_ONE and _LEAST * size <= off <= _MOST * size:
        return DIGITS
    # If almost nothing remains of numbers near 1, the cancellation explains the error.
    if 0 < off <= _NEAR * size or size <= _MOST:
        return CANCELLED if is_exact else INEXACT
    return ""


def _is_wrapped(right: float, wrong: float) -> bool:
    """Whether `wrong` has the last bits of `right`, as if an integer on the way had no room for more."""
    if wrong == 0 or not abs(right) < _EXACT:
        return False
    return any(
        (right - wrong) % 2**bits == 0 and low <= wrong < low + 2**bits and not low <= right < low + 2**bits
        for bits in (8, 16, 32)
        for low in (0, -(2 ** (bits - 1)))
    )
