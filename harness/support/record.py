"""The record of support: what a run found of each kind of call, as one small file.

What a run found of each kind of call: an overload in some dtypes with some attributes.

A small record of what is supported, as one file: kinds of calls with counts, without a single call.

The package ships one, so that a question is answered where nothing was ever run. Kinds of ordinary cases,
and of everyday values in rarer dtypes, keep their attributes; edge cases of an overload in the same dtypes
are put together, or the file would be large.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.causes.rows import with_ordinary
from harness.compare.verdict import SPEC, Outcome
from harness.core.invocation import Argument, Enumerated, Invocation, TensorSpec
from harness.generate.call_traits import is_everyday
from harness.record import layout, store
from harness.record.layout import ResultsError, reason
from harness.record.run_info import read_run_info
from harness.support.model_calls import ModelCall, plain_value

_COLUMNS = (
    *("case_id", "overload", "converter", "backend", "opset"),
    *("stage", "outcome", "blame", "signature", "fault", "place", "ordinary", "structure_id", "invocation"),
)
#: What is neither a pass nor a failure of the converter or the backend. An engine that was only built has not
#: shown that it computes the right numbers.
_NO_ANSWER = (Outcome.SKIP, Outcome.NARROWED, Outcome.BUILT)


@dataclass(frozen=True, kw_only=True)
class CallKind:
    """Recorded cases of one kind, with one converter, opset and backend.

    Attributes:
        opset: Of the emitted models; 0 where none was emitted.
        dtypes: Argument → dtype of its tensor, or of the first of its tensors.
        attributes: Argument that is not a tensor → value, defaults too; None where several kinds were put
            together that differ in attributes.
        ordinary: Whether models could well make these calls (`harness.generate.call_traits.call_traits`).
        everyday: Whether they would be ordinary in float32 or int64: everyday values in a rarer dtype.
        cases: How many; `failures` of them fail, those not counted that the specification leaves open.
        how: The commonest failure; "" for none.
        blame: Whose that failure is.
        case_id: A case that fails so.
        missing: The ONNX operator that the backend has no kernel of, where that is the failure.
    """

    overload: str
    converter: str
    backend: str
    opset: int
    dtypes: Mapping[str, str] = field(hash=False)
    attributes: Mapping[str, Any] | None = field(hash=False)
    ordinary: bool
    everyday: bool
    cases: int
    failures: int
    how: str = ""
    blame: str = ""
    case_id: str = ""
    missing: str = ""

    def has_dtypes(self, call: ModelCall) -> bool:
        """Whether the tensors of `call` have these dtypes, as far as it tells."""
        return all(self.dtypes.get(name, "") == dtype for name, dtype in call.dtypes.items())

    def has_attributes(self, call: ModelCall) -> bool:
        """Whether these cases have the attributes of `call`; False where some of its attributes are unknown.

        A question about an operator as such is about all attributes.
        """
        if call.any_attributes:
            return True
        if self.attributes is None:
            return False
        values = self.attributes
        return call.attributes.keys() >= values.keys() and all(call.gives(n, v) for n, v in values.items())


#: What cases of one kind share: overload, converter, backend, opset, dtypes and attributes as JSON, ordinary,
#: everyday.
_Key: TypeAlias = tuple[str, str, str, int, str, str, bool, bool]


def call_kinds(run: Path, overloads: Sequence[str] | None = None) -> list[CallKind]:
    """What a run found, kind by kind.

    Args:
        run: The run.
        overloads: Of these only; None for all.

    Raises:
        ResultsError: the run cannot be read.
    """
    where = pc.field("overload").isin(pa.array(overloads, pa.string())) if overloads is not None else None
    rows = with_ordinary(store.read(run, _COLUMNS, where)).to_pylist()
    structures: dict[str, tuple[dict[str, str], dict[str, Any], str, str]] = {}
    found: dict[_Key, tuple[dict[str, str], dict[str, Any], list[Mapping[str, Any]]]] = {}
    for row in rows:
        if row["outcome"] in _NO_ANSWER:
            continue
        # Cases of one structure differ in the values of their tensors only.
        structure = row["structure_id"] or row["invocation"]
        usual = row["ordinary"]
        call = None if usual and structure in structures else Invocation.from_json(row["invocation"])
        plain = call is None or is_everyday(call)
        if structure not in structures:
            assert call is not None
            dtypes, attributes = dtypes_of(call), attributes_of(call)
            structures[structure] = dtypes, attributes, json.dumps(dtypes), json.dumps(attributes)
        dtypes, attributes, d, a = structures[structure]
        key = row["overload"], row["converter"], row["backend"], row["opset"] or 0, d, a, usual, plain
        found.setdefault(key, (dtypes, attributes, []))[2].append(row)
    return [_kind(key, *rest) for key, rest in found.items()]


def _kind(
    key: _Key, dtypes: Mapping[str, str], attributes: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> CallKind:
    failed = [r for r in rows if Outcome(r["outcome"]).is_failure and r["blame"] != SPEC]
    ways = Counter(map(_way, failed))
    how = ways.most_common(1)[0][0] if ways else ""
    example = next((r for r in failed if _way(r) == how), {})
    name, converter, backend, opset, *_, ordinary, everyday = key
    return CallKind(
        overload=name,
        converter=converter,
        backend=backend,
        opset=opset,
        dtypes=dtypes,
        attributes=attributes,
        ordinary=ordinary,
        everyday=everyday,
        cases=len(rows),
        failures=len(failed),
        how=how,
        blame=example.get("blame", ""),
        case_id=example.get("case_id", ""),
        missing=example.get("place", "") if example.get("fault") == "no-kernel" else "",
    )


def _way(row: Mapping[str, Any]) -> str:
    return f"{row['outcome']} at {row['stage']}: {row['signature']}"


def dtypes_of(call: Invocation) -> dict[str, str]:
    """Argument → dtype of its tensor, or of the first of its tensors."""
    given = ((name, next(_dtypes(argument), "")) for name, argument in call.arguments)
    return {name: dtype for name, dtype in given if dtype}


def _dtypes(argument: Argument) -> Iterator[str]:
    if isinstance(argument, TensorSpec):
        yield argument.dtype
    elif isinstance(argument, tuple):
        for element in argument:
            yield from _dtypes(element)


def attributes_of(call: Invocation) -> dict[str, Any]:
    """Argument that is not a tensor → value as JSON has it; defaults where it is omitted."""
    # A record that holds attributes is read without PyTorch.
    from harness.core.tensors import overload

    given = dict(call.arguments)
    found = {}
    for argument in overload(call.overload)._schema.arguments:
        if "Tensor" in str(argument.type):
            continue
        if argument.name in given:
            found[argument.name] = _value(given[argument.name])
        elif argument.has_default_value():
            found[argument.name] = plain_value(argument.default_value)
    return found


def _value(argument: Argument) -> Any:
    if isinstance(argument, Enumerated):
        return argument.name if argument.kind == "device" else f"torch.{argument.name}"
    if isinstance(argument, tuple):
        return [_value(element) for element in argument]
    return plain_value(argument)


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
        raise ResultsError(f"{path} is not a run or a support record: {reason(error)}") from None
    if _KEY not in (table.schema.metadata or {}):
        raise ResultsError(f"{path} is not a record of support; `conformance supports --write` makes one")
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
