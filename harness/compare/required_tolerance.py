"""The tolerance that an output would need, in place of the one that it is given."""

from __future__ import annotations

import numpy as np

from harness.compare.tolerances import DEFAULT
from harness.core import Array


def needed_tolerance(expected: Array, got: Array, dtype: str) -> tuple[float | None, float | None]:
    """The (rtol, atol) pair that accepts every element, each as small as the data allow.

    `torch.testing` accepts ``|got - expected| <= atol + rtol·|expected|``. With the default pair (r, a) of
    the dtype, the relative part is the larger where ``|expected| >= a / r``. Elements there are asked for the
    smallest rtol that accepts them by itself, those below for the smallest atol that does: a relative error
    is meaningless beside zero, and an absolute one says nothing of large numbers. Both together accept all
    elements. The pair of several outputs or cases is the maximum of each.

    Args:
        expected: Elements that are compared, finite, float64; any shape.
        got: Likewise; same shape.
        dtype: Of the outputs, one of `harness.compare.tolerances.DEFAULT`.

    Returns:
        rtol, a ratio, and atol, in the unit of the values; None where no element asks for it.
    """
    default = DEFAULT[dtype]
    errors, scale = np.abs(got - expected), np.abs(expected)
    large = scale * default.rtol >= default.atol
    rtol = (errors[large] / scale[large]).max(initial=0.0) if large.any() else None
    atol = errors[~large].max(initial=0.0) if not large.all() else None
    return (None if rtol is None else float(rtol)), (None if atol is None else float(atol))
