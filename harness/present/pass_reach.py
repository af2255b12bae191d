"""Count the programs and graphs of a run that each optimiser pass changed, and list the passes that never changed one.

A pass that none of them reaches is not tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.compare.verdict import split_passes
from harness.convert.rewrite_rules import rule_names
from harness.core.text import plain
from harness.record import store


@dataclass(frozen=True, kw_only=True)
class PassReach:
    """The passes of one converter or backend.

    Attributes:
        component: The converter or the backend.
        fired: Pass → the number of programs and graphs that it changed, the most first.
        never: Passes that changed none of them, of those that are known by name.
        out_of_reach: Pass that cannot change one here → the reason.
    """

    component: str
    fired: Mapping[str, int]
    never: tuple[str, ...]
    out_of_reach: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """Return a sentence for people, without a full stop."""
        known = len(self.fired) + len(self.never)
        text = f"{plain(self.component)}: {len(self.fired)} of {known} optimiser passes changed a case"
        if self.never:
            text += f"; never: {', '.join(self.never)}"
        reasons = [f"{name} ({reason})" for name, reason in self.out_of_reach.items()]
        return f"{text}; out of reach: {', '.join(reasons)}" if reasons else text

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def pass_reach(run: Path) -> Iterator[PassReach]:
    """Yield the passes of each converter and backend that a run of programs or graphs tells of; none for other runs.

    Raises:
        ResultsError: the run cannot be read.
    """
    told = (pc.field("exporter_passes") != "") | (pc.field("backend_passes") != "")
    columns = ["converter", "backend", "structure_id", "exporter_passes", "backend_passes"]
    rows = store.read(run, columns, told).to_pylist()
    converters = {row["converter"] for row in rows if row["exporter_passes"]}
    for name in sorted(converters):
        own = ((row["structure_id"], row["exporter_passes"]) for row in rows if row["converter"] == name)
        yield _reach(name, _counted(own), rule_names(), {})
    backends = {row["backend"] for row in rows if row["backend_passes"]}
    for name in sorted(backends):
        # It imports onnx, which only such runs need.
        from harness.run.backend import BACKENDS

        own = ((row["structure_id"], row["backend_passes"]) for row in rows if row["backend"] == name)
        entry, _ = BACKENDS.find(name)
        yield _reach(name, _counted(own), entry.passes, entry.passes_out_of_reach)


def _counted(rows: Iterator[tuple[str, str]]) -> Counter[str]:
    """Count the structures of each pass."""
    return Counter(name for _, names in set(rows) for name in split_passes(names))


def _reach(component: str, fired: Counter[str], known: Sequence[str], out_of_reach: Mapping[str, str]) -> PassReach:
    never = [name for name in known if name not in fired]
    return PassReach(
        component=component,
        fired=dict(fired.most_common()),
        never=tuple(name for name in never if name not in out_of_reach),
        out_of_reach={name: reason for name, reason in out_of_reach.items() if name in never},
    )
