"""A small record of what is supported, as one file: kinds of calls with counts, without a single call.

The package ships one, so that a question is answered where nothing was ever run. Kinds of ordinary cases,
and of everyday values in rarer dtypes, keep their attributes; edge cases of an overload in the same dtypes
are put together, or the file would be large.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.analyse.support.call_kinds import CallKind, call_kinds
from harness.record import ResultsError, layout, read_run_info, reason, store

#: What the package ships; `conformance supports --write` makes it.
SHIPPED = Path(__file__).with_name("support.parquet")
#: Marks the file among others, and holds `Provenance`.
_KEY = b"conformance support"
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("overload", "converter", "backend")),
        ("opset", pa.int32()),
        ("dtypes", pa.string()),
        ("attributes", pa.string()),
        ("ordinary", pa.bool_()),
        ("everyday", pa.bool_()),
        ("cases", pa.int32()),
        ("failures", pa.int32()),
        ("how", pa.string()),
        ("blame", pa.string()),
        ("case_id", pa.string()),
        ("missing", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where the kinds of calls come from.

    Attributes:
        run: Id of the run.
        recorded: When it began, in ISO 8601.
        versions: Package → version, of everything that took part.
    """

    run: str
    recorded: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class SupportRecord:
    """Kinds of calls and where they come from."""

    kinds: tuple[CallKind, ...]
    provenance: Provenance


def of_run(run: Path, overloads: Sequence[str] | None = None) -> SupportRecord:
    """What a run found.

    Raises:
        ResultsError: the run cannot be read.
    """
    info = read_run_info(run)
    versions = {name: str(version) for name, version in info.versions.items()}
    provenance = Provenance(run=info.run_id, recorded=info.started, versions=versions)
    return SupportRecord(tuple(call_kinds(run, overloads)), provenance)


def read_support(path: Path, overloads: Sequence[str] | None = None) -> SupportRecord:
    """What is in a file that `write_support` wrote, or what a run found.

    Args:
        path: The file, or a run's directory.
        overloads: Of these only; None for all.

    Raises:
        ResultsError: it is neither, or damaged.
    """
    if layout.holds_run(path):
        return of_run(path, overloads)
    where = pc.field("overload").isin(pa.array(overloads, pa.string())) if overloads is not None else None
    table = _table(path, _SCHEMA.names, where)
    kinds = (
        CallKind(**{**row, "dtypes": json.loads(row["dtypes"]), "attributes": json.loads(row["attributes"])})
        for row in table.to_pylist()
    )
    return SupportRecord(tuple(kinds), Provenance(**json.loads(table.schema.metadata[_KEY])))


def _table(path: Path, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
    try:
        there = pq.read_schema(path).names
        table = pq.read_table(path, columns=[name for name in columns if name in there], filters=where)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ResultsError(f"{path} is neither a run nor a record of support: {reason(error)}") from None
    if _KEY not in (table.schema.metadata or {}):
        raise ResultsError(f"{path} is no record of support; `conformance supports --write` makes one")
    return table


def recorded_names(path: Path) -> tuple[list[str], dict[tuple[str, str], frozenset[int]]]:
    """The overloads of a file or a run, and for each converter and backend the opsets of its models.

    Raises:
        ResultsError: it is neither, or damaged.
    """
    columns = ["overload", "converter", "backend", "opset"]
    table = store.read(path, columns) if layout.holds_run(path) else _table(path, columns)
    rows = table.group_by(columns).aggregate([]).to_pylist()
    opsets: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for row in rows:
        # Where no model was emitted there is no opset: null in a run, 0 in a file.
        opsets[row["converter"], row["backend"]] |= {row["opset"]} - {None, 0}
    found = {column: frozenset(numbers) for column, numbers in opsets.items()}
    return sorted({row["overload"] for row in rows}), found


def write_support(record: SupportRecord, path: Path) -> int:
    """Write a small record.

    Returns:
        How many kinds of calls it has.

    Raises:
        ResultsError: the file cannot be written.
    """
    kinds = sorted(_together(record.kinds), key=lambda kind: (kind.overload, kind.converter, kind.backend))
    columns = {
        f.name: [
            json.dumps(getattr(k, f.name)) if f.name in ("dtypes", "attributes") else getattr(k, f.name) for k in kinds
        ]
        for f in fields(CallKind)
    }
    about = json.dumps({f.name: getattr(record.provenance, f.name) for f in fields(Provenance)})
    table = pa.table(columns, _SCHEMA).replace_schema_metadata({_KEY: about.encode()})
    try:
        pq.write_table(table, path, compression="zstd", compression_level=15)
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {reason(error)}") from None
    return len(kinds)


def _together(kinds: Sequence[CallKind]) -> list[CallKind]:
    """`kinds` with one in place of all edge cases of an overload in the same dtypes."""
    found: dict[tuple[object, ...], CallKind] = {}
    kept: list[CallKind] = []
    for kind in kinds:
        if kind.ordinary or kind.everyday:
            kept.append(kind)
            continue
        key = (
            *(kind.overload, kind.converter, kind.backend, kind.opset),
            tuple(kind.dtypes.items()),
        )
        before = found.get(key)
        if before is None:
            found[key] = replace(kind, attributes=None)
            continue
        worse = kind if kind.failures > before.failures else before
        found[key] = replace(
            before,
            cases=before.cases + kind.cases,
            failures=before.failures + kind.failures,
            how=worse.how,
            blame=worse.blame,
            case_id=worse.case_id,
        )
    return [*kept, *found.values()]
