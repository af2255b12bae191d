"""Tensor values from recipes: which numbers a test tensor holds.

A recipe must give the same bits everywhere. So every value is computed from the raw words of NumPy's PCG64, which are
stable across versions and machines (NEP 19 does not promise that of its distributions), by integer arithmetic, scaling
by powers of two and IEEE rounding, and without transcendental functions, whose results depend on the libm.

A *domain* is the set of values that the operator allows in an argument; a *style* is how to pick among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from harness.core.captured_values import CAPTURED, Raw, Values, below as _below, raw_stream, unit as _unit
from harness.core.dtypes import INT_RANGE, PARTS, is_float
from harness.core.given_values import given_values
from harness.core.invocation import Recipe
from harness.core.styles import STYLES, pick, plain as _plain, planned, special_floats


def _any(raw: Raw, dtype: str, style: str) -> Values:
    plan = planned(style)
    return plan(raw, dtype, None) if plan else STYLES[style](raw, dtype)


def _finite(raw: Raw, dtype: str, style: str) -> Values:
    """Neither NaN nor infinite."""
    values = _any(raw, dtype, style)
    return np.where(np.isfinite(values), values, _plain(raw, dtype)) if is_float(dtype) else values


def _at_least(raw: Raw, dtype: str, style: str, low: float) -> Values:
    """NaN, or not below `low`, which is at most −4, the smallest plain value."""
    values = _any(raw, dtype, style)
    return np.where(values < low, _plain(raw, dtype), values)


def _nonzero(raw: Raw, dtype: str, style: str) -> Values:
    """Divisors: integers other than zero, on which PyTorch raises; floats may be zero."""
    values = _any(raw, dtype, style)
    return values if is_float(dtype) else np.where(values == 0, np.ones_like(values), values)


def _range(raw: Raw, dtype: str, style: str, low: float, high: float) -> Values:
    """Values in [low, high]; unless the style is plain, one in four is an end, the middle or a special value."""
    plan = planned(style)
    if plan:
        return plan(raw, dtype, (low, high))
    if not is_float(dtype):
        return _below(raw, int(high) - int(low) + 1) + int(low)
    values = _unit(raw) * (high - low) + low
    if style == "plain":
        return values
    ends = pick(raw >> np.uint64(5), _specials_within(dtype, low, high), np.float64)
    return np.where((raw >> np.uint64(60)) < 4, ends, values)


@cache
def _specials_within(dtype: str, low: float, high: float) -> tuple[float, ...]:
    """Return the special values in [low, high], and the ends and the middle together about as often."""
    within = tuple(v for v in special_floats(dtype) if low <= v <= high)
    places = (low, high, (low + high) / 2)
    return (*places * max(len(within) // 3, 1), *within)


def _index(raw: Raw, dtype: str, style: str, size: int) -> Values:
    """Indices in [0, size), with repetitions and both ends."""
    if planned(style):
        return _places(raw, style, 0, size)
    return _below(raw >> np.uint64(7), size)


def _signed_index(raw: Raw, dtype: str, style: str, size: int) -> Values:
    """Indices in [-size, size), as indexing accepts; half of the draws have no negative index."""
    if planned(style):
        return _places(raw, style, -size, size)
    values = _below(raw >> np.uint64(7), size)
    if style == "plain":
        return values
    return values - np.where(raw & np.uint64(1), size, 0)


def _places(raw: Raw, style: str, low: int, high: int) -> Values:
    """Indices in [low, high) in the order or with the repetitions of a planned style."""
    word, *parameters = style.split()
    count, which = len(raw), int(parameters[0])
    if word == "ordered":
        return np.sort(_below(raw >> np.uint64(7), high - low) + low)[::which]
    if word == "equal":
        index = (0, high - 1, low, int(_below(raw[:1], high - low)[0]) + low if count else 0)[which % 4]
        return np.full(count, index, dtype=np.int64)
    if word == "alternating":
        return np.array((0, high - 1, low), dtype=np.int64)[(np.arange(count) + which) % 3]
    # Otherwise all indices in turn, ascending or descending.
    place = np.arange(count, dtype=np.int64) % max(high, 1)
    return high - 1 - place if which % 2 else place


def _index_or(raw: Raw, dtype: str, style: str, size: int, other: int) -> Values:
    """Indices in [0, size), one in four replaced by `other`: class numbers, some of which are to be ignored."""
    if style == "equal 2":
        return np.full(len(raw), other, dtype=np.int64)
    values = _places(raw, style, 0, size) if planned(style) else _below(raw >> np.uint64(7), size)
    return np.where((raw >> np.uint64(60)) < 4, np.full_like(values, other), values)


def _signs(raw: Raw, dtype: str, style: str) -> Values:
    """-1 or 1, like targets of margin losses; a style of equal values gives the same sign everywhere."""
    if style.startswith("equal"):
        return np.full(len(raw), -1 if style == "equal 0" else 1, dtype=np.float64 if is_float(dtype) else np.int64)
    return np.where(raw & np.uint64(1), -1.0, 1.0) if is_float(dtype) else _below(raw, 2) * 2 - 1


def _unique(raw: Raw, dtype: str, style: str, size: int, run: int) -> Values:
    """Indices in [0, size), distinct within each consecutive `run` of storage elements."""
    count = len(raw)
    rows = -(-count // max(run, 1))
    keys = raw_stream(int(raw[0]) if count else 0, rows * size).reshape(rows, size)
    places = np.argsort(keys, axis=1, kind="stable")[:, :run]
    if style.startswith("ordered"):
        places = np.sort(places, axis=1)[:, :: int(style.split()[1])]
    return places.reshape(-1)[:count].astype(np.int64)


def _distinct(raw: Raw, dtype: str, style: str) -> Values:
    """No two values equal, so that orders have no ties. Integers need a dtype with at least as many values."""
    ranks = np.empty(len(raw), dtype=np.int64)
    ranks[np.argsort(raw, kind="stable")] = np.arange(len(raw))
    centred = ranks - len(raw) // 2
    if is_float(dtype):
        return centred * 0.25
    return ranks if dtype == "bool" or INT_RANGE[dtype][0] == 0 else centred


def _ascending(raw: Raw, dtype: str, style: str, run: int) -> Values:
    """Sorted within each `run` consecutive storage elements, like bucket boundaries."""
    values = _any(raw, dtype, style)
    values = np.where(np.isnan(values), _plain(raw, dtype), values) if is_float(dtype) else values
    padded = np.resize(values, -(-len(values) // max(run, 1)) * max(run, 1)).reshape(-1, max(run, 1))
    return np.sort(padded, axis=1).reshape(-1)[: len(values)]


def _descending(raw: Raw, dtype: str, style: str, run: int) -> Values:
    """Sorted in reverse within each `run` consecutive storage elements; `_countdown` is its sorter."""
    padded = np.resize(_ascending(raw, dtype, style, run), -(-len(raw) // max(run, 1)) * max(run, 1))
    return padded.reshape(-1, max(run, 1))[:, ::-1].reshape(-1)[: len(raw)]


def _countdown(raw: Raw, dtype: str, style: str, run: int) -> Values:
    """run - 1 … 0 in each `run` consecutive storage elements: the sorter for `_descending`."""
    return max(run, 1) - 1 - np.arange(len(raw), dtype=np.int64) % max(run, 1)


def _offsets(raw: Raw, dtype: str, style: str, end: int, closed: int) -> Values:
    """Starts of bags: 0 first, then ascending up to `end`, which comes last if `closed`.

    A style of equal values makes all bags but the last one empty.
    """
    if style.startswith("equal"):
        raw = np.zeros_like(raw)
    values = np.sort(_below(raw >> np.uint64(7), end + 1))
    values[:1] = 0
    if closed:
        values[-1:] = end
    return values


def _packed(raw: Raw, dtype: str, style: str, top: int, floor: int) -> Values:
    """top, top - 1, … but not below `floor`: the batch sizes of a packed sequence, step by step."""
    return np.maximum(top - np.arange(len(raw), dtype=np.int64), floor)


def _pivots(raw: Raw, dtype: str, style: str, side: int, exchanging: int) -> Values:
    """Row exchanges in LAPACK's form: in each `side` consecutive elements, row i, counted from 1, with one of i … side.

    Unless `exchanging`, each row is exchanged with itself.
    """
    place = np.arange(len(raw), dtype=np.int64) % max(side, 1)
    further = (raw >> np.uint64(7)) % (max(side, 1) - place).astype(np.uint64)
    return place + 1 + (further.astype(np.int64) if exchanging else 0)


def _dominant(raw: Raw, dtype: str, style: str, side: int, symmetric: int) -> Values:
    """Well-conditioned `side` × `side` matrices, whose diagonal outweighs the rest; with `symmetric` positive definite.

    Styles of ties use multiples of a half.
    """
    area = max(side * side, 1)
    entries = _unit(raw) * 2.0 - 1.0
    if style in ("halves", "tied", "special", "mixed"):
        entries = np.round(entries * 2.0) * 0.5
    padded = np.resize(entries, -(-len(raw) // area) * area).reshape(-1, max(side, 1), max(side, 1))
    if symmetric:
        padded = (padded + padded.transpose(0, 2, 1)) * 0.5
    # Only the diagonal is changed: adding zero to the other elements would turn -0.0 into 0.0.
    diagonal = np.eye(max(side, 1), dtype=bool)
    return np.where(diagonal, padded + (side + 1.0), padded).reshape(-1)[: len(raw)]


#: Domain name → function of the raw words, dtype, style and the domain's parameters. Stored recipes use these names.
DOMAINS: dict[str, Callable[..., Values]] = {
    domain.__name__.removeprefix("_"): domain
    for domain in (
        *(_any, _finite, _at_least, _nonzero, _range, _index, _signed_index, _index_or, _signs),
        *(_unique, _distinct, _ascending, _descending, _countdown, _offsets, _packed, _pivots, _dominant),
    )
} | CAPTURED

#: The domain of values that a user's file holds; its parameters are those of `given_values`.
_FILE = "file"


def compute(recipe: Recipe, dtype: str, count: int) -> Values:
    """Return the `count` storage values that `recipe` stands for.

    Returns:
        float64 for floating dtypes and complex128 for complex ones, still to be rounded to `dtype`; int64 or uint64
        for integers, bool for bool. Shape ``(count,)``. Real and imaginary parts are drawn alternately.

    Raises:
        KeyError: The domain or style is unknown.
    """
    if dtype in PARTS and recipe.domain[0] != _FILE:
        return np.ascontiguousarray(compute(recipe, PARTS[dtype], 2 * count)).view(np.complex128)
    name, *parameters = recipe.domain
    if name == _FILE:
        path, key, function = map(str, parameters)
        return given_values(path, key, function, recipe.seed)
    values = DOMAINS[str(name)](raw_stream(recipe.seed, count), dtype, recipe.style, *parameters)
    # Copied, since PyTorch does not accept arrays with negative strides.
    return np.array(values, dtype=bool if dtype == "bool" else None)
