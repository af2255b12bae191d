"""A run at a glance: operators that convert and that pass every ordinary case, and the ends of ordinary cases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from harness.causes.rows import fill_ordinary
from harness.compare.verdict import Outcome, Stage, is_judged
from harness.core.text import count

_KEYS = ("overload", "converter", "backend", "stage", "outcome", "blame", "ordinary")
COLUMNS: tuple[str, ...] = _KEYS
#: Outcomes that tell nothing about a case.
_UNJUDGED = frozenset({Outcome.SKIP, Outcome.BUILT, Outcome.NARROWED, Outcome.INACCURATE})
#: Stages that a case reaches without a conversion.
_BEFORE = frozenset({Stage.REFERENCE, Stage.CONVERT})


@dataclass(kw_only=True)
class Glance:
    """One converter and backend.

    Attributes:
        operators: Operators with any case; `converted` are those with a case that is exported.
        whole: Operators with ordinary cases that pass all of these.
        ordinary: Outcome → ordinary cases, without cases in which no component has a defect.
    """

    converter: str
    backend: str
    operators: set[str] = field(default_factory=set)
    converted: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    ordinary: Counter[Outcome] = field(default_factory=Counter)

    @property
    def sentences(self) -> Iterator[str]:
        """Yield sentences for people."""
        operators = count(len(self.operators), "operator")
        yield f"{len(self.converted):,} of {operators} convert, {len(self.whole):,} pass every ordinary case."
        total = self.ordinary.total()
        if total:
            named = {Outcome.PASS: "right", Outcome.MISMATCH: "silently wrong", Outcome.UNSUPPORTED: "refused"}
            shares = [f"{_percent(self.ordinary[o] / total)} are {word}" for o, word in named.items()]
            rest = total - sum(self.ordinary[o] for o in named)
            shares.append(f"and {_percent(rest / total)} fail otherwise.")
            yield f"Of {count(total, 'ordinary case')}, {', '.join(shares)}"


def _percent(share: float) -> str:
    """Format a share for people: 100% is exactly all, and 0% exactly none."""
    return f"{100 * share:.0f}%" if share in (0, 1) else f"{min(99.9, max(0.1, 100 * share)):.1f}%"


def glances(verdicts: pa.Table) -> list[Glance]:
    """Return a glance at each converter and backend of a record's rows; only `COLUMNS` are read."""
    keys = list(_KEYS)
    rows = fill_ordinary(verdicts).select(keys).unify_dictionaries()
    found: dict[tuple[str, str], Glance] = {}
    failed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows.group_by(keys).aggregate([([], "count_all")]).to_pylist():
        outcome, way = Outcome(row["outcome"]), (row["converter"], row["backend"])
        if outcome in _UNJUDGED:
            continue
        glance = found.setdefault(way, Glance(converter=way[0], backend=way[1]))
        glance.operators.add(row["overload"])
        if Stage(row["stage"]) not in _BEFORE:
            glance.converted.add(row["overload"])
        if not row["ordinary"] or not is_judged(outcome, row["blame"]):
            continue
        glance.ordinary[outcome] += row["count_all"]
        (glance.whole if outcome is Outcome.PASS else failed[way]).add(row["overload"])
    for way, glance in found.items():
        glance.whole -= failed[way]
    return [found[way] for way in sorted(found)]
