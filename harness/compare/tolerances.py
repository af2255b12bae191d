"""How close is close, per dtype: `torch.testing`'s numbers, and the roundings that they amount to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Accept ``|got - expected| <= atol + rtol * |expected|``.

    Attributes:
        rtol: Relative, a ratio.
        atol: Absolute, in the unit of the values.
    """

    rtol: float
    atol: float


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
