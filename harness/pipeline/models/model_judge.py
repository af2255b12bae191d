"""How a model's outputs compare with PyTorch's, and by how much each output is off.

An element is right by the rules of `harness.compare.nearness`, with what roundings of each operator move it by, or if
its error is within the dtype's tolerance of the largest element of its output: the errors of a model's operators are
those of the tensors that they work on, and no user of a model can rely on more. A user's own tolerance takes the place
of both, and steps of quantisation excuse what they explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from harness.compare.comparison import compare
from harness.compare.judge import CLOSE
from harness.compare.nearness import tolerance_of
from harness.compare.output_comparison import VALUES, OutputComparison
from harness.compare.tolerances import Tolerance
from harness.core.dtypes import PRECISION, Array
from harness.pipeline.models.model_reference import ModelReference
from harness.pipeline.models.model_task import Growth, OutputError
from harness.pipeline.models.quantised import WITHIN_STEPS, is_within_steps

#: Why an output that is not PyTorch's element by element is right.
WITHIN_LARGEST = "within the tolerance of the output's largest element"


def judge_outputs(
    reference: ModelReference, outputs: Sequence[Array], tolerance: Tolerance | None = None
) -> OutputComparison:
    """How a model's outputs compare with PyTorch's.

    Args:
        reference: PyTorch's answer.
        outputs: The backend's.
        tolerance: What the user allows; None for what roundings explain.
    """
    judge = reference.judge
    if tolerance is not None:
        every = dict.fromkeys(PRECISION, tolerance)
        judge = replace(judge, tolerances=every, reason="the user's own")
    comparison = compare(judge, reference, outputs)
    if comparison.problem is None or tolerance is not None:
        return comparison
    if {p.kind for p in comparison.problems} == {VALUES} and _is_within_largest(reference, outputs):
        return comparison.excused_as(WITHIN_LARGEST)
    if reference.steps is not None and is_within_steps(reference.steps, reference.expected, outputs):
        return comparison.excused_as(WITHIN_STEPS)
    return comparison


def _is_within_largest(reference: ModelReference, outputs: Sequence[Array]) -> bool:
    """Whether every error is small beside the largest element of its output; integers that differ are not."""
    open_ = reference.judge.undefined
    masks = open_(reference.arguments, reference.expected) if open_ else [None] * len(outputs)
    for e, g, mask in zip(reference.expected, outputs, masks, strict=True):
        if str(e.dtype) not in PRECISION:
            if (e != g if mask is None else (e != g) & ~mask).any():
                return False
            continue
        error, scale = _errors(e, g)
        if error > float(tolerance_of(CLOSE, str(e.dtype)).allowed(np.asarray(scale))):
            return False
    return True


def _errors(e: Array, g: Array) -> tuple[float, float]:
    """The largest error of an output, infinite where NaN or infinities differ, and its largest finite element."""
    with np.errstate(all="ignore"):
        wide, other = e.astype(np.float64), g.astype(np.float64)
        same = (wide == other) | (np.isnan(wide) & np.isnan(other))
        error = np.where(same, 0.0, np.abs(other - wide))
    error = np.where(np.isfinite(error), error, np.inf)
    return float(error.max(initial=0.0)), float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))


def largest_element(arrays: Sequence[Array]) -> float:
    """The largest finite magnitude among numbers; 0 for none."""
    wide = [array.astype(np.float64) for array in arrays if array.dtype.kind != "b" and array.dtype.kind != "c"]
    return max((float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in wide), default=0.0)


def output_errors(
    reference: ModelReference, outputs: Sequence[Array], tolerance: Tolerance | None = None
) -> Iterator[OutputError]:
    """By how much each floating output of the right form is off, and how much is allowed."""
    for i, (e, g) in enumerate(zip(reference.expected, outputs, strict=False)):
        dtype = str(e.dtype)
        if dtype in PRECISION and e.shape == g.shape and e.size:
            error, largest = _errors(e, g)
            allowed = (tolerance or tolerance_of(CLOSE, dtype)).allowed(np.asarray(largest))
            yield OutputError(i, f"{dtype}[{','.join(map(str, e.shape))}]", error, largest, float(allowed))


def error_growth(index: int, backend: str, reference: ModelReference, outputs: Sequence[Array]) -> Growth | None:
    """How errors grew; None where float64 has no answer or nothing is floating."""
    truth, moved = reference.truth, reference.sensitivity
    if truth is None or moved is None:
        return None
    found = []
    for e, g, o, s in zip(reference.expected, outputs, truth, moved, strict=True):
        if o is None or s is None or str(e.dtype) not in PRECISION or not o.size or g.shape != o.shape:
            continue
        with np.errstate(all="ignore"):
            errors = (np.abs(g.astype(np.float64) - o), np.abs(e.astype(np.float64) - o), s.condition)
            finite = np.isfinite(o) & np.isfinite(errors[0]) & np.isfinite(errors[1])
            # A mask's lowest number is not a scale.
            scale = float(np.abs(o[finite]).max(initial=0.0))
            if scale > 0:
                found.append(tuple(float(error[finite].max()) / scale for error in errors))
    return Growth(index, backend, *max(found)) if found else None
