"""Describe the accuracy of the runs of a model."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.pipeline.model_task import GraphChange, RunAccuracy

#: Quantile of the normal distribution for a confidence of 95%.
_Z = 1.96


def accuracy_text(runs: Sequence[tuple[str, RunAccuracy]]) -> str:
    """Return ``; largest error 2.0e-02 of the largest element (cat.png), median 1.0e-02, worst SQNR 38 dB``, and what
    rows choose; "" for no runs.

    Args:
        runs: The name of each run's inputs, and how accurate it is.
    """
    if not runs:
        return ""
    accuracies = [accuracy for _, accuracy in runs]
    errors = [accuracy.error for accuracy in accuracies]
    worst = max(runs, key=lambda run: run[1].error)[0]
    parts = [f"; largest error {max(errors):.1e} of the largest element{f' ({worst})' if worst else ''}"]
    if len(errors) > 1:
        parts.append(f"median {statistics.median(errors):.1e}")
    ratios = [accuracy.sqnr for accuracy in accuracies if accuracy.sqnr is not None]
    if ratios:
        parts.append(f"worst SQNR {min(ratios):.0f} dB")
    rows = sum(accuracy.rows for accuracy in accuracies)
    if rows:
        parts.append(_choices(accuracies, rows))
    return ", ".join(parts)


def _choices(accuracies: Sequence[RunAccuracy], rows: int) -> str:
    flips = sum(accuracy.top1 for accuracy in accuracies)
    low, high = flip_interval(flips, rows)
    text = f"{flips} of {rows} rows choose another largest (95% confidence: {low:.1%} to {high:.1%})"
    margins = [margin for accuracy in accuracies for margin in accuracy.margins]
    if margins:
        lost = sum(accuracy.top5 for accuracy in accuracies)
        text += f", by a margin of up to {max(margins):.1e}; {lost} lose it from the first five"
    return text


def flip_interval(flips: int, rows: int) -> tuple[float, float]:
    """Return the confidence interval of 95% of a share (E. Wilson, Probable Inference, JASA 22, 1927)."""
    share, spread = flips / rows, _Z**2 / rows
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * ((share * (1 - share) / rows + spread / (4 * rows)) ** 0.5) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def range_loss_text(loss: GraphChange, backend: str, *, survives: bool) -> str:
    """Return what leaves the range of its dtype if all runs as a graph asks, and why a backend is right anyway."""
    end = "results vanish, and a later node leaves the range because of that"
    what = f"its largest result is {loss.largest:.6g}" if loss.change == "overflows" else end
    where = f"{loss.operator} {loss.value} leaves the range of its dtype: {what}"
    if not survives:
        return where
    return f"{backend} is right because it computes in more bits than the graph asks for; as it asks, {where}"
