"""Pass rates in which an operator counts as often as models call it, beside the plain ones of the matrix."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from rich.text import Text

from harness.causes import Pair, UseWeights, model_use, with_ordinary
from harness.compare import SPEC, Outcome
from harness.core import count, plain

_COUNTED = ("overload", "dtype", "converter", "backend", "outcome", "blame")
COLUMNS: tuple[str, ...] = (*_COUNTED, "ordinary")
#: Overload, dtype, whether the cases are ordinary.
_Cell: TypeAlias = tuple[str, str, bool]


@dataclass(frozen=True, kw_only=True)
class WeightedRate:
    """What one converter with one backend passes, weighted by use.

    An operator in a dtype weighs as much as there are models that call it so, and passes the share of its
    cases that pass. Operators that no model calls weigh nothing.

    Attributes:
        ordinary: Share of ordinary cases that pass, from 0 to 1; None where no model calls what has any.
        edge: The same of edge cases.
        models: How many models there are.
    """

    converter: str
    backend: str
    ordinary: float | None
    edge: float | None
    models: int

    def to_data(self) -> dict[str, Any]:
        """As JSON, shares with four digits."""
        shares = {"ordinary": self.ordinary, "edge": self.edge}
        return {
            "converter": self.converter,
            "backend": self.backend,
            **{name: None if share is None else round(share, 4) for name, share in shares.items()},
            "models": self.models,
        }


def weighted_rates(verdicts: pa.Table, use: UseWeights | None = None) -> list[WeightedRate]:
    """The rates of a record's rows; only `COLUMNS` are looked at, or what `with_ordinary` makes of these.

    Args:
        verdicts: Rows of the record.
        use: What models call; None for what the package's file says.
    """
    use = model_use() if use is None else use
    rows = with_ordinary(verdicts)
    keys = [*_COUNTED, "ordinary"]
    counted = rows.select(keys).unify_dictionaries().group_by(keys).aggregate([([], "count_all")])
    passed: defaultdict[tuple[str, str], Counter[_Cell]] = defaultdict(Counter)
    total: defaultdict[tuple[str, str], Counter[_Cell]] = defaultdict(Counter)
    for row in counted.to_pylist():
        if row["outcome"] == Outcome.SKIP and row["blame"] != SPEC:
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
    """The share that passes, weighted by use; None where no model calls any of it.

    Args:
        counts: Overload and dtype, how many cases pass, and how many there are.
        use: What models call.
    """
    found = weights = 0.0
    for pair, passed, total in counts:
        weight = len(use.callers([pair]))
        found += weight * passed / total
        weights += weight
    return found / weights if weights else None


def render_rates(rates: list[WeightedRate]) -> Iterator[Text]:
    """A line for each column that holds operators which models call."""
    for rate in rates:
        parts = (("ordinary", rate.ordinary), ("edge", rate.edge))
        shares = [f"{percent_of(share)} of {kind} cases" for kind, share in parts if share is not None]
        if shares:
            yield Text(
                f"weighted by use in {count(rate.models, 'model')}, {plain(rate.converter)} → "
                f"{plain(rate.backend)} passes {' and '.join(shares)}"
            )


def percent_of(share: float) -> str:
    """A share for people: 100% is exactly all, and 0% exactly none."""
    inner = min(99.9, max(0.1, 100 * share))
    return f"{100 * share:.0f}%" if share in (0, 1) else f"{inner:.1f}%"
