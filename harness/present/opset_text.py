"""Differences between the opsets of a run: cases that pass at some and fail at others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.compare.verdict import Outcome
from harness.core.route import Route, route_label
from harness.core.text import count, plain
from harness.record import store

_COLUMNS = ["case_id", "exported_id", "overload", "converter", "backend", "outcome"]
#: Operators that are printed.
_OPERATORS = 12


@dataclass(frozen=True)
class OpsetDifferences:
    """A converter and a backend at several opsets.

    Attributes:
        way: The converter's own name, and the backend.
        opsets: The opsets, in order.
        cases: Number of cases that ran at all of them.
        operators: Overload → per opset, the number of failures among the cases whose ends differ; most cases first.
        differing: Number of cases whose ends differ between opsets: pass, fail, or neither.
    """

    way: tuple[str, str]
    opsets: tuple[int, ...]
    cases: int
    operators: tuple[tuple[str, tuple[int, ...]], ...]
    differing: int


def opset_differences(results_dir: Path) -> list[OpsetDifferences]:
    """Compare the opsets of each converter and backend of a run; empty if no converter has several.

    Raises:
        ResultsError: the run cannot be read.
    """
    ends: dict[tuple[str, str], dict[tuple[str, str, str], dict[int, bool | None]]] = {}
    several = pc.match_substring_regex(pc.field("converter"), r"@\d+$")
    for row in store.read(results_dir, _COLUMNS, several).to_pylist():
        route = Route.parse(row["converter"])
        assert route.opset is not None
        outcome = Outcome(row["outcome"])
        end = True if outcome is Outcome.PASS else False if outcome.is_failure else None
        case = row["overload"], row["case_id"], row["exported_id"]
        ends.setdefault((route.converter, row["backend"]), {}).setdefault(case, {})[route.opset] = end
    found = [_differences(way, cases) for way, cases in sorted(ends.items())]
    return [differences for differences in found if len(differences.opsets) > 1]


def _differences(way: tuple[str, str], cases: dict[tuple[str, str, str], dict[int, bool | None]]) -> OpsetDifferences:
    opsets = sorted({opset for at in cases.values() for opset in at})
    whole = {case: at for case, at in cases.items() if len(at) == len(opsets)}
    failing: dict[str, list[int]] = defaultdict(lambda: [0] * len(opsets))
    differing = 0
    for (overload, *_), at in whole.items():
        if len(set(at.values())) > 1:
            differing += 1
            for place, opset in enumerate(opsets):
                failing[overload][place] += at[opset] is False
    order = sorted(failing.items(), key=lambda item: (-sum(item[1]), item[0]))
    operators = tuple((name, tuple(numbers)) for name, numbers in order)
    return OpsetDifferences(way, tuple(opsets), len(whole), operators, differing)


def render_opsets(found: Sequence[OpsetDifferences]) -> Iterator[RenderableType]:
    """Render a sentence for each converter and backend, and a table of the cases that fail at some opsets only."""
    for differences in found:
        converter, backend = map(plain, differences.way)
        named = [str(opset) for opset in differences.opsets]
        which = f"{', '.join(named[:-1])} and {named[-1]}"
        yield Text(
            f"{route_label(converter, backend)} at opsets {which}: {count(differences.cases, 'case')} at each, "
            f"of which {differences.differing:,} end otherwise at one than at another."
        )
        if differences.operators:
            table = Table("fails at some opsets only", box=box.SIMPLE_HEAD, show_edge=False)
            for name in named:
                table.add_column(name, justify="right")
            for overload, numbers in differences.operators[:_OPERATORS]:
                table.add_row(plain(overload), *(f"{number:,}" if number else "-" for number in numbers))
            left = len(differences.operators) - _OPERATORS
            if left > 0:
                table.add_row(f"and {count(left, 'more operator')}")
            yield table
        yield Text()
