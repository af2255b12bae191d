"""A run at a glance: what converts, what passes every ordinary case, how ordinary cases end, and what is compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from harness.causes.priority import model_use
from harness.causes.rows import with_ordinary
from harness.compare.verdict import SPEC, Outcome, Stage
from harness.core.documents import count

_KEYS = ("overload", "converter", "backend", "stage", "outcome", "blame", "ordinary")
COLUMNS: tuple[str, ...] = (*_KEYS, "dtype", "structure_id")
#: The dtype that structures are counted in: nearly every operator takes it.
_COUNTED = "float32"
#: What says nothing of a case.
_UNJUDGED = frozenset({Outcome.SKIP, Outcome.BUILT, Outcome.NARROWED, Outcome.INACCURATE})
#: Stages that a case reaches without a conversion.
_BEFORE = frozenset({Stage.REFERENCE, Stage.CONVERT})


@dataclass(kw_only=True)
class Glance:
    """One converter and backend.

    Attributes:
        operators: That have any case, `converted` those with a case that is exported.
        whole: Operators with ordinary cases that pass all of these.
        ordinary: Outcome → ordinary cases; what is nobody's defect is left out.
        cases: All that were judged, `compared` those that got to the comparison.
        structures: Operator → float32 structures that got there, of the operators that models call.
    """

    converter: str
    backend: str
    operators: set[str] = field(default_factory=set)
    converted: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    ordinary: Counter[Outcome] = field(default_factory=Counter)
    cases: int = 0
    compared: int = 0
    structures: Counter[str] = field(default_factory=Counter)

    @property
    def sentences(self) -> Iterator[str]:
        """For people."""
        yield (
            f"{self.converter} → {self.backend}: {len(self.converted):,} of {count(len(self.operators), 'operator')} "
            f"convert, {len(self.whole):,} pass every ordinary case."
        )
        total = self.ordinary.total()
        if total:
            named = {Outcome.PASS: "right", Outcome.MISMATCH: "silently wrong", Outcome.UNSUPPORTED: "refused"}
            shares = [f"{_percent(self.ordinary[o] / total)} are {word}" for o, word in named.items()]
            rest = total - sum(self.ordinary[o] for o in named)
            shares.append(f"and {_percent(rest / total)} fail otherwise.")
            yield f"Of {count(total, 'ordinary case')}, {', '.join(shares)}"
        if self.compared:
            typical = median(self.structures.values()) if self.structures else 0
            of_used = f", {typical:.0f} float32 structures of the median operator that models call" if typical else ""
            yield f"Compared with PyTorch: {_percent(self.compared / self.cases)} of the cases{of_used}."


def _percent(share: float) -> str:
    """A share for people: 100% is exactly all, and 0% exactly none."""
    return f"{100 * share:.0f}%" if share in (0, 1) else f"{min(99.9, max(0.1, 100 * share)):.1f}%"


def glances(verdicts: pa.Table) -> list[Glance]:
    """A glance at each converter and backend of a record's rows; only `COLUMNS` are looked at."""
    keys = list(_KEYS)
    whole = with_ordinary(verdicts)
    rows = whole.select(keys).unify_dictionaries()
    found: dict[tuple[str, str], Glance] = {}
    failed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows.group_by(keys).aggregate([([], "count_all")]).to_pylist():
        outcome, way = Outcome(row["outcome"]), (row["converter"], row["backend"])
        if outcome in _UNJUDGED:
            continue
        glance = found.setdefault(way, Glance(converter=way[0], backend=way[1]))
        glance.operators.add(row["overload"])
        glance.cases += row["count_all"]
        if Stage(row["stage"]) is Stage.COMPARE:
            glance.compared += row["count_all"]
        if Stage(row["stage"]) not in _BEFORE:
            glance.converted.add(row["overload"])
        if not row["ordinary"] or row["blame"] == SPEC:
            continue
        glance.ordinary[outcome] += row["count_all"]
        (glance.whole if outcome is Outcome.PASS else failed[way]).add(row["overload"])
    for way, glance in found.items():
        glance.whole -= failed[way]
    for overload, converter, backend, structures in _structures(whole):
        if (converter, backend) in found and overload in found[converter, backend].operators:
            found[converter, backend].structures[overload] = structures
    return [found[way] for way in sorted(found)]


def _structures(verdicts: pa.Table) -> Iterator[tuple[str, str, str, int]]:
    """Operator, converter and backend, and how many float32 structures were compared, where models call it."""
    used = set(model_use().calls)
    chosen = (pc.field("dtype") == _COUNTED) & (pc.field("stage") == str(Stage.COMPARE))
    rows = verdicts.select(["overload", "converter", "backend", "structure_id", "stage", "dtype"]).filter(chosen)
    keys = ["overload", "converter", "backend"]
    counted = rows.unify_dictionaries().group_by(keys).aggregate([("structure_id", "count_distinct")])
    for row in counted.to_pylist():
        if row["overload"] in used:
            yield row["overload"], row["converter"], row["backend"], row["structure_id_count_distinct"]


def render_glances(verdicts: pa.Table) -> Iterator[Text]:
    """The sentences of each."""
    for glance in glances(verdicts):
        yield Text(" ".join(glance.sentences))
