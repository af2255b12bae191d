"""Parts of complex results that neither PyTorch nor ONNX defines, because an operand is infinite or NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.compare.judge import Judge, Mask
from harness.core.dtypes import Array

WHY = (
    "An operand of a complex product or quotient is infinite or NaN: which part of the result is infinite "
    "and which is NaN, neither PyTorch's documentation nor ONNX says, and PyTorch's own kernels differ."
)


def undefined_parts(judge: Judge, arguments: Mapping[str, Any], expected: Array, got: Array) -> Mask | None:
    """Mark the parts that are not defined; None if the operator or its operands leave nothing undefined.

    A part is marked if PyTorch's is not finite and one of the two results has a NaN there. Sums count because PyTorch's
    multiply by a complex `alpha`, even by 1. A part that is finite in both results involves no infinity or NaN.
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
