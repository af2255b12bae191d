"""The words that recipes compute values from, and the two ways of making numbers of them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

#: float64 for floating dtypes, int64 (uint64 for uint64) for integers, bool for bool.
Values: TypeAlias = npt.NDArray[Any]
Raw: TypeAlias = npt.NDArray[np.uint64]


def raw_stream(seed: int, count: int) -> Raw:
    """`count` 64-bit words, the same for one seed everywhere."""
    return np.asarray(np.random.PCG64(seed).random_raw(count), dtype=np.uint64)


def unit(raw: Raw) -> npt.NDArray[np.float64]:
    """Uniform in [0, 1), 53 bits."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(raw: Raw, bound: int) -> npt.NDArray[np.int64]:
    """Uniform in [0, bound); the bias is below 2⁻⁴⁰ for bounds that occur here."""
    return (raw % np.uint64(max(bound, 1))).astype(np.int64)
