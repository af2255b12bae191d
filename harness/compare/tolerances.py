"""How close is close, per dtype: `torch.testing`'s numbers, and the roundings that they amount to.

Every comparison with a tolerance, of whatever room, asks `Tolerance`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.core.dtypes import Array


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
        """How far from numbers of this magnitude (float64) a result may be, in their unit."""
        return np.asarray(self.atol + self.rtol * np.abs(magnitude))

    def accepts(self, expected: Array, got: Array) -> npt.NDArray[np.bool_]:
        """Which elements of `got` are equal to `expected`, NaN to NaN, or within the tolerance of it.

        Args:
            expected: In float64. Only a finite number has others near it.
            got: In float64; same shape.
        """
        with np.errstate(all="ignore"):
            right = (got == expected) | (np.isnan(got) & np.isnan(expected))
            right |= np.isfinite(expected) & (np.abs(got - expected) <= self.allowed(expected))
        return np.asarray(right)


#: How many times nearer to one answer than to another a result must be to be taken for the first.
MUCH_NEARER = 100

#: `torch.testing.assert_close`'s defaults per dtype (its documentation has the table). They are the contract
#: that PyTorch's own tests hold a kernel to.
DEFAULT: dict[str, Tolerance] = {
    "float64": Tolerance(1e-7, 1e-7),
    "float32": Tolerance(1.3e-6, 1e-5),
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "complex64": Tolerance(1.3e-6, 1e-5),
    "complex128": Tolerance(1e-7, 1e-7),
}

#: Exponent of the smallest normal number (IEEE 754-2019 §3.3; bfloat16 has float32's).
MIN_EXPONENT: dict[str, int] = {"float64": -1022, "float32": -126, "float16": -14, "bfloat16": -126}

#: κ of `harness.compare.nearness`: the relative tolerance above in units of 2^-p; float64's is float32's.
ROUNDINGS: dict[str, float] = {
    "float64": 1.3e-6 * 2.0**24,
    "float32": 1.3e-6 * 2.0**24,
    "float16": 1e-3 * 2.0**11,
    "bfloat16": 1.6e-2 * 2.0**8,
}


def needed_tolerance(expected: Array, got: Array, dtype: str) -> tuple[float | None, float | None]:
    """The (rtol, atol) pair that accepts every element, each as small as the data allow.

    `torch.testing` accepts ``|got - expected| <= atol + rtol·|expected|``. With the default pair (r, a) of
    the dtype, the relative part is the larger where ``|expected| >= a / r``. Elements there are asked for the
    smallest rtol that accepts them by itself, those below for the smallest atol that does: a relative error
    is meaningless beside zero, and an absolute one says nothing of large numbers. Both together accept all
    elements. The pair of several outputs or cases is the maximum of each.

    Args:
        expected: Elements that are compared, finite, float64; any shape.
        got: The same elements of the result; same shape.
        dtype: Of the outputs, one of `DEFAULT`.

    Returns:
        rtol, a ratio, and atol, in the unit of the values; None where no element asks for it.
    """
    default = DEFAULT[dtype]
    errors, scale = np.abs(got - expected), np.abs(expected)
    large = scale * default.rtol >= default.atol
    rtol = (errors[large] / scale[large]).max(initial=0.0) if large.any() else None
    atol = errors[~large].max(initial=0.0) if not large.all() else None
    return (None if rtol is None else float(rtol)), (None if atol is None else float(atol))
