"""Numbers at which kernels go wrong, by dtype."""

from __future__ import annotations

from functools import cache

from harness.core.dtypes import INT_RANGE, PRECISION, is_float

#: Smallest and largest exponent of a normal number.
EXPONENTS = {"float64": (-1022, 1023), "float32": (-126, 127), "float16": (-14, 15), "bfloat16": (-126, 127)}

#: Where exp overflows, where it underflows to zero, where sigmoid and tanh round to one: log(max),
#: log(smallest subnormal), and p·ln 2 for sigmoid, about half of it for tanh; to three digits on either
#: side, since the neighbourhood matters and not the point.
SATURATION = {
    "float64": (709.7, 709.9, -744.4, -745.2, 36.0, 37.5, 18.5, 19.5),
    "float32": (88.7, 88.8, -87.3, -103.9, -104.0, 16.5, 17.5, 8.5, 9.5),
    "float16": (11.0, 11.1, -9.7, -17.3, -17.4, 7.5, 8.5, 3.9, 4.5),
    "bfloat16": (88.5, 89.0, -87.5, -92.0, -92.5, 5.5, 6.5, 2.8, 3.5),
}


@cache
def special_floats(dtype: str) -> tuple[float, ...]:
    """Values at which floating-point code goes wrong, for `dtype`, all exactly representable but the
    decimals, which no binary float holds."""
    p = PRECISION[dtype]
    low, high = EXPONENTS[dtype]
    eps, tiny = 2.0 ** (1 - p), 2.0**low
    largest = (2.0 - eps) * 2.0**high
    positive = [0.0, 1.0, float("inf"), 0.5, 1.5, 2.5, 0.1, 0.7, 1.0 + eps, 1.0 - eps / 2]
    positive += [eps, tiny, tiny * (1 - eps), tiny * eps, largest, largest / 2]
    # Halves are exact below 2^(p-1) and integers below 2^p: rounding changes character here.
    positive += [2.0 ** (p - 1) - 0.5, 2.0 ** min(p, high), 2.0 ** min(24, high) + 2.0]
    positive += [2.0 ** min(bits, high) for bits in (31, 53, 63)]
    # Repeated where conversions go wrong most: a tensor has few elements and a case few draws.
    non_finite = (float("nan"),) * 14 + (float("inf"), float("-inf")) * 4
    edges = (0.0, -0.0, largest, -largest, tiny * eps)
    return (*non_finite, *edges, *positive, *(-v for v in positive), *SATURATION[dtype])


@cache
def special_ints(dtype: str) -> tuple[int, ...]:
    """Integers at the edges of `dtype` and of the floats that conversions send them through."""
    low, high = INT_RANGE[dtype]
    edges = {0, 1, -1, 2, -2, 3, -3, 7, -7, low, low + 1, high, high - 1}
    for bits in (8, 15, 16, 24, 31, 32, 53):
        edges |= {2**bits, 2**bits - 1, 2**bits + 1, -(2**bits), -(2**bits) - 1}
    return tuple(sorted((v for v in edges if low <= v <= high), key=lambda v: (abs(v), v < 0)))


@cache
def special_numbers(dtype: str) -> tuple[float, ...]:
    """All special values of `dtype`, each once: two zeros, one NaN."""
    if dtype == "bool":
        return (False, True)
    return tuple({repr(v): v for v in (special_floats(dtype) if is_float(dtype) else special_ints(dtype))}.values())


@cache
def facing_numbers(dtype: str, *, few: bool = False) -> tuple[float, ...]:
    """Special values of which operands hold pairs, a prime number of them: thirteen of a floating-point
    dtype, or a `few` of which small tensors hold most pairs."""
    if dtype == "bool":
        return (False, True)
    if not is_float(dtype):
        low, high = INT_RANGE[dtype]
        return (0, low, 1, high, -1, 2, low + 1) if low else (0, high, 1, high - 1, 2, high // 2 + 1, 3)
    nan, inf, largest = float("nan"), float("inf"), largest_float(dtype)
    most_important = (nan, 0.0, inf, -1.0, -0.0, largest, -inf)
    if few:
        return most_important
    smallest = smallest_float(dtype)
    return (*most_important, 1.0, smallest, -largest, 0.5, -smallest, 2.5)


@cache
def lone_numbers(dtype: str) -> tuple[float, ...]:
    """Special values that a tensor holds one of, NaN twice: what is lost unnoticed is mostly NaN."""
    if dtype == "bool":
        return (True, False)
    if not is_float(dtype):
        low, high = INT_RANGE[dtype]
        return (low, high, 0, -1) if low else (high, 0, high - 1, high // 2 + 1)
    nan, inf, largest = float("nan"), float("inf"), largest_float(dtype)
    return (nan, inf, -0.0, -inf, largest, nan, smallest_float(dtype), -largest)


def largest_float(dtype: str) -> float:
    """The largest finite number of `dtype`."""
    return (2.0 - 2.0 ** (1 - PRECISION[dtype])) * 2.0 ** EXPONENTS[dtype][1]


def smallest_float(dtype: str) -> float:
    """The smallest positive number of `dtype`, a subnormal one."""
    return 2.0 ** EXPONENTS[dtype][0] * 2.0 ** (1 - PRECISION[dtype])
