"""How accurate a run of a model is: its largest error, its signal-to-noise ratio, and rows that choose otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.compare.largest import error_and_largest
from harness.core.dtypes import PRECISION, Array
from harness.pipeline.model_task import GraphChange, RunAccuracy

#: Elements of a row that are looked at, next to the largest.
_MOST_CHOICES = 5
#: Margins that are kept.
_MOST_MARGINS = 16


def measure_accuracy(
    expected: Sequence[Array], got: Sequence[Array], range_loss: GraphChange | None = None
) -> RunAccuracy | None:
    """Return how accurate outputs are; None if no output is floating, or one has another shape.

    Args:
        expected: The right outputs.
        got: The outputs of a backend.
        range_loss: See `RunAccuracy`.
    """
    pairs = [(e, g) for e, g in zip(expected, got, strict=False) if str(e.dtype) in PRECISION and e.size]
    if not pairs or len(expected) != len(got) or any(e.shape != g.shape for e, g in pairs):
        return None
    error, signal, noise = 0.0, 0.0, 0.0
    for e, g in pairs:
        largest_error, largest = error_and_largest(e, g)
        error = max(error, largest_error / largest if largest else largest_error)
        with np.errstate(all="ignore"):
            wide, apart = e.astype(np.float64), g.astype(np.float64) - e.astype(np.float64)
            known = np.isfinite(wide) & np.isfinite(apart)
            signal, noise = signal + float((wide[known] ** 2).sum()), noise + float((apart[known] ** 2).sum())
    sqnr = 10 * float(np.log10(signal / noise)) if signal > 0 and noise > 0 else None
    rows = [(e, g) for e, g in pairs if e.ndim >= 2 and e.shape[-1] > 1]
    if not rows:
        return RunAccuracy(error=error, sqnr=sqnr, range_loss=range_loss)
    e, g = (array.astype(np.float64).reshape(-1, array.shape[-1]) for array in rows[0])
    chosen, best = e.argmax(-1), np.sort(e, -1)[:, ::-1]
    kept = np.argsort(-g, -1, kind="stable")[:, :_MOST_CHOICES]
    flipped = g.argmax(-1) != chosen
    scale = float(np.abs(e[np.isfinite(e)]).max(initial=0.0)) or 1.0
    margins = (best[flipped, 0] - best[flipped, 1]) / scale
    return RunAccuracy(
        error=error,
        sqnr=sqnr,
        rows=len(e),
        top1=int(flipped.sum()),
        top5=int((kept != chosen[:, None]).all(-1).sum()),
        margins=tuple(float(margin) for margin in np.sort(margins)[::-1][:_MOST_MARGINS]),
        range_loss=range_loss,
    )
