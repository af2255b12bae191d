"""How many rows of the record ended how, and where."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from rich import box
from rich.console import RenderableType
from rich.table import Table

from harness.verdict.verdict import Outcome, Stage

COLUMNS = ("stage", "outcome")

_STYLES = {Outcome.PASS: "green", Outcome.BUILT: "yellow", Outcome.NARROWED: "yellow", Outcome.SKIP: "yellow"}


def counts(verdicts: pa.Table) -> Counter[tuple[Outcome, Stage]]:
    """Rows by outcome and stage; only the columns `COLUMNS` are looked at."""
    grouped = verdicts.select(COLUMNS).group_by(list(COLUMNS)).aggregate([([], "count_all")])
    return Counter(
        {(Outcome(row["outcome"]), Stage(row["stage"])): row["count_all"] for row in grouped.to_pylist()}
    )


def render(counted: Counter[tuple[Outcome, Stage]]) -> RenderableType:
    """Outcomes × stages, those that occur."""
    stages = [stage for stage in Stage if any(at is stage for _, at in counted)]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("outcome")
    for stage in stages:
        table.add_column(str(stage), justify="right")
    table.add_column("all", justify="right")
    for outcome in Outcome:
        numbers = [counted[outcome, stage] for stage in stages]
        if any(numbers):
            cells = [f"{number:,}" if number else "" for number in (*numbers, sum(numbers))]
            table.add_row(str(outcome), *cells, style=_STYLES.get(outcome, "red"))
    return table
