"""Name the problem of the elements of an output."""

from __future__ import annotations

import numpy as np

from harness.compare.judge import Judge, Mask
from harness.compare.nearness import Oracle, tolerance_of
from harness.core.dtypes import MIN_EXPONENT, Array
from harness.core.numbers import are_same

NAN_POSITIONS = "NaN positions"
OVERFLOW = "overflow to infinity"
INFINITIES = "infinities"
FLUSHED = "subnormals flushed to zero"
VALUES = "values"
ZERO_SIGN = "sign of zero"

#: Problems of finite numbers, which are as large as the error.
NUMBERS = frozenset({VALUES, FLUSHED, ZERO_SIGN})
#: Problems of single elements.
ELEMENTWISE = (VALUES, NAN_POSITIONS, INFINITIES, OVERFLOW, FLUSHED, ZERO_SIGN)
#: All problems; those of an output as a whole come first.
PROBLEMS = ("number of outputs", "dtype", "shape", *ELEMENTWISE)


def name_problem(judge: Judge, oracle: Oracle, output: int, wrong: Mask, e: Array, g: Array) -> str:
    """Return the kind of problem of the elements marked in `wrong`, one of `ELEMENTWISE`.

    `FLUSHED` means that every wrong element is right for a machine that replaces subnormal numbers by zeros,
    as GPUs and fast-math kernels do. `OVERFLOW` means that the backend has an infinity where PyTorch has a finite
    number of the same sign.

    Args:
        judge: The operator's judge.
        oracle: PyTorch's results.
        output: Index of the output.
        wrong: Marks at least one element.
        e: PyTorch's result in float64.
        g: The backend's result in float64.
    """
    if _is_flushed(judge, oracle, output, wrong, e, g):
        return FLUSHED
    if (np.isnan(e) != np.isnan(g))[wrong].any():
        return NAN_POSITIONS
    infinite = (np.isinf(e) | np.isinf(g))[wrong]
    if not infinite.any():
        return VALUES
    if judge.exact:
        # Moving elements cannot overflow.
        return INFINITIES
    left = np.isinf(g) & np.isfinite(e) & ((e == 0) | (np.sign(e) == np.sign(g)))
    return OVERFLOW if left[wrong].sum() == infinite.sum() else INFINITIES


def elements_of_kind(kind: str, wrong: Mask, e: Array, g: Array) -> Mask:
    """Return those of the elements marked in `wrong` that show the kind, for a message that names one."""
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
            excused |= are_same(g, zeroed)
            # Every subnormal number is within the tolerance of zero, so zeros are compared exactly.
            tolerance = tolerance_of(judge, str(oracle.expected[output].dtype))
            excused |= (zeroed != 0) & tolerance.accepts(zeroed, g)
    return bool((excused | ~wrong).all())
