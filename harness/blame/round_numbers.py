"""Tell round numbers, such as 0.5 or 10, from numbers that use all bits of float32."""

from __future__ import annotations

import numpy as np

from harness.compare.judge import Mask
from harness.core.dtypes import Array

#: The last 12 of float32's 23 stored bits: a number that has one of them set is not round.
_LAST_BITS = 0xFFF


def are_not_round(values: Array) -> Mask:
    """Return the mask of finite numbers whose float32 has one of its last 12 bits set."""
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32) & _LAST_BITS
    return np.asarray((bits != 0) & np.isfinite(values))
