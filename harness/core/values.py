"""Tensor values from recipes: which numbers a test tensor holds.

Every value comes from the raw stream of NumPy's PCG64, which NumPy keeps stable across versions
and machines (NEP 19; its distributions are not kept), by integer arithmetic, scaling by powers of
two and IEEE rounding. No transcendental function takes part: libm differs between machines, and a
recipe must give the same bits everywhere.

A *domain* says which values the operator allows in that argument, a *style* how to pick among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from harness.core.captured_values import (
    CAPTURED,
    Raw,
    Values as Values,
    below as _below,
    raw_stream,
    unit as _unit,
)
from harness.core.dtypes import INT_RANGE, PRECISION, is_float
from harness.core.invocation import Recipe

#: Smallest and largest exponent of a normal number.
_EXPONENTS = {"float64": (-1022, 1023), "float32": (-126, 127), "float16": (-14, 15), "bfloat16": (-126, 127)}

#: Where exp overflows, where it underflows to zero, where sigmoid and tanh round to one: log(max),
#: log(smallest subnormal), and p·ln 2 for sigmoid, about half of it for tanh; to three digits on either
#: side, since the neighbourhood matters and not the point.
_SATURATION = {
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
    low, high = _EXPONENTS[dtype]
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
    return (*non_finite, *edges, *positive, *(-v for v in positive), *_SATURATION[dtype])


@cache
def special_ints(dtype: str) -> tuple[int, ...]:
    """Integers at the edges of `dtype` and of the floats that conversions send them through."""
    low, high = INT_RANGE[dtype]
    edges = {0, 1, -1, 2, -2, 3, -3, 7, -7, low, low + 1, high, high - 1}
    for bits in (8, 15, 16, 24, 31, 32, 53):
        edges |= {2**bits, 2**bits - 1, 2**bits + 1, -(2**bits), -(2**bits) - 1}
    return tuple(sorted((v for v in edges if low <= v <= high), key=lambda v: (abs(v), v < 0)))


def _pick(raw: Raw, table: tuple[Any, ...], kind: type) -> Values:
    return np.array(table, dtype=kind)[_below(raw, len(table))]


def _plain(raw: Raw, dtype: str) -> Values:
    if is_float(dtype):
        return _unit(raw) * 8.0 - 4.0
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    low, high = INT_RANGE[dtype]
    low, high = max(low, -9), min(high, 9)
    # Mixed with the specials of uint64 signed integers would become floats.
    return (_below(raw, high - low + 1) + low).astype(np.uint64 if dtype == "uint64" else np.int64)


def _special(raw: Raw, dtype: str) -> Values:
    if is_float(dtype):
        return _pick(raw, special_floats(dtype), np.float64)
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    return _pick(raw, special_ints(dtype), np.uint64 if dtype == "uint64" else np.int64)


def _mixed(raw: Raw, dtype: str) -> Values:
    """Specials among ordinary values, about one in four."""
    return np.where((raw >> np.uint64(60)) < 4, _special(raw, dtype), _plain(raw >> np.uint64(3), dtype))


def _one(raw: Raw, dtype: str) -> Values:
    """A single special value among ordinary ones: the first, the last, or any."""
    values = _plain(raw, dtype)
    if values.size:
        kind, place = divmod(int(raw[0] >> np.uint64(32)), values.size)
        # The ends, where kernels start and where their tails are, as often as the rest.
        place = (0, values.size - 1, place, place)[kind // 3 % 4]
        # What is lost without anyone's noticing is mostly NaN, and one element of one tensor is all there is.
        values[place] = (
            np.nan if is_float(dtype) and kind % 3 == 0 else _special(raw[:1] >> np.uint64(7), dtype)[0]
        )
    return values


def _wide(raw: Raw, dtype: str) -> Values:
    """Every magnitude that the dtype holds, equally likely by order of magnitude."""
    if is_float(dtype):
        low, high = _EXPONENTS[dtype]
        exponent = _below(raw >> np.uint64(33), high - low + 1) + low
        sign = np.where(raw & np.uint64(1), -1.0, 1.0)
        return sign * np.ldexp(1.0 + _unit(raw), exponent.astype(np.int32))
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    bits = 64 if dtype == "uint64" else INT_RANGE[dtype][1].bit_length()
    shift = (raw >> np.uint64(58)) % np.uint64(bits) + np.uint64(64 - bits)
    magnitude = (raw >> shift).astype(np.uint64 if dtype == "uint64" else np.int64)
    if INT_RANGE[dtype][0] == 0:
        return magnitude
    return np.where(raw & np.uint64(1), -magnitude, magnitude)


def _halves(raw: Raw, dtype: str) -> Values:
    """Multiples of a half: ties of rounding."""
    if is_float(dtype):
        # Either zero: a float times a sign.
        return _below(raw, 17) * 0.5 * np.where(raw >> np.uint64(63), -1.0, 1.0)
    return _plain(raw, dtype)


def _tied(raw: Raw, dtype: str) -> Values:
    """Few distinct values: ties of sorting, zeros, equal comparisons."""
    if is_float(dtype):
        return (_below(raw, 5) - 2).astype(np.float64)
    if dtype == "bool":
        return (raw & np.uint64(1)).astype(bool)
    return _below(raw, 4) - (0 if INT_RANGE[dtype][0] == 0 else 1)


def _decimals(raw: Raw, dtype: str) -> Values:
    """Tenths, which no binary float holds: 0.3 / 0.1 is not 3."""
    if is_float(dtype):
        return (_below(raw, 81) - 40) / 10.0
    return _plain(raw, dtype)


def _saturating(raw: Raw, dtype: str) -> Values:
    """Magnitudes around which exp, sigmoid and tanh overflow, vanish or round to one."""
    if is_float(dtype):
        near = _pick(raw, _SATURATION[dtype], np.float64)
        return near * np.where(raw & np.uint64(1 << 40), 1.0, -1.0) * (1.0 + (_unit(raw) - 0.5) / 64)
    return _wide(raw, dtype)


#: Stored recipes have these names.
STYLES: dict[str, Callable[[Raw, str], Values]] = {
    style.__name__.removeprefix("_"): style
    for style in (_plain, _mixed, _special, _one, _wide, _halves, _tied, _decimals, _saturating)
}

#: Styles in the proportion in which they are drawn. Ordinary values lead: one NaN floods a reduction, and
#: an operator that is wrong is mostly wrong on them too.
STYLE_WEIGHTS: tuple[str, ...] = (
    *("plain",) * 6,
    *("mixed",) * 3,
    *("one",) * 2,
    *("special", "wide", "halves", "tied", "tied", "decimals", "saturating"),
)
#: For the values that a structure is drawn again with.
_WITH_SPECIALS = ("mixed", "mixed", "mixed", "one", "one", "one", "one", "special")
_RARE = ("plain", "wide", "halves", "tied", "decimals", "saturating")


def _any(raw: Raw, dtype: str, style: str) -> Values:
    return STYLES[style](raw, dtype)


def _finite(raw: Raw, dtype: str, style: str) -> Values:
    """Neither NaN nor infinite."""
    values = _any(raw, dtype, style)
    return np.where(np.isfinite(values), values, _plain(raw, dtype)) if is_float(dtype) else values


def _at_least(raw: Raw, dtype: str, style: str, low: float) -> Values:
    """Not below `low`, which is at most −4, the least of the plain values; NaN occurs."""
    values = _any(raw, dtype, style)
    return np.where(values < low, _plain(raw, dtype), values)


def _nonzero(raw: Raw, dtype: str, style: str) -> Values:
    """Integer divisors: PyTorch raises on zero. Floats keep theirs."""
    values = _any(raw, dtype, style)
    return values if is_float(dtype) else np.where(values == 0, np.ones_like(values), values)


def _range(raw: Raw, dtype: str, style: str, low: float, high: float) -> Values:
    """In [low, high]; unless plain, one in four is an end, the middle or a special value in between."""
    if not is_float(dtype):
        return _below(raw, int(high) - int(low) + 1) + int(low)
    values = _unit(raw) * (high - low) + low
    if style == "plain":
        return values
    ends = _pick(raw >> np.uint64(5), _specials_within(dtype, low, high), np.float64)
    return np.where((raw >> np.uint64(60)) < 4, ends, values)


@cache
def _specials_within(dtype: str, low: float, high: float) -> tuple[float, ...]:
    """The ends and the middle as often as all special values between them."""
    within = tuple(v for v in special_floats(dtype) if low <= v <= high)
    places = (low, high, (low + high) / 2)
    return (*places * max(len(within) // 3, 1), *within)


def _index(raw: Raw, dtype: str, style: str, size: int) -> Values:
    """In [0, size): repeats and both ends occur."""
    return _below(raw >> np.uint64(7), size)


def _signed_index(raw: Raw, dtype: str, style: str, size: int) -> Values:
    """In [-size, size), as indexing takes it; half of the draws have no negative one."""
    values = _below(raw >> np.uint64(7), size)
    if style == "plain":
        return values
    return values - np.where(raw & np.uint64(1), size, 0)


def _index_or(raw: Raw, dtype: str, style: str, size: int, other: int) -> Values:
    """In [0, size), one in four being `other`: class numbers among which some are to be ignored."""
    values = _below(raw >> np.uint64(7), size)
    return np.where((raw >> np.uint64(60)) < 4, np.full_like(values, other), values)


def _signs(raw: Raw, dtype: str, style: str) -> Values:
    """-1 or 1, as targets of margin losses are."""
    return np.where(raw & np.uint64(1), -1.0, 1.0) if is_float(dtype) else _below(raw, 2) * 2 - 1


def _unique(raw: Raw, dtype: str, style: str, size: int, run: int) -> Values:
    """Indices in [0, size), distinct within each consecutive `run` of storage elements."""
    count = len(raw)
    rows = -(-count // max(run, 1))
    keys = raw_stream(int(raw[0]) if count else 0, rows * size).reshape(rows, size)
    return np.argsort(keys, axis=1, kind="stable")[:, :run].reshape(-1)[:count].astype(np.int64)


def _distinct(raw: Raw, dtype: str, style: str) -> Values:
    """No two equal: orders without ties. Integers need `size` ≤ the dtype's range."""
    ranks = np.empty(len(raw), dtype=np.int64)
    ranks[np.argsort(raw, kind="stable")] = np.arange(len(raw))
    centred = ranks - len(raw) // 2
    if is_float(dtype):
        return centred * 0.25
    return ranks if dtype == "bool" or INT_RANGE[dtype][0] == 0 else centred


def _ascending(raw: Raw, dtype: str, style: str, run: int) -> Values:
    """Sorted within each consecutive `run` of storage elements, as bucket boundaries are."""
    values = _any(raw, dtype, style)
    values = np.where(np.isnan(values), _plain(raw, dtype), values) if is_float(dtype) else values
    padded = np.resize(values, -(-len(values) // max(run, 1)) * max(run, 1)).reshape(-1, max(run, 1))
    return np.sort(padded, axis=1).reshape(-1)[: len(values)]


def _descending(raw: Raw, dtype: str, style: str, run: int) -> Values:
    """Sorted backwards within each consecutive `run` of storage elements: `_countdown` sorts it."""
    padded = np.resize(_ascending(raw, dtype, style, run), -(-len(raw) // max(run, 1)) * max(run, 1))
    return padded.reshape(-1, max(run, 1))[:, ::-1].reshape(-1)[: len(raw)]


def _countdown(raw: Raw, dtype: str, style: str, run: int) -> Values:
    """run - 1 … 0 in each consecutive `run` of storage elements: a sorter for `_descending`."""
    return max(run, 1) - 1 - np.arange(len(raw), dtype=np.int64) % max(run, 1)


def _offsets(raw: Raw, dtype: str, style: str, end: int, closed: int) -> Values:
    """0 first, then ascending up to `end`, which the last one is if `closed`: where bags begin."""
    values = np.sort(_below(raw >> np.uint64(7), end + 1))
    values[:1] = 0
    if closed:
        values[-1:] = end
    return values


def _packed(raw: Raw, dtype: str, style: str, top: int, floor: int) -> Values:
    """top, top - 1 … but not below `floor`: how many sequences of a packed batch last how many steps."""
    return np.maximum(top - np.arange(len(raw), dtype=np.int64), floor)


def _pivots(raw: Raw, dtype: str, style: str, side: int, exchanging: int) -> Values:
    """Row exchanges as LAPACK lists them, for each consecutive `side` rows: row i with row i … side, counted
    from 1; unless `exchanging`, each with itself."""
    place = np.arange(len(raw), dtype=np.int64) % max(side, 1)
    further = (raw >> np.uint64(7)) % (max(side, 1) - place).astype(np.uint64)
    return place + 1 + (further.astype(np.int64) if exchanging else 0)


def _dominant(raw: Raw, dtype: str, style: str, side: int, symmetric: int) -> Values:
    """Consecutive `side` × `side` matrices whose diagonal outweighs the rest, so that they are well
    conditioned; with `symmetric` positive definite, too. Styles of ties have multiples of a half."""
    area = max(side * side, 1)
    entries = _unit(raw) * 2.0 - 1.0
    if style in ("halves", "tied", "special", "mixed"):
        entries = np.round(entries * 2.0) * 0.5
    padded = np.resize(entries, -(-len(raw) // area) * area).reshape(-1, max(side, 1), max(side, 1))
    if symmetric:
        padded = (padded + padded.transpose(0, 2, 1)) * 0.5
    # Adding zero would lose the sign of one.
    diagonal = np.eye(max(side, 1), dtype=bool)
    return np.where(diagonal, padded + (side + 1.0), padded).reshape(-1)[: len(raw)]


#: Domain name → values; called with the raw stream, dtype, style and the domain's parameters. Stored recipes
#: have these names.
DOMAINS: dict[str, Callable[..., Values]] = {
    domain.__name__.removeprefix("_"): domain
    for domain in (
        *(_any, _finite, _at_least, _nonzero, _range, _index, _signed_index, _index_or, _signs),
        *(_unique, _distinct, _ascending, _descending, _countdown, _offsets, _packed, _pivots, _dominant),
    )
} | CAPTURED


def compute(recipe: Recipe, dtype: str, count: int) -> Values:
    """The `count` storage values that `recipe` stands for.

    Returns:
        float64 for floating dtypes (still to be rounded to `dtype`), int64 or uint64 for integers,
        bool for bool; shape ``(count,)``.

    Raises:
        KeyError: an unknown domain or style.
    """
    name, *parameters = recipe.domain
    values = DOMAINS[str(name)](raw_stream(recipe.seed, count), dtype, recipe.style, *parameters)
    return values if dtype != "bool" else values.astype(bool)


def redraw(recipe: Recipe, draw: int) -> Recipe:
    """Another recipe over the same domain: the `draw`-th extra set of values for one structure.

    The first is in a style with special values, the second in one of the others that are rare, the third in
    any, and so on: no structure is left without what its operator may lose.
    """
    seed = int(raw_stream(recipe.seed + draw * 0x9E3779B9, 1)[0] >> np.uint64(32))
    styles = (STYLE_WEIGHTS, _WITH_SPECIALS, _RARE)[draw % 3]
    return Recipe(recipe.domain, styles[seed % len(styles)], seed)
