"""What to call that elements are wrong."""

from __future__ import annotations

import numpy as np

from harness.compare.judge import Judge, Mask
from harness.compare.nearness import Oracle, tolerance_of
from harness.compare.tolerances import MIN_EXPONENT
from harness.core import Array

NAN_POSITIONS = "NaN positions"
OVERFLOW = "overflow to infinity"
INFINITIES = "infinities"
FLUSHED = "subnormals flushed to zero"
VALUES = "values"
ZERO_SIGN = "sign of zero"

#: What a comparison finds wrong with elements.
ELEMENTWISE = (VALUES, NAN_POSITIONS, INFINITIES, OVERFLOW, FLUSHED, ZERO_SIGN)
#: All that it finds wrong: first what is wrong with the outputs as a whole.
PROBLEMS = ("number of outputs", "dtype", "shape", *ELEMENTWISE)


def kind_of(judge: Judge, oracle: Oracle, output: int, wrong: Mask, e: Array, g: Array) -> str:
    """Name what is wrong with the elements marked in `wrong`.

    `FLUSHED` is said where every wrong element is right for a machine that takes subnormal numbers for
    zeros, as GPUs and fast-math kernels do: among its inputs, or its result. `OVERFLOW` is said where
    PyTorch has a number and the backend an infinity of its sign: the range was left on the way.

    Args:
        judge: The operator's.
        oracle: PyTorch's answers.
        output: Its index.
        wrong: At least one element is marked.
        e: PyTorch's result in float64.
        g: The backend's.
    """
    if _is_flushed(judge, oracle, output, wrong, e, g):
        return FLUSHED
    if (np.isnan(e) != np.isnan(g))[wrong].any():
        return NAN_POSITIONS
    infinite = (np.isinf(e) | np.isinf(g))[wrong]
    if not infinite.any():
        return VALUES
    if judge.exact:
        # What is only moved leaves no range.
        return INFINITIES
    left = np.isinf(g) & np.isfinite(e) & ((e == 0) | (np.sign(e) == np.sign(g)))
    return OVERFLOW if left[wrong].sum() == infinite.sum() else INFINITIES


def showing(kind: str, wrong: Mask, e: Array, g: Array) -> Mask:
    """Of the elements marked in `wrong` those that show the kind, for a message that names one."""
    if kind == NAN_POSITIONS:
        return np.asarray(wrong & (np.isnan(e) != np.isnan(g)))
    if kind in (OVERFLOW, INFINITIES):
        return np.asarray(wrong & (np.isinf(e) | np.isinf(g)))
    return wrong


def _is_flushed(judge: Judge, oracle: Oracle, output: int, wrong: Mask, e: Array, g: Array) -> bool:
    smallest_normal = np.ldexp(1.0, MIN_EXPONENT[str(oracle.expected[output].dtype)])
    excused = (g == 0) & (np.abs(e) < smallest_normal)
    if not (excused | ~wrong).all() and oracle.flushed is not None:
        flushed = oracle.flushed[output]
        if flushed.shape == e.shape:
            zeroed = flushed.astype(np.float64)
            zeroed = np.where(np.abs(zeroed) < smallest_normal, 0.0, zeroed)
            excused |= (g == zeroed) | (np.isnan(g) & np.isnan(zeroed))
            # Beside zero every small number is near, flushed or not.
            tolerance = tolerance_of(judge, str(oracle.expected[output].dtype))
            excused |= (zeroed != 0) & tolerance.accepts(zeroed, g)
    return bool((excused | ~wrong).all())
