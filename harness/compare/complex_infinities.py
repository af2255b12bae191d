"""What complex arithmetic leaves open: the parts of a result of which an operand is infinite or NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.compare.judge import Judge, Mask
from harness.core import Array

WHY = (
    "An operand of a complex product or quotient is infinite or NaN: which part of the result is infinite "
    "and which is NaN, neither PyTorch's documentation nor ONNX says, and PyTorch's own kernels differ."
)


def open_parts(judge: Judge, arguments: Mapping[str, Any], expected: Array, got: Array) -> Mask | None:
    """The parts of each result of an operand that is not finite, where PyTorch's is not finite and one of
    the two results has a NaN; None for none.

    Sums count, too: PyTorch's multiply by a complex `alpha`, be it 1. A part that is finite in both results
    does not: nothing that is not finite went into it.
    """
    if judge.exact or not (judge.accumulates or judge.terms) or not expected.shape or expected.shape[-1] != 2:
        return None
    operands = [np.asarray(a) for a in arguments.values() if isinstance(a, np.ndarray | complex | float)]
    if not any(map(np.iscomplexobj, operands)) or all(map(_is_finite, operands)):
        return None
    is_nan = (np.isnan(expected) | np.isnan(got)).any(-1, keepdims=True)
    finite = np.isfinite(expected)
    return is_nan & ~finite.all(-1, keepdims=True) & ~(finite & np.isfinite(got))


def _is_finite(operand: Array) -> bool:
    return operand.dtype.kind not in "fcV" or bool(np.isfinite(operand).all())
