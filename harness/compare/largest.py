"""Errors measured against the largest element of their output, which is what a user of a model can rely on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.compare.judge import CLOSE, Judge
from harness.compare.nearness import Oracle, tolerance_of
from harness.compare.output_comparison import OutputProblem
from harness.compare.problem_kinds import NUMBERS
from harness.core.dtypes import PRECISION, Array
from harness.core.numbers import distance


def is_within_largest(
    judge: Judge, oracle: Oracle, outputs: Sequence[Array], problems: Sequence[OutputProblem]
) -> bool:
    """Whether all that is wrong are floating numbers within the dtype's tolerance at their output's largest element.

    Elements that an operator only moves, and outputs with a rule of their own, are not judged by size.

    Args:
        judge: The rules of the comparison.
        oracle: The right outputs.
        outputs: The backend's.
        problems: What the comparison found; at least one.
    """
    if judge.exact or judge.tolerances or any(problem.kind not in NUMBERS for problem in problems):
        return False
    masks = judge.undefined(oracle.arguments, oracle.expected) if judge.undefined else [None] * len(outputs)
    for i in {output for problem in problems for output in problem.outputs}:
        e, g, mask = oracle.expected[i], outputs[i], masks[i]
        if i in judge.rules or e.shape != g.shape or e.dtype != g.dtype or str(e.dtype) not in PRECISION:
            return False
        error, scale = error_and_largest(e, g if mask is None else np.where(mask, e, g))
        if error > float(tolerance_of(CLOSE, str(e.dtype)).allowed(np.asarray(scale))):
            return False
    return True


def error_and_largest(e: Array, g: Array) -> tuple[float, float]:
    """Return the largest error of an output, infinite if NaN or infinities differ, and its largest finite element."""
    with np.errstate(all="ignore"):
        wide, other = e.astype(np.float64), g.astype(np.float64)
        error = distance(wide, other)
    return float(error.max(initial=0.0)), float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
