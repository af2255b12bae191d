"""Raw random words, and value domains that imitate a tensor seen in a model.

`harness.core.described_tensor` chooses the domain for a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.core.dtypes import is_float

#: float64 for floating dtypes, int64 (uint64 for uint64) for integers, bool for bool.
Values: TypeAlias = npt.NDArray[Any]
Raw: TypeAlias = npt.NDArray[np.uint64]


def raw_stream(seed: int, count: int) -> Raw:
    """Return `count` 64-bit words; a seed gives the same words on every machine."""
    return np.asarray(np.random.PCG64(seed).random_raw(count), dtype=np.uint64)


def unit(raw: Raw) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1) with 53 random bits."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(raw: Raw, bound: int) -> npt.NDArray[np.int64]:
    """Uniform integers in [0, bound); the bias is below 2⁻⁴⁰ for the bounds used here."""
    return (raw % np.uint64(max(bound, 1))).astype(np.int64)


# `value`, `inside` and `outside` are strings where JSON has no number: "nan", "inf", "-inf".


def _constant(raw: Raw, dtype: str, style: str, value: str | int | float) -> Values:
    """The same value everywhere."""
    if is_float(dtype):
        return np.full(len(raw), float(value))
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
    """Bell-shaped values about `mean`, clipped to [low, high], with shares of zeros and of -inf.

    The sum of four uniform numbers, whose variance is a third, stands for the normal distribution.
    """
    mask = np.uint64(0xFFFF)
    total = sum(((raw >> np.uint64(shift)) & mask).astype(np.float64) for shift in (0, 16, 32, 48))
    values = np.clip((total * 2.0**-16 - 2.0) * (deviation * 1.7320508) + mean, low, high)
    # Permute the words once more, so that an element's being zero does not depend on its size.
    share = unit(raw * np.uint64(0x9E3779B97F4A7C15))
    values = np.where(share < zeros, 0.0, values)
    return np.where(share >= 1.0 - minus_infinite, -np.inf, values) if minus_infinite else values


def _share(raw: Raw, dtype: str, style: str, ones: float) -> Values:
    """Booleans, or zeros and ones, of which the share `ones` is true."""
    return unit(raw) < ones


def _sorted(raw: Raw, dtype: str, style: str, low: int, high: int) -> Values:
    """Integers in [low, high], ascending."""
    return np.sort(below(raw >> np.uint64(7), high - low + 1)) + low


def _steps(raw: Raw, dtype: str, style: str, start: float, step: float, run: int) -> Values:
    """start, start + step, … restarting after each `run` consecutive storage elements, like positions."""
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
    """Matrices with one value on and below the `diagonal`-th diagonal and another above it, like causal masks."""
    place = np.arange(len(raw), dtype=np.int64) % max(rows * columns, 1)
    below = place % columns - place // columns <= diagonal
    kind = np.float64 if is_float(dtype) else np.int64
    return np.where(below, float(inside), float(outside)).astype(kind)


#: Domain name → function; part of `harness.core.values.DOMAINS`.
CAPTURED: dict[str, Callable[..., Values]] = {
    "constant": _constant,
    "like": _like,
    "share": _share,
    "sorted": _sorted,
    "steps": _steps,
    "triangular": _triangular,
}
