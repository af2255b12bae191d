"""What the rules of comparison excuse in a run: how often, and where to look."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.compare import excuses_of
from harness.core import count, listed, plain
from harness.present.tolerance_report import short
from harness.record import numbered_column

EXCUSED_COLUMNS = ("overload", "case_id", "excused")
EXCUSED = pc.field("excused") != ""
#: Operators that a line names.
_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class ExcuseCount:
    """How often one rule excused elements that are not PyTorch's but for the last places.

    Attributes:
        rule: Its words, as in the column ``excused``.
        cases: In how many cases.
        elements: How many elements, over all rows.
        operators: In which operators, those with the most rows first.
        example: Id of a case: of those with the most such elements one.
    """

    rule: str
    cases: int
    elements: int
    operators: tuple[str, ...]
    example: str

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return dataclasses.asdict(self)


def excuse_counts(rows: pa.Table) -> list[ExcuseCount]:
    """Each rule that excused something, the one with the most cases first.

    Args:
        rows: With `EXCUSED_COLUMNS`, for which `EXCUSED` holds.
    """
    rows = rows.select(EXCUSED_COLUMNS).unify_dictionaries()
    texts, words = numbered_column(rows["excused"])
    parts = [excuses_of(text) for text in words.to_pylist()]
    found = []
    for rule in sorted({why for part in parts for why, _ in part}):
        elements = np.array([dict(part).get(rule, 0) for part in parts])[texts]
        places = np.flatnonzero(elements)
        most = int(places[np.argmax(elements[places])])
        some = rows.take(pa.array(places))
        operators = Counter(some["overload"].to_pylist())
        found.append(
            ExcuseCount(
                rule=rule,
                cases=len(pc.unique(some["case_id"])),
                elements=int(elements.sum()),
                operators=tuple(name for name, _ in operators.most_common()),
                example=rows["case_id"][most].as_py(),
            )
        )
    return sorted(found, key=lambda one: (-one.cases, one.rule))


def render_excuses(found: Sequence[ExcuseCount]) -> RenderableType:
    """The rules for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("rule", overflow="fold")
    table.add_column("cases", justify="right")
    table.add_column("elements", justify="right")
    table.add_column("operators", overflow="fold")
    table.add_column("example")
    for one in found:
        operators = listed([short(name) for name in one.operators], _SHOWN)
        table.add_row(plain(one.rule), f"{one.cases:,}", f"{one.elements:,}", plain(operators), one.example)
    title = f"{count(len(found), 'rule')} excused elements that are not PyTorch's but for the last places"
    return Group(Text(title), Text(), table)
