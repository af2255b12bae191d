"""The distinct calls of real models, as ``cases/use.parquet`` has them.

Each call that models make in float32 is run in float16 and bfloat16, too, as ``.half()`` and ``.bfloat16()`` would make
it. ``--source use`` takes all of them; ``use:common``, which a run has that names no source, those of most models.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.invocation import Argument, Enumerated, InvalidInvocation, Invocation, TensorSpec
from harness.core.plugins import UnknownName
from harness.generate.cases_home import CaseFileError, cases_directory
from harness.generate.sources.source import Request, SourceFinding, grouped, resized
from harness.record.layout import ResultsError, reason

FILE = "use.parquet"
SCHEMA = pa.schema(
    [
        ("overload", pa.string()),
        ("dtype", pa.string()),
        ("invocation", pa.string()),
        # The call itself, and in each half precision.
        ("case_ids", pa.list_(pa.string())),
        ("models", pa.list_(pa.int16())),
        ("calls", pa.int32()),
    ]
)
#: Dtypes that a float32 model is cast to.
HALVES = ("float16", "bfloat16")
#: Calls of an operator among all and among the common ones: as models make them, in each half precision, and exported
#: with open sizes.
_ALL, _COMMON = (1_000_000, 1_000_000, 16), (8, 3, 1)


@dataclass(frozen=True)
class ModelUse:
    """A distinct call and the numbers of the models that make it."""

    invocation: Invocation
    models: tuple[int, ...]


def create(argument: str) -> FromUse:
    """Create the source of ``use`` or ``use:common``.

    Raises:
        UnknownName: another word follows the colon.
    """
    if argument not in ("", "common"):
        raise UnknownName("part of use", argument, ("common",))
    return FromUse(common=bool(argument))


@dataclass(frozen=True)
class FromUse:
    """Replays the calls of models.

    Attributes:
        common: Take the calls of most models alone.
    """

    common: bool = False
    name = "use"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return _rows().keys()

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        as_made, in_half, dynamic = _COMMON if self.common else _ALL
        uses = [use.invocation for use in model_calls(request.overload, as_made)]
        halves = [cast_call(call, dtype) for dtype in HALVES for call in uses[:in_half] if call.dtype == "float32"]
        found = {call.case_id: call for call in (*uses[:as_made], *halves)}
        calls = [call for call in found.values() if request.dtypes is None or call.dtype in request.dtypes]
        if not request.dynamic:
            return SourceFinding(grouped([(call, None) for call in calls]))
        return SourceFinding(resized(request, [call for call in calls if call.dtype not in HALVES][:dynamic]))


def cast_call(call: Invocation, dtype: str) -> Invocation:
    """Return a float32 call with its float32 tensors and dtype arguments in a half precision."""

    def cast(value: Argument) -> Argument:
        if isinstance(value, TensorSpec) and value.dtype == "float32":
            return replace(value, dtype=dtype)
        if isinstance(value, Enumerated) and value.kind == "dtype" and value.name == "float32":
            return replace(value, name=dtype)
        return tuple(map(cast, value)) if isinstance(value, tuple) else value

    return replace(call, arguments=tuple((name, cast(value)) for name, value in call.arguments))


def model_calls(overload: str, most: int = _ALL[0]) -> list[ModelUse]:
    """Return at most `most` distinct calls of an operator, those of most models first.

    Raises:
        ResultsError: the file is damaged.
    """
    try:
        return [ModelUse(Invocation.from_json(text), models) for text, models in _rows().get(overload, ())[:most]]
    except InvalidInvocation as error:
        raise _damaged(error) from None


@cache
def _rows() -> Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]]:
    """Return overload → the text of each call, and its models: calls that are not asked for are not read."""
    table = _table()
    found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    if table is None:
        return {}
    columns = (table[name].to_pylist() for name in ("overload", "invocation", "models"))
    for overload, text, models in zip(*columns, strict=True):
        found.setdefault(overload, []).append((text, tuple(models)))
    return {overload: tuple(rows) for overload, rows in found.items()}


@cache
def callers_by_case(*, as_made: bool = False) -> Mapping[str, tuple[int, ...]]:
    """Case id → the numbers of the models that make the call; in half precision, too, unless `as_made`."""
    table = _table()
    if table is None:
        return {}
    columns = zip(table["case_ids"].to_pylist(), table["models"].to_pylist(), strict=True)
    return {case_id: tuple(models) for ids, models in columns for case_id in (ids[:1] if as_made else ids)}


def using_models() -> tuple[tuple[str, str], ...]:
    """Return name and kind of each model, by number."""
    table = _table()
    metadata: Mapping[bytes, bytes] = (table.schema.metadata or {}) if table is not None else {}
    return tuple((name, kind) for name, kind in json.loads(metadata.get(b"models", b"[]")))


@cache
def _table() -> Any:
    try:
        path: Path = cases_directory() / FILE
    except CaseFileError:
        return None
    try:
        return pq.read_table(path) if path.exists() else None
    except (OSError, pa.ArrowException) as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> ResultsError:
    return ResultsError(
        f"cases/{FILE} cannot be read: {reason(error)}; `python ci/tables/operator_use.py` makes it anew"
    )
