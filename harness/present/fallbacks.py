"""How many cases ran on the CPU although their backend's device is another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.core import count, plain
from harness.execute import FELL_BACK, FOLDED, operators_on_cpu
from harness.record import store

#: ONNX operators that a line names.
_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """What one backend left to the CPU.

    Attributes:
        fell_back: Cases of which some nodes or all ran on the CPU.
        folded: Cases that were computed on the CPU while they were loaded.
        not_told: Cases of which nobody knows it.
        operators: ONNX operator → cases of which a node of that type ran on the CPU.
    """

    backend: str
    fell_back: int
    folded: int
    not_told: int
    operators: Counter[str]

    @property
    def sentence(self) -> str:
        """For a person, without a full stop."""
        parts = []
        if self.fell_back:
            names = [f"{plain(name)} ({number:,})" for name, number in self.operators.most_common(_NAMED)]
            more = len(self.operators) - _NAMED
            said = ", ".join([*names, count(more, "more operator")] if more > 0 else names)
            parts.append(f"{count(self.fell_back, 'case')} fell back to the CPU, in part or wholly: {said}")
        if self.folded:
            parts.append(f"{count(self.folded, 'case')} {FOLDED}")
        if self.not_told:
            parts.append(f"of {count(self.not_told, 'case')} the runtime does not tell where they ran")
        return f"{plain(self.backend)}: {'; '.join(parts)}"

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**vars(self), "operators": dict(self.operators.most_common())}


def fallbacks(run: Path) -> Sequence[Fallback]:
    """One entry per backend that left something to the CPU.

    Raises:
        ResultsError: the run cannot be read.
    """
    rows = store.read(run, ["backend", "placement"], pc.field("placement") != "")
    grouped = rows.group_by(["backend", "placement"]).aggregate([([], "count_all")])
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in grouped.to_pylist():
        found[row["backend"]][row["placement"]] += row["count_all"]
    return [_fallback(backend, found[backend]) for backend in sorted(found)]


def _fallback(backend: str, placements: Counter[str]) -> Fallback:
    fell_back = sum(number for said, number in placements.items() if said.startswith(FELL_BACK))
    operators: Counter[str] = Counter()
    # Sorted, so that those of equal number always come in the same order.
    for said, number in sorted(placements.items()):
        operators.update(dict.fromkeys(operators_on_cpu(said), number))
    return Fallback(
        backend=backend,
        fell_back=fell_back,
        folded=placements[FOLDED],
        not_told=placements.total() - fell_back - placements[FOLDED],
        operators=operators,
    )
