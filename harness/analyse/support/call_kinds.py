"""What a run found of each kind of call: an overload in some dtypes with some attributes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from harness.analyse.support.model_calls import ModelCall, plain_value
from harness.causes import with_ordinary
from harness.compare import SPEC, Outcome
from harness.core import Argument, Enumerated, Invocation, TensorSpec
from harness.generate import is_everyday
from harness.record import store

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
        attributes: Argument that is no tensor → value, defaults too; None where several kinds were put
            together that differ in attributes.
        ordinary: Whether models could well make these calls (`harness.generate.call_traits`).
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
    """Argument that is no tensor → value as JSON has it; defaults where it is omitted."""
    # A record that holds attributes is read without PyTorch.
    from harness.core import overload

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
