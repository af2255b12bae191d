"""Domains of values that are like those of a tensor seen in a model: see `harness.core.described_tensor`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.core.dtypes import is_float
from harness.core.raw_values import Raw, Values, below, unit


def _number(word: str | int | float) -> float:
    """A parameter that may be infinite or NaN, which JSON has no numbers for."""
    return float(word)


def _constant(raw: Raw, dtype: str, style: str, value: str | int | float) -> Values:
    """One value everywhere."""
    if is_float(dtype):
        return np.full(len(raw), _number(value))
    return np.full(len(raw), value, dtype=bool if dtype == "bool" else np.int64)


def _like(
    raw: Raw,
    dtype: str,
    style: str,
    mean: float,
    deviation: float,
    low: float,
    high: float,
    zeros: float,
    minus_infinite: float = 0.0,
) -> Values:
    """Bell-shaped about `mean` in [low, high]; a share `zeros` is 0 and a share `minus_infinite` is -inf.

    The sum of four uniform numbers has a variance of a third and stands for the normal distribution.
    """
    mask = np.uint64(0xFFFF)
    total = sum(((raw >> np.uint64(shift)) & mask).astype(np.float64) for shift in (0, 16, 32, 48))
    values = np.clip((total * 2.0**-16 - 2.0) * (deviation * 1.7320508) + mean, low, high)
    # Another permutation of the 64-bit words, so that which are zero does not hang on their size.
    share = unit(raw * np.uint64(0x9E3779B97F4A7C15))
    values = np.where(share < zeros, 0.0, values)
    return np.where(share >= 1.0 - minus_infinite, -np.inf, values) if minus_infinite else values


def _share(raw: Raw, dtype: str, style: str, ones: float) -> Values:
    """Booleans, or zeros and ones, of which a share is true."""
    return unit(raw) < ones


def _sorted(raw: Raw, dtype: str, style: str, low: int, high: int) -> Values:
    """Integers in [low, high], ascending."""
    return np.sort(below(raw >> np.uint64(7), high - low + 1)) + low


def _steps(raw: Raw, dtype: str, style: str, start: float, step: float, run: int) -> Values:
    """start, start + step … anew in each consecutive `run` of storage elements, as positions are."""
    place = np.arange(len(raw), dtype=np.int64) % max(run, 1)
    return start + step * place


def _triangular(
    raw: Raw,
    dtype: str,
    style: str,
    rows: int,
    columns: int,
    diagonal: int,
    inside: str | int | float,
    outside: str | int | float,
) -> Values:
    """Matrices with one value on and below the `diagonal`-th diagonal and another above it: causal masks."""
    place = np.arange(len(raw), dtype=np.int64) % max(rows * columns, 1)
    below = place % columns - place // columns <= diagonal
    kind = np.float64 if is_float(dtype) else np.int64
    return np.where(below, _number(inside), _number(outside)).astype(kind)


#: See `harness.core.values.DOMAINS`.
CAPTURED: dict[str, Callable[..., Values]] = {
    "constant": _constant,
    "like": _like,
    "share": _share,
    "sorted": _sorted,
    "steps": _steps,
    "triangular": _triangular,
}
