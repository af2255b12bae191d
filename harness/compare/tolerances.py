"""Tolerances per dtype: the numbers of `torch.testing`, and the numbers of roundings that they correspond to.

Every comparison with a tolerance, in any room, uses `Tolerance`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.core.dtypes import Array
from harness.core.numbers import are_same


@dataclass(frozen=True)
class Tolerance:
    """Accept ``|got - expected| <= atol + rtol * |expected|``.

    Attributes:
        rtol: Relative, a ratio.
        atol: Absolute, in the unit of the values.
    """

    rtol: float
    atol: float

    def allowed(self, magnitude: Array) -> Array:
        """Return the largest allowed error at a magnitude (float64), in the same unit."""
        return np.asarray(self.atol + self.rtol * np.abs(magnitude))

    def accepts(self, expected: Array, got: Array) -> npt.NDArray[np.bool_]:
        """Mark the elements of `got` that equal `expected`, NaN equal to NaN, or are within the tolerance.

        Args:
            expected: Expected elements in float64. Only finite ones have a tolerance.
            got: The result in float64; same shape.
        """
        with np.errstate(all="ignore"):
            right = are_same(got, expected)
            right |= np.isfinite(expected) & (np.abs(got - expected) <= self.allowed(expected))
        return np.asarray(right)


#: A result belongs to an answer if it is this many times nearer to it than to the other.
MUCH_NEARER = 100

#: The defaults of `torch.testing.assert_close` per dtype, from its documentation: what PyTorch's own tests require of a
#: kernel.
DEFAULT: dict[str, Tolerance] = {
    "float64": Tolerance(1e-7, 1e-7),
    "float32": Tolerance(1.3e-6, 1e-5),
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "complex64": Tolerance(1.3e-6, 1e-5),
    "complex128": Tolerance(1e-7, 1e-7),
}

#: κ of `harness.compare.nearness`: the relative tolerance in units of 2^-p. float64 has that of float32.
ROUNDINGS: dict[str, float] = {
    "float64": 1.3e-6 * 2.0**24,
    "float32": 1.3e-6 * 2.0**24,
    "float16": 1e-3 * 2.0**11,
    "bfloat16": 1.6e-2 * 2.0**8,
}


def needed_tolerance(expected: Array, got: Array, dtype: str) -> tuple[float | None, float | None]:
    """Return the smallest (rtol, atol) pair that accepts every element.

    `torch.testing` accepts ``|got - expected| <= atol + rtol·|expected|``. With the dtype's default pair (r, a), the
    relative term is the larger one if ``|expected| >= a / r``. rtol is the smallest that accepts all of these elements,
    atol the smallest that accepts all others: a relative error is meaningless near zero, and an absolute one says
    nothing about large numbers. Together they accept every element. For several outputs or cases, take the maximum of
    each.

    Args:
        expected: The compared elements, finite, float64; any shape.
        got: The same elements of the result; same shape.
        dtype: The outputs' dtype, one of `DEFAULT`.

    Returns:
        rtol, a ratio, and atol, in the unit of the values; None if no element needs it.
    """
    default = DEFAULT[dtype]
    errors, scale = np.abs(got - expected), np.abs(expected)
    large = scale * default.rtol >= default.atol
    rtol = (errors[large] / scale[large]).max(initial=0.0) if large.any() else None
    atol = errors[~large].max(initial=0.0) if not large.all() else None
    return (None if rtol is None else float(rtol)), (None if atol is None else float(atol))
