"""Equality and distance of numbers that may be infinite or NaN: all NaN are one number, and zeros have no sign."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.core.dtypes import Array


def are_same(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Return the mask of equal elements of two floating arrays of one shape."""
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def distance(a: Array, b: Array) -> Array:
    """Return the distances of elements in float64: 0 for equal infinities and for NaN, infinity for a number and what
    is none."""
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        apart = np.abs(x - y)
        return np.where(are_same(x, y), 0.0, np.where(np.isnan(apart), np.inf, apart))
