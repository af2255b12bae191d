"""Count the programs of a run that fail by one of their calls, those that fail by composition, and their pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow.compute as pc
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.causes.groups import FAILED
from harness.compare.diagnosis import CALL_ALONE, COMPOSED, Diagnosis
from harness.core.invocation import PROGRAM, Invocation
from harness.core.overloads import packet
from harness.core.program import Program, results_in
from harness.core.text import count
from harness.record import store

#: Two operators, the second of which reads the first's result.
Neighbours: TypeAlias = tuple[str, str]

_COLUMNS = ["case_id", "invocation", "diagnosis", "blame", "component", "place", "fault", "detail"]
#: Operators that return their input.
_SAME = frozenset({"aten.alias", "aten.clone"})
#: Pairs that are printed.
_PAIRS = 8


@dataclass(frozen=True)
class Composition:
    """Counts of the failing programs of a run.

    Attributes:
        by_call: Programs in which a call fails by itself as the program does.
        composed: Programs whose calls do not.
        pairs: Pairs of neighbours with the number of composed programs that have them, the most frequent first.
    """

    by_call: int
    composed: int
    pairs: tuple[tuple[Neighbours, int], ...]


def composition(results_dir: Path) -> Composition:
    """Count the failing programs of a run.

    Raises:
        ResultsError: the run cannot be read.
    """
    by_call, composed = set(), {}
    wanted = FAILED & pc.starts_with(pc.field("overload"), PROGRAM)
    for row in store.read(results_dir, _COLUMNS, wanted).to_pylist():
        diagnosis = Diagnosis.from_row(row)
        facts = diagnosis.facts if diagnosis else {}
        if CALL_ALONE in facts:
            by_call.add(row["case_id"])
        elif COMPOSED in facts:
            composed[row["case_id"]] = row["invocation"]
    pairs = Counter[Neighbours]()
    for text in composed.values():
        pairs.update(neighbours(Program.of(Invocation.from_json(text))))
    return Composition(len(by_call), len(composed), tuple(pairs.most_common()))


def neighbours(program: Program) -> set[Neighbours]:
    """Return the pairs of operators of a program of which the second reads the first's result."""
    names = [packet(call.overload) for call in program.calls]
    found: dict[int, set[str]] = {}
    pairs = set()
    for place, call in enumerate(program.calls):
        before = {name for result in results_in(call) for name in found[result.call]}
        pairs |= {(name, names[place]) for name in before if names[place] not in _SAME}
        found[place] = before if names[place] in _SAME else {names[place]}
    return pairs


def render_composition(found: Composition) -> Iterator[RenderableType]:
    """Render a sentence and a table; nothing for a run without failing programs."""
    failing = found.by_call + found.composed
    if not failing:
        return
    yield Text(
        f"Of {count(failing, 'failing program')} {found.by_call:,} fail by one call, and {found.composed:,} by the "
        "composition of calls that do not fail so by themselves."
    )
    if found.pairs:
        table = Table("takes the result of", "operator", box=box.SIMPLE_HEAD, show_edge=False)
        table.add_column("programs", justify="right")
        for (first, second), number in found.pairs[:_PAIRS]:
            table.add_row(first, second, f"{number:,}")
        yield table
    yield Text()
