"""How close is close: the default (rtol, atol) per dtype."""

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
