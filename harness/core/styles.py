"""Styles of values: how the numbers of a test tensor are picked.

Most styles leave to chance which element holds what. A planned style, a word with parameters such as ``facing 1 5``,
decides it, so that the tensors of one call fit together: operands whose special values meet, a single special value in
the whole call, elements that equal a Scalar of the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from harness.core.captured_values import Raw, Values, below, unit
from harness.core.dtypes import INT_RANGE, PRECISION, is_float

#: Smallest and largest exponent of a normal number.
EXPONENTS = {"float64": (-1022, 1023), "float32": (-126, 127), "float16": (-14, 15), "bfloat16": (-126, 127)}

#: Where exp overflows, where it underflows to zero, and where sigmoid and tanh round to one: log(max),
#: log(smallest subnormal), p·ln 2 for sigmoid and about half of it for tanh. Two numbers each, one on either side,
#: to three digits: the neighbourhood matters, not the exact point.
SATURATION = {
    "float64": (709.7, 709.9, -744.4, -745.2, 36.0, 37.5, 18.5, 19.5),
    "float32": (88.7, 88.8, -87.3, -103.9, -104.0, 16.5, 17.5, 8.5, 9.5),
    "float16": (11.0, 11.1, -9.7, -17.3, -17.4, 7.5, 8.5, 3.9, 4.5),
    "bfloat16": (88.5, 89.0, -87.5, -92.0, -92.5, 5.5, 6.5, 2.8, 3.5),
}


@cache
def special_floats(dtype: str) -> tuple[float, ...]:
    """Return values of `dtype` at which floating-point code goes wrong; exactly representable but for the decimals."""
    p = PRECISION[dtype]
    low, high = EXPONENTS[dtype]
    eps, tiny = 2.0 ** (1 - p), 2.0**low
    largest = (2.0 - eps) * 2.0**high
    positive = [0.0, 1.0, float("inf"), 0.5, 1.5, 2.5, 0.1, 0.7, 1.0 + eps, 1.0 - eps / 2]
    positive += [eps, tiny, tiny * (1 - eps), tiny * eps, largest, largest / 2]
    # Halves are exact below 2^(p-1) and integers below 2^p, where rounding changes character.
    positive += [2.0 ** (p - 1) - 0.5, 2.0 ** min(p, high), 2.0 ** min(24, high) + 2.0]
    positive += [2.0 ** min(bits, high) for bits in (31, 53, 63)]
    # NaN and infinities are repeated since conversions go wrong there most, and a tensor has few elements.
    non_finite = (float("nan"),) * 14 + (float("inf"), float("-inf")) * 4
    edges = (0.0, -0.0, largest, -largest, tiny * eps)
    return (*non_finite, *edges, *positive, *(-v for v in positive), *SATURATION[dtype])


@cache
def special_ints(dtype: str) -> tuple[int, ...]:
    """Return integers at the limits of `dtype` and of the floats that conversions pass them through."""
    low, high = INT_RANGE[dtype]
    edges = {0, 1, -1, 2, -2, 3, -3, 7, -7, low, low + 1, high, high - 1}
    for bits in (8, 15, 16, 24, 31, 32, 53):
        edges |= {2**bits, 2**bits - 1, 2**bits + 1, -(2**bits), -(2**bits) - 1}
    return tuple(sorted((v for v in edges if low <= v <= high), key=lambda v: (abs(v), v < 0)))


@cache
def special_numbers(dtype: str) -> tuple[float, ...]:
    """Return all special values of `dtype`, each once; both zeros, but one NaN."""
    if dtype == "bool":
        return (False, True)
    return tuple({repr(v): v for v in (special_floats(dtype) if is_float(dtype) else special_ints(dtype))}.values())


@cache
def facing_numbers(dtype: str, *, few: bool = False) -> tuple[float, ...]:
    """Return special values for operands to hold pairs of, a prime number of them.

    There are thirteen for a floating-point dtype; `few` gives seven, most of whose pairs fit into small tensors.
    """
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
    """Return special values for a tensor to hold one of; NaN twice, since NaN is lost unnoticed most often."""
    if dtype == "bool":
        return (True, False)
    if not is_float(dtype):
        low, high = INT_RANGE[dtype]
        return (low, high, 0, -1) if low else (high, 0, high - 1, high // 2 + 1)
    nan, inf, largest = float("nan"), float("inf"), largest_float(dtype)
    return (nan, inf, -0.0, -inf, largest, nan, smallest_float(dtype), -largest)


def largest_float(dtype: str) -> float:
    """Return the largest finite number of `dtype`."""
    return (2.0 - 2.0 ** (1 - PRECISION[dtype])) * 2.0 ** EXPONENTS[dtype][1]


def smallest_float(dtype: str) -> float:
    """Return the smallest positive number of `dtype`, which is subnormal."""
    return 2.0 ** EXPONENTS[dtype][0] * 2.0 ** (1 - PRECISION[dtype])


def pick(raw: Raw, table: tuple[Any, ...], kind: type) -> Values:
    """Return random elements of `table`."""
    return np.array(table, dtype=kind)[below(raw, len(table))]


def plain(raw: Raw, dtype: str) -> Values:
    """Ordinary values: floats in [-4, 4), integers of one digit."""
    if is_float(dtype):
        return unit(raw) * 8.0 - 4.0
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    low, high = INT_RANGE[dtype]
    low, high = max(low, -9), min(high, 9)
    # Without the dtype, mixing these with the special values of uint64 would turn both into floats.
    return (below(raw, high - low + 1) + low).astype(np.uint64 if dtype == "uint64" else np.int64)


def special(raw: Raw, dtype: str) -> Values:
    """Special values; NaN and infinities are the most frequent."""
    if is_float(dtype):
        return pick(raw, special_floats(dtype), np.float64)
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    return pick(raw, special_ints(dtype), np.uint64 if dtype == "uint64" else np.int64)


def mixed(raw: Raw, dtype: str) -> Values:
    """Ordinary values, about one in four replaced by a special one."""
    return np.where((raw >> np.uint64(60)) < 4, special(raw, dtype), plain(raw >> np.uint64(3), dtype))


def one(raw: Raw, dtype: str) -> Values:
    """Ordinary values but for one special value: the first, the last, or any."""
    values = plain(raw, dtype)
    if values.size:
        kind, place = divmod(int(raw[0] >> np.uint64(32)), values.size)
        # Kernels start and end at the ends, so these are chosen as often as all other places.
        place = (0, values.size - 1, place, place)[kind // 3 % 4]
        # NaN is what kernels most often lose unnoticed, and there is just one special element.
        values[place] = np.nan if is_float(dtype) and kind % 3 == 0 else special(raw[:1] >> np.uint64(7), dtype)[0]
    return values


def wide(raw: Raw, dtype: str) -> Values:
    """Every magnitude of the dtype, each power of two being equally likely."""
    if is_float(dtype):
        low, high = EXPONENTS[dtype]
        exponent = below(raw >> np.uint64(33), high - low + 1) + low
        sign = np.where(raw & np.uint64(1), -1.0, 1.0)
        return sign * np.ldexp(1.0 + unit(raw), exponent.astype(np.int32))
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    bits = 64 if dtype == "uint64" else INT_RANGE[dtype][1].bit_length()
    shift = (raw >> np.uint64(58)) % np.uint64(bits) + np.uint64(64 - bits)
    magnitude = (raw >> shift).astype(np.uint64 if dtype == "uint64" else np.int64)
    if INT_RANGE[dtype][0] == 0:
        return magnitude
    return np.where(raw & np.uint64(1), -magnitude, magnitude)


def halves(raw: Raw, dtype: str) -> Values:
    """Multiples of a half: ties of rounding."""
    if is_float(dtype):
        # The sign is drawn separately, so that both zeros occur.
        return below(raw, 17) * 0.5 * np.where(raw >> np.uint64(63), -1.0, 1.0)
    return plain(raw, dtype)


def tied(raw: Raw, dtype: str) -> Values:
    """Few distinct values, for ties of sorting, zeros and equal comparisons."""
    if is_float(dtype):
        return (below(raw, 5) - 2).astype(np.float64)
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    return below(raw, 4) - (0 if INT_RANGE[dtype][0] == 0 else 1)


def decimals(raw: Raw, dtype: str) -> Values:
    """Tenths, which binary floats do not hold exactly: 0.3 / 0.1 is not 3."""
    if is_float(dtype):
        return (below(raw, 81) - 40) / 10.0
    return plain(raw, dtype)


def saturating(raw: Raw, dtype: str) -> Values:
    """Magnitudes around which exp, sigmoid and tanh overflow, vanish or round to one."""
    if is_float(dtype):
        near = pick(raw, SATURATION[dtype], np.float64)
        return near * np.where(raw & np.uint64(1 << 40), 1.0, -1.0) * (1.0 + (unit(raw) - 0.5) / 64)
    return wide(raw, dtype)


#: Styles that leave to chance which element holds what. Stored recipes have these names.
STYLES: dict[str, Callable[[Raw, str], Values]] = {
    style.__name__: style for style in (plain, mixed, special, one, wide, halves, tied, decimals, saturating)
}

#: Styles, repeated in proportion to how often they are drawn. Ordinary values lead: one NaN floods a reduction, and
#: most wrong operators are wrong on ordinary values too.
STYLE_WEIGHTS: tuple[str, ...] = (
    *("plain",) * 6,
    *("mixed",) * 3,
    *("one",) * 2,
    *("special", "wide", "halves", "tied", "tied", "decimals", "saturating"),
)


#: Smallest and largest number that the domain allows; None for any.
Limits: TypeAlias = tuple[float, float] | None
Number: TypeAlias = bool | int | float


def _ordinary(raw: Raw, dtype: str, limits: Limits) -> Values:
    if limits is None:
        return plain(raw, dtype)
    low, high = limits
    if is_float(dtype):
        return unit(raw) * (high - low) + low
    return below(raw, int(high) - int(low) + 1) + int(low)


@cache
def _allowed(numbers: tuple[Number, ...], dtype: str, limits: Limits) -> Values:
    """Return those of `numbers` that lie within the limits, and the limits and their middle."""
    if limits is not None:
        low, high = limits
        if dtype == "uint64":
            # A narrower unsigned dtype wraps a negative number; NumPy would reject it for uint64.
            low = max(low, 0)
        middle = (low + high) / 2 if is_float(dtype) else (int(low) + int(high)) // 2
        ends = (low, high) if is_float(dtype) else (int(low), int(high))
        numbers = (*(n for n in numbers if low <= n <= high), *ends, middle)
    return np.array(numbers, dtype=_kind(dtype))


def _kind(dtype: str) -> type:
    if is_float(dtype):
        return np.float64
    return bool if dtype == "bool" else np.uint64 if dtype == "uint64" else np.int64


def facing(raw: Raw, dtype: str, limits: Limits, slope: int, shift: int, few: int, *given: Number) -> Values:
    """Special values in turn, all or `few`, and numbers near the `given` ones.

    Let k be how many there are, a prime. Two tensors with different slopes have every pair within k² elements, and k
    pairs within k.
    """
    numbers = _with(given, _allowed(facing_numbers(dtype, few=bool(few)), dtype, limits), dtype, limits)
    place = np.arange(len(raw))
    values: Values = numbers[(place + slope * (place // len(numbers)) + shift) % len(numbers)]
    return values


def every(raw: Raw, dtype: str, limits: Limits, shift: int, *given: Number) -> Values:
    """All special values in turn, and numbers near the `given` ones."""
    numbers = _with(given, _allowed(special_numbers(dtype), dtype, limits), dtype, limits)
    return numbers[(np.arange(len(raw)) + shift) % len(numbers)]


def alone(raw: Raw, dtype: str, limits: Limits, which: int, place: int, ties: int) -> Values:
    """Ordinary values but for one: the first (0), the last (1) or any other (2). With `ties`, few distinct values."""
    values = tied(raw, dtype).astype(_kind(dtype)) if ties and limits is None else _ordinary(raw, dtype, limits)
    numbers = _allowed(lone_numbers(dtype), dtype, limits)
    if len(values):
        anywhere = int(raw[0] >> np.uint64(32)) % len(values)
        values[(0, len(values) - 1, anywhere)[place]] = numbers[which % len(numbers)]
    return values


def equal(raw: Raw, dtype: str, limits: Limits, which: int) -> Values:
    """The same number in all elements: an ordinary one (0) or a special one."""
    numbers = _allowed(facing_numbers(dtype), dtype, limits)
    number = numbers[(which - 1) % len(numbers)] if which else _ordinary(raw[:1], dtype, limits)
    return np.resize(number, len(raw))


def row(raw: Raw, dtype: str, limits: Limits, which: int, run: int) -> Values:
    """Ordinary values but for `run` consecutive elements, which hold one special value."""
    values = _ordinary(raw, dtype, limits)
    numbers = _allowed(lone_numbers(dtype), dtype, limits)
    if len(values):
        start = int(raw[0] >> np.uint64(32)) % -(-len(values) // max(run, 1)) * run
        values[start : start + run] = numbers[which % len(numbers)]
    return values


def ordered(raw: Raw, dtype: str, limits: Limits, direction: int) -> Values:
    """Ordinary values, ascending, or descending with a `direction` of -1."""
    return np.sort(_ordinary(raw, dtype, limits))[::direction]


def hot(raw: Raw, dtype: str, limits: Limits, number: int) -> Values:
    """One element holds `number`, 0 or 1, and all others the opposite."""
    numbers = _allowed((1 - number, number), dtype, limits)
    values = np.resize(numbers[0], len(raw))
    if len(values):
        values[int(raw[0] >> np.uint64(32)) % len(values)] = numbers[1]
    return values


def alternating(raw: Raw, dtype: str, limits: Limits, phase: int) -> Values:
    """1 and -1 in turn; 1 and 0 in a dtype without negative numbers."""
    opposite = -1 if is_float(dtype) or (dtype in INT_RANGE and INT_RANGE[dtype][0]) else 0
    numbers = _allowed((1, opposite), dtype, limits)[:2]
    return numbers[(np.arange(len(raw)) + phase) % len(numbers)]


def near(raw: Raw, dtype: str, limits: Limits, *given: Number) -> Values:
    """Every second element is one of the `given` numbers or an adjacent one."""
    values = _ordinary(raw, dtype, limits)
    numbers = _with(given, _allowed((), dtype, None), dtype, limits)
    if len(values):
        count = len(values[::2])
        values[::2] = numbers[(np.arange(count) + int(raw[0] >> np.uint64(40))) % len(numbers)]
    return values


#: Small multiples of it are exact in float64, in which they are computed.
_LARGEST_DIVISOR = 2**40


def multiples(raw: Raw, dtype: str, limits: Limits, role: int, *given: Number) -> Values:
    """Divisors (0), or multiples of them and adjacent numbers (1), where quotients and remainders jump.

    The divisors are the `given` numbers; without any, tenths, or integers of one digit. In tensors of one seed each
    multiple has its divisor at its place.
    """
    is_floating = is_float(dtype)
    usable = [n for n in given if n and (is_floating or float(n).is_integer()) and abs(n) <= _LARGEST_DIVISOR]
    digits = below(raw >> np.uint64(40), 39 if is_floating else 9) + 1
    divisors = (
        np.resize(np.array(usable, dtype=np.float64), len(raw)) if usable else digits / (10 if is_floating else 1)
    )
    values = divisors
    if role:
        aside = (below(raw >> np.uint64(20), 4) % 3) - 1
        times = below(raw >> np.uint64(10), 17) - (8 if is_floating or INT_RANGE.get(dtype, (0,))[0] else 0)
        values = divisors * times
        values = values * (1.0 + aside * 2.0 ** (1 - PRECISION[dtype])) if is_floating else values + aside
    if not is_floating:
        values = np.clip(values, *INT_RANGE.get(dtype, (0, 1)))
    return (values if limits is None else np.clip(values, *limits)).astype(_kind(dtype))


def large(raw: Raw, dtype: str, limits: Limits, which: int) -> Values:
    """Odd integers just above 2²⁴ (0), 2⁵³ (1) or 2³¹ (2), which narrower floats round and narrower integers wrap.

    A dtype that does not hold so many has those up to its last power of two that is followed by odd integers.
    """
    if dtype == "bool":
        return _ordinary(raw, dtype, limits)
    most = PRECISION[dtype] - 1 if is_float(dtype) else INT_RANGE[dtype][1].bit_length() - 1
    start = 2 ** min((24, 53, 31)[which % 3], most)
    values: Values = (2 * below(raw >> np.uint64(20), 16) + 1 + start).astype(_kind(dtype))
    if is_float(dtype) or INT_RANGE[dtype][0]:
        values = np.where(raw & np.uint64(1), -values, values)
    return values if limits is None else np.clip(values, *limits).astype(_kind(dtype))


def _with(given: tuple[Number, ...], others: Values, dtype: str, limits: Limits) -> Values:
    return np.concatenate([*(_near(repr(number), dtype, limits) for number in given), others])


@cache
def _near(text: str, dtype: str, limits: Limits) -> Values:
    # Cached by text, since True and 1.0 equal 1 and NaN does not equal itself.
    around = _neighbours(_number(text), dtype)
    inside = tuple(n for n in around if limits is None or limits[0] <= n <= limits[1])
    return np.array(inside or (limits or around)[:1], dtype=_kind(dtype))


def _neighbours(number: Number, dtype: str) -> tuple[Number, ...]:
    """Return `number` converted to `dtype` and the numbers adjacent to it."""
    if dtype == "bool":
        return (bool(number), bool(number), not number)
    if dtype in INT_RANGE:
        if not math.isfinite(number):
            return INT_RANGE[dtype]
        low, high = INT_RANGE[dtype]
        whole = sorted({math.floor(number), math.ceil(number)})
        around = (*whole, *whole, whole[0] - 1, whole[-1] + 1, -whole[0])
        return tuple(n for n in around if low <= n <= high) or (low if number < low else high,)
    if math.isnan(number):
        return (math.nan,)
    if abs(number) > largest_float(dtype):
        far = math.copysign(math.inf, number)
        return (far, far, -far, math.copysign(largest_float(dtype), number))
    return _floats_around(float(number), dtype)


def _floats_around(number: float, dtype: str) -> tuple[float, ...]:
    # Rounds by arithmetic because NumPy has no bfloat16.
    least, precision = EXPONENTS[dtype][0] + 1, PRECISION[dtype]
    step = math.ldexp(1.0, max(math.frexp(number)[1], least) - precision)
    same = round(number / step) * step if number else number
    mantissa, exponent = math.frexp(same)
    step = math.ldexp(1.0, max(exponent, least) - precision)
    # Numbers are closer together just below a power of two.
    inward = step / 2 if abs(mantissa) == 0.5 and exponent > least else step
    outward = same + math.copysign(step, same)
    inside = (outward,) if abs(outward) <= largest_float(dtype) else ()
    return (same, *inside, same - math.copysign(inward, same), same, -same)


def _number(text: str) -> Number:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return float(text)


#: Name → planned style; called with the raw words, dtype, limits and the style's parameters.
PLANNED: dict[str, Callable[..., Values]] = {
    style.__name__: style
    for style in (facing, every, alone, equal, row, ordered, hot, alternating, near, multiples, large)
}


@cache
def planned(style: str) -> Callable[[Raw, str, Limits], Values] | None:
    """Return the planned style that a recipe names, with its parameters bound; None if the style is not planned.

    Raises:
        KeyError: The style is unknown.
    """
    word, *texts = style.split()
    if not texts:
        return None
    function, parameters = PLANNED[word], [_number(text) for text in texts]
    return lambda raw, dtype, limits: function(raw, dtype, limits, *parameters)
