"""Counts of a run: outcomes by stage, cases that fell back to the CPU, ONNX operators,
invalid nodes, draws that PyTorch rejects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.text import Text

from harness.causes.upkeep import TOLERATED, Rejection
from harness.compare.verdict import SPEC, Outcome, Stage
from harness.core.placement import OnCpu, Placement
from harness.core.text import count, listed, plain
from harness.generate.sources.source import FORBIDDEN
from harness.record import store

#: ONNX operators that a line names.
_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """The work that one backend left to the CPU.

    Attributes:
        fell_back: Cases in which some nodes or all ran on the CPU.
        folded: Cases that were computed on the CPU while they were loaded.
        not_told: Cases for which it is unknown.
        operators: ONNX operator → cases in which a node of that type ran on the CPU.
    """

    backend: str
    fell_back: int
    folded: int
    not_told: int
    operators: Counter[str]

    @property
    def sentence(self) -> str:
        """Return a sentence for people, without a full stop."""
        parts = []
        if self.fell_back:
            names = [f"{plain(name)} ({number:,})" for name, number in self.operators.most_common(_NAMED)]
            more = len(self.operators) - _NAMED
            message = ", ".join([*names, count(more, "more operator")] if more > 0 else names)
            parts.append(f"{count(self.fell_back, 'case')} fell back to the CPU, in part or wholly: {message}")
        if self.folded:
            parts.append(f"{count(self.folded, 'case')} {FOLDED}")
        if self.not_told:
            parts.append(f"of {count(self.not_told, 'case')} the runtime does not tell where they ran")
        return f"{plain(self.backend)}: {'; '.join(parts)}"

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**vars(self), "operators": dict(self.operators.most_common())}


def fallbacks(run: Path) -> Sequence[Fallback]:
    """Return one entry per backend that left work to the CPU.

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
    operators: Counter[str] = Counter()
    extents: Counter[OnCpu] = Counter()
    # Sorted, so that those of equal number always come in the same order.
    for text, number in sorted(placements.items()):
        placement = Placement.parse(text)
        if placement is not None:
            operators.update(dict.fromkeys(placement.operators, number))
            extents[placement.on_cpu] += number
    return Fallback(
        backend=backend,
        fell_back=extents[OnCpu.PARTLY] + extents[OnCpu.WHOLLY],
        folded=extents[OnCpu.FOLDED],
        not_told=extents[OnCpu.UNKNOWN],
        operators=operators,
    )


#: What is said of a case that the runtime computed while it loaded the model.
FOLDED = "computed on the CPU while it was loaded"


def placement_text(column: str) -> str:
    """Describe what of a case ran on the CPU, given the record's column; "" for nothing."""
    placement = Placement.parse(column)
    if placement is None:
        return ""
    if placement.on_cpu in (OnCpu.PARTLY, OnCpu.WHOLLY):
        rest = " (nothing ran on the device)" if placement.on_cpu is OnCpu.WHOLLY else ""
        return f"fell back to CPU: {', '.join(placement.operators)}{rest}"
    return FOLDED if placement.on_cpu is OnCpu.FOLDED else "not known: the runtime does not tell"


@dataclass(frozen=True, kw_only=True)
class OnnxReach:
    """The ONNX operators that one backend computed in a run.

    Attributes:
        compared: Operators in graphs whose results were compared.
        only_loaded: Operators in no such graph, but in one that the backend was given.
        defined: Number of all operators that ONNX defines, without those that it has withdrawn.
    """

    backend: str
    compared: tuple[str, ...]
    only_loaded: tuple[str, ...]
    defined: int

    @property
    def sentence(self) -> str:
        """Return a sentence for people, without a full stop."""
        more = ""
        if self.only_loaded:
            verb = "fails wherever it occurs" if len(self.only_loaded) == 1 else "fail wherever they occur"
            more = f"; {len(self.only_loaded)} more {verb}: {listed(self.only_loaded, _NAMED)}"
        return f"{plain(self.backend)}: {len(self.compared)} of {self.defined} ONNX operators were compared{more}"

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**vars(self), "compared": list(self.compared), "only_loaded": list(self.only_loaded)}


@dataclass(frozen=True, kw_only=True)
class Refusals:
    """The forbidden nodes that one backend was given, by how they ended.

    Attributes:
        refused: Nodes that the backend refused.
        computed: Operator → nodes for which it computed something.
        died: Operator → nodes that its process did not survive.
    """

    backend: str
    refused: int
    computed: Counter[str]
    died: Counter[str]

    @property
    def sentence(self) -> str:
        """Return a sentence for people, without a full stop."""
        total = self.refused + self.computed.total() + self.died.total()
        parts = [f"{plain(self.backend)}: {self.refused:,} of {count(total, 'invalid node')} were refused"]
        for verb, operators in (("computed", self.computed), ("crashed the runtime or hung", self.died)):
            if operators:
                names = [f"{plain(name)} ({number:,})" for name, number in operators.most_common()]
                parts.append(f"{operators.total():,} {verb}: {listed(names, _NAMED)}")
        return "; ".join(parts)

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**vars(self), "computed": dict(self.computed), "died": dict(self.died)}


def refusals(run: Path) -> Sequence[Refusals]:
    """Return one entry per backend that was given invalid nodes.

    Raises:
        ResultsError: the run cannot be read.
    """
    drawn = (pc.field("source") == FORBIDDEN) & (pc.field("stage") != Stage.REFERENCE)
    rows = store.read(run, ["backend", "stage", "outcome", "overload"], drawn).to_pylist()
    found = []
    for backend in sorted({row["backend"] for row in rows}):
        own = [(row["stage"], row["outcome"], row["overload"]) for row in rows if row["backend"] == backend]
        names = {overload: overload.removeprefix("ai.onnx.").rpartition(".")[0] for _, _, overload in own}
        died = Counter(names[overload] for _, outcome, overload in own if outcome != Outcome.SKIP)
        computed = Counter(
            names[overload] for stage, outcome, overload in own if (stage, outcome) == (Stage.COMPARE, Outcome.SKIP)
        )
        refused = len(own) - died.total() - computed.total()
        found.append(Refusals(backend=backend, refused=refused, computed=computed, died=died))
    return found


def onnx_reach(run: Path) -> Sequence[OnnxReach]:
    """Return one entry per backend that ran ONNX models; none for a run that is older than the column.

    Raises:
        ResultsError: the run cannot be read.
    """
    rows = store.read(run, ["backend", "stage", "onnx_operators"], pc.field("onnx_operators") != "")
    grouped = rows.group_by(["backend", "stage", "onnx_operators"]).aggregate([])
    compared: defaultdict[str, set[str]] = defaultdict(set)
    loaded: defaultdict[str, set[str]] = defaultdict(set)
    for row in grouped.to_pylist():
        # No backend computes a model that the checker rejects.
        if row["stage"] != Stage.CHECK:
            reached = compared if row["stage"] == Stage.COMPARE else loaded
            reached[row["backend"]].update(row["onnx_operators"].split())
    defined = _defined_operators() if grouped else frozenset()
    return [
        OnnxReach(
            backend=backend,
            compared=tuple(sorted(compared[backend] & defined)),
            only_loaded=tuple(sorted((loaded[backend] - compared[backend]) & defined)),
            defined=len(defined),
        )
        for backend in sorted(compared.keys() | loaded.keys())
    ]


def _defined_operators() -> frozenset[str]:
    # It loads in 50 ms, and only if there is something to count.
    import onnx

    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain]
    return frozenset(s.name for s in schemas) - {s.name for s in schemas if s.deprecated}


def render_rejections(found: Sequence[Rejection], limit: int = 20) -> RenderableType:
    """Render the list with its heading; nothing for an empty list."""
    if not found:
        return Group()
    title = f"Defective operator cases: PyTorch rejects more than one draw in {TOLERATED}"
    lines = [Text(title, style="bold red")]
    for one in found[:limit]:
        share = f"{one.rejected} of {one.drawn} rejected"
        lines.append(Text(f"  {plain(one.overload)}: {share}, mostly: {plain(one.message, 200)}"))
    if len(found) > limit:
        lines.append(Text(f"  and {count(len(found) - limit, 'more operator case')}"))
    return Group(*lines)


COUNTED_COLUMNS: tuple[str, ...] = ("stage", "outcome", "blame")


@dataclass(frozen=True)
class Counts:
    """The verdicts of a run.

    Attributes:
        ended: Outcome and stage → verdicts.
        left_open: The number of mismatches whose right result the specification leaves open: nobody's defect.
    """

    ended: Counter[tuple[Outcome, Stage]]
    left_open: int


def counts(verdicts: pa.Table) -> Counts:
    """Count rows by outcome and stage; only the columns `COUNTED_COLUMNS` are read."""
    grouped = verdicts.select(COUNTED_COLUMNS).group_by(list(COUNTED_COLUMNS)).aggregate([([], "count_all")])
    ended: Counter[tuple[Outcome, Stage]] = Counter()
    left_open = 0
    for row in grouped.to_pylist():
        outcome = Outcome(row["outcome"])
        ended[outcome, Stage(row["stage"])] += row["count_all"]
        left_open += row["count_all"] * (row["blame"] == SPEC and outcome.is_failure)
    return Counts(ended, left_open)


def sentence(counted: Counts) -> Text:
    """Return the numbers of verdicts by outcome: ``2 verdicts: 1 pass, 1 mismatch``."""
    by_outcome: Counter[Outcome] = Counter()
    for (outcome, _), number in counted.ended.items():
        by_outcome[outcome] += number
    parts = [f"{by_outcome[outcome]:,} {outcome}" for outcome in Outcome if by_outcome[outcome]]
    words = f"{count(by_outcome.total(), 'verdict')}: {', '.join(parts)}"
    open_ = f"; {counted.left_open:,} of the mismatches are left open by the specification" if counted.left_open else ""
    return Text(f"{words}{open_}")


def table_rows(counted: Counts) -> list[tuple[str, ...]]:
    """Return a head and a row for each outcome: its verdicts at each stage that occurs, and all of them."""
    stages = [stage for stage in Stage if any(at is stage for _, at in counted.ended)]
    rows: list[tuple[str, ...]] = [("outcome", *map(str, stages), "all")]
    for outcome in Outcome:
        numbers = [counted.ended[outcome, stage] for stage in stages]
        if any(numbers):
            rows.append((str(outcome), *(f"{n:,}" if n else "" for n in (*numbers, sum(numbers)))))
    return rows
