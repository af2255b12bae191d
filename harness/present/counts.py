"""How many rows of the record ended how, and where."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from rich import box
from rich.console import RenderableType
from rich.table import Table

from harness.compare import Outcome, Stage

COLUMNS: tuple[str, ...] = ("stage", "outcome", "blame")

#: In place of the outcome of what the specification leaves open.
OPEN = "open"

_STYLES: dict[str, str] = {
    Outcome.PASS: "green",
    **dict.fromkeys((Outcome.BUILT, Outcome.NARROWED, Outcome.SKIP, OPEN), "yellow"),
}


def counts(verdicts: pa.Table) -> Counter[tuple[str, Stage]]:
    """Rows by outcome, or `OPEN`, and stage; only the columns `COLUMNS` are looked at."""
    grouped = verdicts.select(COLUMNS).group_by(list(COLUMNS)).aggregate([([], "count_all")])
    counted: Counter[tuple[str, Stage]] = Counter()
    for row in grouped.to_pylist():
        outcome = OPEN if row["blame"] == "spec" else Outcome(row["outcome"])
        counted[outcome, Stage(row["stage"])] += row["count_all"]
    return counted


def render(counted: Counter[tuple[str, Stage]]) -> RenderableType:
    """Outcomes × stages, those that occur."""
    stages = [stage for stage in Stage if any(at is stage for _, at in counted)]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("outcome")
    for stage in stages:
        table.add_column(str(stage), justify="right")
    table.add_column("all", justify="right")
    for outcome in (*Outcome, OPEN):
        numbers = [counted[outcome, stage] for stage in stages]
        if any(numbers):
            cells = [f"{number:,}" if number else "" for number in (*numbers, sum(numbers))]
            table.add_row(str(outcome), *cells, style=_STYLES.get(outcome, "red"))
    return table
