"""Operators × (converter, backend): numbers of ordinary and edge cases that passed, and pass rates weighted by use."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.causes.model_use import Pair, UseWeights, model_use
from harness.causes.priority import operator_priority
from harness.causes.rows import fill_ordinary
from harness.compare.verdict import Outcome, is_judged
from harness.core.text import count, shown
from harness.coverage.seen_pairs import SeenPairs

_COUNTED = ("overload", "dtype", "converter", "backend", "outcome", "blame")
RATE_COLUMNS: tuple[str, ...] = (*_COUNTED, "ordinary")
#: Overload, dtype, whether the cases are ordinary.
_Cell: TypeAlias = tuple[str, str, bool]


@dataclass(frozen=True, kw_only=True)
class WeightedRate:
    """The weighted pass rates of one converter with one backend.

    An operator in a dtype weighs as much as there are models that call it so, and passes the share of its
    cases that pass. Operators that no model calls weigh nothing.

    Attributes:
        ordinary: Share of ordinary cases that pass, from 0 to 1; None if models call no operator that has any.
        edge: The same of edge cases.
        models: Number of models.
    """

    converter: str
    backend: str
    ordinary: float | None
    edge: float | None
    models: int

    def to_data(self) -> dict[str, Any]:
        """Return the rates for JSON, shares with four digits."""
        shares = {"ordinary": self.ordinary, "edge": self.edge}
        return {
            "converter": self.converter,
            "backend": self.backend,
            **{name: None if share is None else round(share, 4) for name, share in shares.items()},
            "models": self.models,
        }


def weighted_rates(verdicts: pa.Table, use: UseWeights | None = None) -> list[WeightedRate]:
    """Return the rates of a record's rows; only `COLUMNS` are read, or columns that `fill_ordinary` adds to them.

    Args:
        verdicts: Rows of the record.
        use: Use by models; None for the use in the package's file.
    """
    use = model_use() if use is None else use
    rows = fill_ordinary(verdicts)
    keys = [*_COUNTED, "ordinary"]
    counted = rows.select(keys).unify_dictionaries().group_by(keys).aggregate([([], "count_all")])
    passed: defaultdict[tuple[str, str], Counter[_Cell]] = defaultdict(Counter)
    total: defaultdict[tuple[str, str], Counter[_Cell]] = defaultdict(Counter)
    for row in counted.to_pylist():
        if not is_judged(Outcome(row["outcome"]), row["blame"]):
            continue
        column, cell = (row["converter"], row["backend"]), (row["overload"], row["dtype"], row["ordinary"])
        total[column][cell] += row["count_all"]
        passed[column][cell] += row["count_all"] * (row["outcome"] == Outcome.PASS)
    return [
        WeightedRate(
            converter=column[0],
            backend=column[1],
            ordinary=_rate(passed[column], total[column], use, ordinary=True),
            edge=_rate(passed[column], total[column], use, ordinary=False),
            models=len(use.models),
        )
        for column in sorted(total)
    ]


def _rate(passed: Mapping[_Cell, int], total: Mapping[_Cell, int], use: UseWeights, *, ordinary: bool) -> float | None:
    cells = ((cell, cases) for cell, cases in total.items() if cell[2] is ordinary)
    return weighted_share((((name, dtype), passed[name, dtype, u], n) for (name, dtype, u), n in cells), use)


def weighted_share(counts: Iterable[tuple[Pair, int, int]], use: UseWeights) -> float | None:
    """Return the share that passes, weighted by use; None if no model calls any of the operators.

    Args:
        counts: Overload and dtype, number of passing cases, and number of cases.
        use: Use by models.
    """
    found = weights = 0.0
    for pair, passed, total in counts:
        weight = len(use.callers([pair]))
        found += weight * passed / total
        weights += weight
    return found / weights if weights else None


def percent_of(share: float) -> str:
    """Format a share for people: 100% is exactly all, and 0% exactly none."""
    inner = min(99.9, max(0.1, 100 * share))
    return f"{100 * share:.0f}%" if share in (0, 1) else f"{inner:.1f}%"


#: Converter and backend.
Column: TypeAlias = tuple[str, str]

_CELL_COLUMNS = ("overload", "converter", "backend", "outcome", "blame")
COLUMNS: tuple[str, ...] = (*_CELL_COLUMNS, "ordinary")


@dataclass(frozen=True)
class MatrixCell:
    """The outcomes of one operator's cases in one column.

    Only `Outcome.PASS` is a pass. The total has passes and failures, as `harness.compare.verdict.is_judged` says;
    cases that were not judged are noted separately.

    Attributes:
        outcomes: Outcome → cases, without those that are `left_open`.
        left_open: Cases that differ, but whose result the specification leaves open.
    """

    outcomes: Mapping[Outcome, int]
    left_open: int = 0

    @property
    def passes(self) -> int:
        """Cases that passed."""
        return self.outcomes.get(Outcome.PASS, 0)

    @property
    def total(self) -> int:
        """Cases that passed or failed."""
        return self.passes + self.failures

    @property
    def failures(self) -> int:
        """Cases that failed."""
        return sum(number for outcome, number in self.outcomes.items() if outcome.is_failure)

    def __str__(self) -> str:
        notes = [
            f"{number} {outcome}"
            for outcome, number in self.outcomes.items()
            if number
            and not outcome.is_failure
            and outcome is not Outcome.PASS
            # A few skips are normal. Only if everything is skipped does the operator need a note.
            and (outcome is not Outcome.SKIP or not self.total)
        ]
        if self.left_open:
            notes.append(f"{self.left_open} left open")
        if notes and not self.total:
            return ", ".join(notes)
        return f"{self.passes}/{self.total}" + (f" ({', '.join(notes)})" if notes else "")

    @property
    def brief(self) -> str:
        """The passes and the total; what became of the cases if none was judged."""
        return f"{self.passes:,}/{self.total:,}" if self.total else str(self)

    @property
    def style(self) -> str:
        """Return a style for rich."""
        if self.failures:
            return "red"
        return "green" if self.passes and self.passes == self.total else "yellow"


@dataclass(frozen=True)
class Row:
    """One operator: all its cases, and the ordinary and the edge ones of them alone.

    `harness.generate.call_traits` defines these, and `harness.causes.priority` the order.
    """

    overload: str
    cells: Mapping[Column, MatrixCell]
    ordinary: Mapping[Column, MatrixCell]
    edge: Mapping[Column, MatrixCell]

    @cached_property
    def failing(self) -> bool:
        """Whether a case of it failed anywhere."""
        return any(cell.failures for cell in self.cells.values())

    @cached_property
    def passing(self) -> bool:
        """Whether it ran everywhere and everything passed."""
        return all(cell.passes and cell.passes == cell.total for cell in self.cells.values())

    @cached_property
    def badness(self) -> tuple[float, float, int, float]:
        """Sorts worst first: by priority, then by the share of failures among all cases, their number, and
        the share of cases that did not pass."""
        total, failures, passes = _summed(self.cells.values())
        (usual, usual_failures, _), (rare, rare_failures, _) = map(
            _summed, (self.ordinary.values(), self.edge.values())
        )
        ordinary, edge = usual_failures / max(usual, 1), rare_failures / max(rare, 1)
        priority = operator_priority(self.overload, ordinary, edge, model_use())
        return -priority, -failures / max(total, 1), -failures, passes / max(total, 1)


@dataclass(frozen=True)
class Matrix:
    """All operators, worst first, and their sums: `totals` of all cases, `ordinary` and `edge` of those."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    totals: Mapping[Column, MatrixCell]
    ordinary: Mapping[Column, MatrixCell]
    edge: Mapping[Column, MatrixCell]


def matrix(verdicts: pa.Table) -> Matrix:
    """Count a record's rows; only `COLUMNS` are read, or columns that `fill_ordinary` adds to them."""
    if "ordinary" not in verdicts.column_names:
        verdicts = fill_ordinary(verdicts)
    columns = verdicts.select([*_CELL_COLUMNS, "ordinary"]).unify_dictionaries()
    counted = columns.group_by([*_CELL_COLUMNS, "ordinary"]).aggregate([([], "count_all")]).to_pylist()
    overloads = {row["overload"] for row in counted}
    ordinary = [row for row in counted if row["ordinary"]]
    edge = [row for row in counted if not row["ordinary"]]
    (all_, totals), (usual, ordinary_totals), (rare, edge_totals) = map(_counted, (counted, ordinary, edge))
    rows = [Row(name, all_[name], usual.get(name, {}), rare.get(name, {})) for name in overloads]
    return Matrix(
        columns=tuple(sorted(totals)),
        rows=tuple(sorted(rows, key=lambda row: (*row.badness, row.overload))),
        totals=totals,
        ordinary=ordinary_totals,
        edge=edge_totals,
    )


def _counted(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, dict[Column, MatrixCell]], dict[Column, MatrixCell]]:
    """Return the cells of each operator, and their sums."""
    by_cell: defaultdict[tuple[str, Column], Counter[Outcome | None]] = defaultdict(Counter)
    totals: defaultdict[Column, Counter[Outcome | None]] = defaultdict(Counter)
    for row in rows:
        column = row["converter"], row["backend"]
        outcome = None if row["blame"] == "spec" else Outcome(row["outcome"])
        by_cell[row["overload"], column][outcome] += row["count_all"]
        totals[column][outcome] += row["count_all"]
    by_row: defaultdict[str, dict[Column, MatrixCell]] = defaultdict(dict)
    for (overload, column), outcomes in by_cell.items():
        by_row[overload][column] = _cell(outcomes)
    return by_row, {column: _cell(outcomes) for column, outcomes in totals.items()}


def render(counts: Matrix, limit: int = 15, seen: SeenPairs | None = None) -> RenderableType:
    """Return the matrix for a terminal, at most `limit` operators, those that most models call first. Those that pass
    everywhere share one line.

    Args:
        counts: The matrix.
        limit: The number of operators.
        seen: Pairs seen in the operators that pass everywhere; None if they were not counted.
    """
    use = model_use()
    open_rows = [row for row in counts.rows if not row.passing]
    # Worst first among operators of equal use.
    open_rows.sort(key=lambda row: -len(use.callers_of(row.overload)))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_footer=True)
    table.add_column("operator", footer=f"all {count(len(counts.rows), 'operator')}", no_wrap=True)
    for column in counts.columns:
        names = [shown(word) for word in column]
        for heading, totals in (
            ([*names, Text("ordinary")], counts.ordinary),
            ([Text(), Text(), Text("edge")], counts.edge),
        ):
            table.add_column(
                Text("\n").join(heading), footer=_total(totals.get(column)), justify="right", overflow="fold"
            )
    for row in open_rows[:limit]:
        cells = (part.get(column) for column in counts.columns for part in (row.ordinary, row.edge))
        table.add_row(
            shown(row.overload),
            *(Text("-") if cell is None else Text(cell.brief, style=cell.style) for cell in cells),
        )
    return Group(table, *_footnotes(counts.rows, open_rows[limit:], seen))


def _total(cell: MatrixCell | None) -> Text:
    """Format a sum under its column: the share that passes, and the total."""
    if cell is None:
        return Text("-")
    return Text(f"{percent(cell.passes, cell.total)}\n{cell.brief}", style=cell.style)


def percent(part: int, whole: int) -> str:
    """Format a share for people: 100% is exactly all, and 0% exactly none; ``-`` for an empty total."""
    if not whole:
        return "-"
    share = 100 * part / whole
    if 0 < part < whole:
        share = min(99.9, max(0.1, share))
    return f"{share:.{0 if part in (0, whole) else 1}f}%"


def _footnotes(rows: Iterable[Row], hidden: list[Row], seen: SeenPairs | None) -> Iterable[Text]:
    failing = sum(row.failing for row in hidden)
    if failing:
        yield Text(f"and {count(failing, 'more operator')} with failures", style="red")
    if len(hidden) > failing:
        number = count(len(hidden) - failing, "more operator")
        yield Text(f"and {number} with only skipped or undecided cases", style="yellow")
    passing = [row for row in rows if row.passing]
    if passing:
        # Passing is evidence and no proof: the number of cases belongs to it, and how various they are.
        cases = sum(max(cell.total for cell in row.cells.values()) for row in passing)
        covered = f" ({seen} covered)" if seen is not None and seen.possible else ""
        yield Text(f"{count(len(passing), 'operator')} passed all {count(cases, 'case')}{covered}", style="green")


def _summed(cells: Iterable[MatrixCell]) -> tuple[int, int, int]:
    """Return the number of cases that could have passed, of failures, and of passes."""
    there = list(cells)
    return sum(c.total for c in there), sum(c.failures for c in there), sum(c.passes for c in there)


def _cell(outcomes: Mapping[Outcome | None, int]) -> MatrixCell:
    """Make a cell from outcomes; the key None counts the results that the specification leaves open."""
    known = {outcome: outcomes[outcome] for outcome in Outcome if outcomes.get(outcome)}
    return MatrixCell(known, outcomes.get(None, 0))
