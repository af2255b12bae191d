"""Styles of values: how the numbers of a test tensor are picked, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.core.captured_values import Raw, Values, below, unit
from harness.core.dtypes import INT_RANGE, is_float
from harness.core.special_values import EXPONENTS, SATURATION, special_floats, special_ints


def pick(raw: Raw, table: tuple[Any, ...], kind: type) -> Values:
    """Any of `table`."""
    return np.array(table, dtype=kind)[below(raw, len(table))]


def plain(raw: Raw, dtype: str) -> Values:
    """Ordinary values: floats in [-4, 4), integers of one digit."""
    if is_float(dtype):
        return unit(raw) * 8.0 - 4.0
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    low, high = INT_RANGE[dtype]
    low, high = max(low, -9), min(high, 9)
    # Mixed with the specials of uint64 signed integers would become floats.
    return (below(raw, high - low + 1) + low).astype(np.uint64 if dtype == "uint64" else np.int64)


def special(raw: Raw, dtype: str) -> Values:
    """Special values, NaN and infinities more often than the others."""
    if is_float(dtype):
        return pick(raw, special_floats(dtype), np.float64)
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    return pick(raw, special_ints(dtype), np.uint64 if dtype == "uint64" else np.int64)


def mixed(raw: Raw, dtype: str) -> Values:
    """Specials among ordinary values, about one in four."""
    return np.where((raw >> np.uint64(60)) < 4, special(raw, dtype), plain(raw >> np.uint64(3), dtype))


def one(raw: Raw, dtype: str) -> Values:
    """A single special value among ordinary ones: the first, the last, or any."""
    values = plain(raw, dtype)
    if values.size:
        kind, place = divmod(int(raw[0] >> np.uint64(32)), values.size)
        # The ends, where kernels start and where their tails are, as often as the rest.
        place = (0, values.size - 1, place, place)[kind // 3 % 4]
        # What is lost without anyone's noticing is mostly NaN, and one element of one tensor is all there is.
        values[place] = np.nan if is_float(dtype) and kind % 3 == 0 else special(raw[:1] >> np.uint64(7), dtype)[0]
    return values


def wide(raw: Raw, dtype: str) -> Values:
    """Every magnitude that the dtype holds, equally likely by order of magnitude."""
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
        # Either zero: a float times a sign.
        return below(raw, 17) * 0.5 * np.where(raw >> np.uint64(63), -1.0, 1.0)
    return plain(raw, dtype)


def tied(raw: Raw, dtype: str) -> Values:
    """Few distinct values: ties of sorting, zeros, equal comparisons."""
    if is_float(dtype):
        return (below(raw, 5) - 2).astype(np.float64)
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    return below(raw, 4) - (0 if INT_RANGE[dtype][0] == 0 else 1)


def decimals(raw: Raw, dtype: str) -> Values:
    """Tenths, which no binary float holds: 0.3 / 0.1 is not 3."""
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

#: Styles in the proportion in which they are drawn. Ordinary values lead: one NaN floods a reduction, and
#: an operator that is wrong is mostly wrong on them too.
STYLE_WEIGHTS: tuple[str, ...] = (
    *("plain",) * 6,
    *("mixed",) * 3,
    *("one",) * 2,
    *("special", "wide", "halves", "tied", "tied", "decimals", "saturating"),
)
