"""Cases that pass in two runs with different numerical errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.compare.verdict import Outcome
from harness.core.documents import count, plain
from harness.gate.case_changes import case_keys, paired
from harness.gate.run_diff import version_changes
from harness.present.case_report import number
from harness.present.tolerance_report import KEY, short

COLUMNS = (*KEY, "case_id", "exported_invocation", "outcome", "max_ulp_error", "max_abs_error")
_FAILURES = pa.array([str(outcome) for outcome in Outcome if outcome.is_failure])

_Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MovedCase:
    """A case that passes in both runs with different errors: those of the earlier run are the old ones.

    Attributes:
        old_ulp: Largest error, units in the last place; None where none was measured.
        old_abs: Largest error, in the unit of the values.
    """

    case_id: str
    old_ulp: float | None
    new_ulp: float | None
    old_abs: float | None
    new_abs: float | None

    @property
    def by(self) -> float:
        """ULP further from PyTorch; negative for closer."""
        old, new = self.old_ulp or 0.0, self.new_ulp or 0.0
        return 0.0 if old == new else new - old


@dataclass(frozen=True, kw_only=True)
class Moved:
    """The cases of one overload × dtype × converter × backend × kind of shapes.

    Attributes:
        compared: How many pass in both runs.
        old_p99: 99th percentile of the error in the earlier run, ULP; `new_p99` in the later one.
        cases: Those that moved, furthest first.
    """

    overload: str
    dtype: str
    converter: str
    backend: str
    shape_mode: str
    compared: int
    old_p99: float
    new_p99: float
    cases: tuple[MovedCase, ...]


@dataclass(frozen=True, kw_only=True)
class Movement:
    """How the numbers of two runs differ.

    Attributes:
        versions: Name → version in the earlier and the later run, where they differ; "" for none.
        compared: Cases that pass in both runs.
        broken: Cases that passed in the earlier run and fail in the later one; `mended` the other way round.
        moved: Where numbers moved, furthest first.
    """

    versions: Mapping[str, tuple[str, str]]
    compared: int
    broken: int
    mended: int
    moved: tuple[Moved, ...]

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data, as ``conformance tolerance --compare --json`` prints it."""
        return {
            "versions": {name: {"old": old, "new": new} for name, (old, new) in self.versions.items()},
            "compared": self.compared,
            "broken": self.broken,
            "mended": self.mended,
            "moved": [asdict(moved) for moved in self.moved],
        }


def movement(
    old: pa.Table, new: pa.Table, old_versions: Mapping[str, str], new_versions: Mapping[str, str]
) -> Movement:
    """Compare the cases that two runs share, of rows with `COLUMNS`, and the versions that took part."""
    tables = [rows.select(COLUMNS) for rows in (old, new)]
    keys = case_keys(pa.concat_tables(tables))
    _, *places = paired(keys[: old.num_rows], keys[old.num_rows :])
    shared = (places[0] >= 0) & (places[1] >= 0)
    before, after = (table.take(pa.array(at[shared])) for table, at in zip(tables, places, strict=True))
    passed, passes = (pc.equal(rows["outcome"], str(Outcome.PASS)).to_numpy() for rows in (before, after))
    failed, fails = (pc.is_in(rows["outcome"], _FAILURES).to_numpy() for rows in (before, after))
    both = passed & passes
    pairs: defaultdict[tuple[str, ...], list[tuple[_Row, _Row]]] = defaultdict(list)
    for earlier, row in zip(before.filter(both).to_pylist(), after.filter(both).to_pylist(), strict=True):
        pairs[tuple(row[name] for name in KEY)].append((earlier, row))
    moved = [found for key, rows in pairs.items() if (found := _moved(key, rows)) is not None]
    return Movement(
        versions=version_changes(old_versions, new_versions),
        compared=int(both.sum()),
        broken=int((passed & fails).sum()),
        mended=int((failed & passes).sum()),
        moved=tuple(sorted(moved, key=lambda m: (-abs(m.cases[0].by), m.overload, m.dtype, m.converter, m.backend))),
    )


def _moved(key: tuple[str, ...], pairs: Sequence[tuple[_Row, _Row]]) -> Moved | None:
    cases = [
        MovedCase(
            case_id=new["case_id"],
            old_ulp=old["max_ulp_error"],
            new_ulp=new["max_ulp_error"],
            old_abs=old["max_abs_error"],
            new_abs=new["max_abs_error"],
        )
        for old, new in pairs
        if any(old[name] != new[name] for name in ("max_ulp_error", "max_abs_error"))
    ]
    if not cases:
        return None
    old_p99, new_p99 = (_p99([pair[side]["max_ulp_error"] for pair in pairs]) for side in (0, 1))
    return Moved(
        **dict(zip(KEY, key, strict=True)),
        compared=len(pairs),
        old_p99=old_p99,
        new_p99=new_p99,
        cases=tuple(sorted(cases, key=lambda case: (-abs(case.by), case.case_id))),
    )


def _p99(ulps: Sequence[float | None]) -> float:
    known = [ulp for ulp in ulps if ulp is not None]
    return float(np.quantile(known, 0.99, method="inverted_cdf")) if known else 0.0


def render(found: Movement, limit: int | None = None) -> RenderableType:
    """The movement for a terminal: at most `limit` rows, or all for None."""
    parts: list[RenderableType] = []
    for name, (old, new) in found.versions.items():
        parts.append(Text(f"{plain(name)}: {plain(old or 'absent')} → {plain(new or 'absent')}"))
    if not found.versions:
        parts.append(Text("The same versions took part in both runs."))
    total = sum(len(moved.cases) for moved in found.moved)
    parts.append(
        Text(
            f"{count(found.compared, 'case')} in both runs that passed in both: {total:,} moved; "
            f"{count(found.broken, 'other')} no longer passed, {found.mended:,} began to pass",
            style="bold",
        )
    )
    if found.moved:
        parts += [Text(), _table(found.moved[:limit])]
    if limit is not None and len(found.moved) > limit:
        parts.append(Text(f"and {count(len(found.moved) - limit, 'more row')}"))
    return Group(*parts)


def _table(moved: Sequence[Moved]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("operator", overflow="fold")
    for name in ("dtype", "converter", "backend"):
        table.add_column(name)
    for name in ("moved", "p99 ULP", "furthest", "its ULP"):
        table.add_column(name, justify="right")
    table.add_column("case")
    for one in moved:
        furthest = one.cases[0]
        table.add_row(
            *(plain(short(one.overload)), one.dtype, plain(one.converter), plain(one.backend)),
            f"{len(one.cases)}/{one.compared}",
            f"{number(one.old_p99)} → {number(one.new_p99)}",
            f"{furthest.by:+.3g}",
            f"{number(furthest.old_ulp)} → {number(furthest.new_ulp)}",
            furthest.case_id,
            style="red" if furthest.by > 0 else "green",
        )
    return table
