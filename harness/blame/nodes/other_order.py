"""Sums that leave the range of their dtype in some orders of summation, and in others do not.

Neither ONNX nor PyTorch states an order (rule 5 of `harness.compare.nearness`). A partial sum may be as large
as the sum of the terms' magnitudes: where that leaves the range, an infinity is right, and NaN beside
an infinity of the other sign.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.blame.nodes.definition import Definition
from harness.compare import largest_finite
from harness.core import PRECISION, Array


def overflown(definition: Definition, got: Sequence[Array], instead: float) -> tuple[Array, ...]:
    """The results of a step with `instead`, an infinity or NaN, wherever a sum may have left the range."""
    if not definition.accumulates or len(got) != 1 or str(got[0].dtype) not in PRECISION:
        return tuple(got)
    magnitudes = definition.of_terms(_finite_magnitudes)
    if magnitudes is None or magnitudes[0] is None or magnitudes[0].shape != got[0].shape:
        return tuple(got)
    with np.errstate(all="ignore"):
        beyond = ~(np.abs(magnitudes[0]) <= largest_finite(str(got[0].dtype)))
        return (np.where(beyond, got[0].dtype.type(instead), got[0]).astype(got[0].dtype),)


def _finite_magnitudes(array: Array) -> Array:
    """Without infinities: finite terms beside one may leave the range, too."""
    return np.where(np.isfinite(array), np.abs(array), 0).astype(array.dtype)
