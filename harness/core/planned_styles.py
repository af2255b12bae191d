"""Styles that say of each element what it holds, so that a call has what it is meant to have.

Such a style is a word and its parameters, ``facing 1 5``. Draws of all of a call's tensors together choose
them: two operands whose special values face each other, one special value in the whole call, elements that
equal a Scalar of the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np

from harness.core.captured_values import Raw, Values, below, unit
from harness.core.dtypes import INT_RANGE, PRECISION, is_float
from harness.core.special_values import (
    EXPONENTS,
    facing_numbers,
    largest_float,
    lone_numbers,
    special_numbers,
)
from harness.core.styles import plain, tied

#: Least and largest number that the domain allows; None for all.
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
    """Those of `numbers` that lie within the limits, which are among them."""
    if limits is not None:
        low, high = limits
        middle = (low + high) / 2 if is_float(dtype) else (int(low) + int(high)) // 2
        ends = (low, high) if is_float(dtype) else (int(low), int(high))
        numbers = (*(n for n in numbers if low <= n <= high), *ends, middle)
    return np.array(numbers, dtype=_kind(dtype))


def _kind(dtype: str) -> type:
    if is_float(dtype):
        return np.float64
    return bool if dtype == "bool" else np.uint64 if dtype == "uint64" else np.int64


def facing(raw: Raw, dtype: str, limits: Limits, slope: int, shift: int, few: int, *given: Number) -> Values:
    """Special values in turn, all or `few`, and numbers near the `given` ones. Of k numbers, k being prime,
    two tensors with different slopes hold every pair in k² elements, and k pairs in k."""
    numbers = _with(given, _allowed(facing_numbers(dtype, few=bool(few)), dtype, limits), dtype, limits)
    place = np.arange(len(raw))
    values: Values = numbers[(place + slope * (place // len(numbers)) + shift) % len(numbers)]
    return values


def every(raw: Raw, dtype: str, limits: Limits, shift: int, *given: Number) -> Values:
    """All special values in turn, and numbers near the `given` ones."""
    numbers = _with(given, _allowed(special_numbers(dtype), dtype, limits), dtype, limits)
    return numbers[(np.arange(len(raw)) + shift) % len(numbers)]


def alone(raw: Raw, dtype: str, limits: Limits, which: int, place: int, ties: int) -> Values:
    """Ordinary values but for one: the first (0), the last (1) or any other (2). With `ties` the others are
    few numbers."""
    values = tied(raw, dtype).astype(_kind(dtype)) if ties and limits is None else _ordinary(raw, dtype, limits)
    numbers = _allowed(lone_numbers(dtype), dtype, limits)
    if len(values):
        anywhere = int(raw[0] >> np.uint64(32)) % len(values)
        values[(0, len(values) - 1, anywhere)[place]] = numbers[which % len(numbers)]
    return values


def equal(raw: Raw, dtype: str, limits: Limits, which: int) -> Values:
    """One number in all elements: an ordinary one (0), or a special one."""
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
    """Ordinary values sorted, backwards with a `direction` of -1."""
    return np.sort(_ordinary(raw, dtype, limits))[::direction]


def hot(raw: Raw, dtype: str, limits: Limits, number: int) -> Values:
    """One element holds `number`, 0 or 1, and all others the other one."""
    numbers = _allowed((1 - number, number), dtype, limits)
    values = np.resize(numbers[0], len(raw))
    if len(values):
        values[int(raw[0] >> np.uint64(32)) % len(values)] = numbers[1]
    return values


def alternating(raw: Raw, dtype: str, limits: Limits, phase: int) -> Values:
    """1 and its opposite in turn, which is 0 in a dtype without signs."""
    opposite = -1 if is_float(dtype) or (dtype in INT_RANGE and INT_RANGE[dtype][0]) else 0
    numbers = _allowed((1, opposite), dtype, limits)[:2]
    return numbers[(np.arange(len(raw)) + phase) % len(numbers)]


def near(raw: Raw, dtype: str, limits: Limits, *given: Number) -> Values:
    """Every second element is one of the `given` numbers or next to it."""
    values = _ordinary(raw, dtype, limits)
    numbers = _with(given, _allowed((), dtype, None), dtype, limits)
    if len(values):
        count = len(values[::2])
        values[::2] = numbers[(np.arange(count) + int(raw[0] >> np.uint64(40))) % len(numbers)]
    return values


def _with(given: tuple[Number, ...], others: Values, dtype: str, limits: Limits) -> Values:
    return np.concatenate([*(_near(repr(number), dtype, limits) for number in given), others])


@cache
def _near(text: str, dtype: str, limits: Limits) -> Values:
    # By its text, since True and 1.0 equal 1 and NaN does not equal itself.
    around = _neighbours(_number(text), dtype)
    inside = tuple(n for n in around if limits is None or limits[0] <= n <= limits[1])
    return np.array(inside or (limits or around)[:1], dtype=_kind(dtype))


def _neighbours(number: Number, dtype: str) -> tuple[Number, ...]:
    """What `number` is in `dtype`, and the numbers next to it."""
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
    # No rounding of its own: NumPy has no bfloat16.
    least, precision = EXPONENTS[dtype][0] + 1, PRECISION[dtype]
    step = math.ldexp(1.0, max(math.frexp(number)[1], least) - precision)
    same = round(number / step) * step if number else number
    mantissa, exponent = math.frexp(same)
    step = math.ldexp(1.0, max(exponent, least) - precision)
    # Numbers lie closer below a power of two.
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


#: Word → style; called with the raw stream, dtype, limits and its parameters.
PLANNED: dict[str, Callable[..., Values]] = {
    style.__name__: style for style in (facing, every, alone, equal, row, ordered, hot, alternating, near)
}


@cache
def planned(style: str) -> Callable[[Raw, str, Limits], Values] | None:
    """The style that a recipe names with its parameters; None for one that leaves all to chance.

    Raises:
        KeyError: it is unknown.
    """
    word, *texts = style.split()
    if not texts:
        return None
    function, parameters = PLANNED[word], [_number(text) for text in texts]
    return lambda raw, dtype, limits: function(raw, dtype, limits, *parameters)
