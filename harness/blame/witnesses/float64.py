"""PyTorch in float64: how far from the truth PyTorch and the backend are where they differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.compare import CLOSE, Mask, Outcome, tolerance_of
from harness.core import PRECISION, Array

#: PyTorch bears witness against a backend that is off so many times as far as PyTorch itself, and float64
#: against PyTorch where that is so much further off than a backend that has half of the digits.
_FAR_NEARER = 100


@witness("float64", place=20)
def ask_float64(trial: Trial) -> Iterator[Testimony]:
    """The same call in float64, element by element where the backend is wrong."""
    if trial.complaint.outcome is not Outcome.MISMATCH or trial.got is None:
        return
    truths = trial.reference.truth or ()
    for i, (expected, got, truth, wrong) in enumerate(
        zip(trial.reference.expected, trial.got, truths, trial.wrong, strict=False)
    ):
        if i in trial.judge.rules:
            # Several answers are right: a distance from one of them says nothing.
            continue
        dtype = str(expected.dtype)
        comparable = expected.dtype == got.dtype and expected.shape == got.shape
        # In float64 itself the truth is PyTorch's result again.
        if not comparable or not wrong.any() or dtype == "float64" or dtype not in PRECISION:
            continue
        if truth is None or truth.shape != expected.shape:
            continue
        yield _testimony(dtype, expected[wrong], got[wrong], truth[wrong], trial.complaint.backend)
        return


def _testimony(dtype: str, expected: Array, got: Array, truth: Array, backend: str) -> Testimony:
    ours, theirs = _near(dtype, expected, truth), _near(dtype, got, truth)
    with np.errstate(all="ignore"):
        our_error, their_error = (np.abs(v.astype(np.float64) - truth) for v in (expected, got))
        # Inexact as one of them is, it cannot be taken for the other's kind of wrong.
        ours |= _FAR_NEARER * our_error < their_error
        has_half = their_error <= np.abs(truth) * 2.0 ** (-PRECISION[dtype] / 2)
        theirs |= has_half & ~(our_error <= _FAR_NEARER * their_error)
    facts = {
        "backend": backend,
        "pytorch_ulps": _ulps(dtype, expected, truth),
        "backend_ulps": _ulps(dtype, got, truth),
    }
    finding = Finding.CONTRADICTS if theirs.all() else Finding.INEXACT
    return Testimony(Role.FLOAT64, Finding.CONFIRMS if ours.all() else finding, "float64", facts)


def _near(dtype: str, values: Array, truth: Array) -> Mask:
    tolerance = tolerance_of(CLOSE, dtype)
    with np.errstate(all="ignore"):
        v, rounded = values.astype(np.float64), truth.astype(values.dtype).astype(np.float64)
    return np.asarray((v == rounded) | tolerance.accepts(truth, v))


def _ulps(dtype: str, values: Array, truth: Array) -> float | None:
    """The largest distance, in units in the last place of the truth; None for an infinity or NaN."""
    with np.errstate(all="ignore"):
        v = values.astype(np.float64)
        unlike = ~((v == truth) | (np.isnan(v) & np.isnan(truth)))
        if (unlike & ~(np.isfinite(v) & np.isfinite(truth))).any():
            return None
        _, exponent = np.frexp(np.abs(truth))
        unit = np.ldexp(1.0, exponent - PRECISION[dtype])
        return float(np.max(np.where(unlike, np.abs(v - truth) / unit, 0.0)))
