"""What a model costs, and what a release changed of it, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from harness.gate.after_upgrade import ModelFigures
from harness.present.report import Report, Row, Section
from harness.reproduce.figures import Figure, FigureChange


def value_text(figure: Figure, value: float) -> str:
    """Return a figure with its unit."""
    value += 0.0  # no sign of zero
    match figure:
        case Figure.MILLISECONDS:
            return f"{value:.3g} ms"
        case Figure.MEMORY:
            return f"{value / 1024:,.0f} KiB a call"
        case Figure.SQNR:
            return f"{value:.1f} dB"
        case Figure.FLIPS:
            return f"{value:.0f} rows"


def change_text(change: FigureChange) -> str:
    """Return ``worse: 1.2 ms → 1.5 ms (+18% to +24%)``."""
    how = "worse" if change.is_worse else "better" if change.is_better else "the same"
    before, after = (value_text(change.figure, value) for value in (change.before, change.after))
    if change.figure is Figure.MILLISECONDS:
        interval = f"{change.low:+.0%} to {change.high:+.0%}"
    else:
        sign = -1 if change.figure is Figure.SQNR else 1
        low, high = sorted((sign * change.low, sign * change.high))
        interval = f"{value_text(change.figure, low)} to {value_text(change.figure, high)}"
    return f"{how}: {before} → {after} ({interval})"


def add_figures(report: Report, figures: Sequence[ModelFigures]) -> Report:
    """Return a report with a section of what models cost, if any was measured."""
    rows = [
        Row(f"{model.model}, {change.figure}", change_text(change)) for model in figures for change in model.changes
    ]
    rows += [Row(model.model, f"not measured: {model.problem}") for model in figures if model.problem]
    if not rows:
        return report
    is_worse = any(change.is_worse for model in figures for change in model.changes)
    section = Section(
        title="What a call costs", rows=tuple(rows), style="bold red" if is_worse else "bold", noun="figure"
    )
    return replace(report, sections=(*report.sections, section))


def figures_data(figures: Sequence[ModelFigures]) -> list[dict[str, Any]]:
    """Return what models cost as plain data."""
    return [
        {
            "model": model.model,
            "problem": model.problem,
            "changes": [
                {**asdict(change), "worse": change.is_worse, "better": change.is_better} for change in model.changes
            ],
        }
        for model in figures
    ]
