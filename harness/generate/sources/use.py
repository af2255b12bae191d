"""The distinct calls of real models, as ``cases/use.parquet`` has them.

Each call that models make in float32 is run in float16 and bfloat16, too, as ``.half()`` and ``.bfloat16()`` would make
it. A run that names no source takes the calls of most models; ``--source use`` takes all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.invocation import Argument, Enumerated, InvalidInvocation, Invocation, TensorSpec
from harness.generate.cases_home import CaseFileError, cases_directory
from harness.generate.sources.source import Request, SourceFinding, grouped, resized
from harness.record.layout import ResultsError, reason

FILE = "use.parquet"
SCHEMA = pa.schema(
    [
        ("overload", pa.string()),
        ("dtype", pa.string()),
        ("invocation", pa.string()),
        ("models", pa.list_(pa.int16())),
        ("calls", pa.int32()),
    ]
)
#: What a model in float32 becomes.
HALVES = ("float16", "bfloat16")
#: Calls of an operator that a run takes that names no source, in float32 and in each half precision; and exports with
#: open sizes.
_BY_DEFAULT, _BY_DEFAULT_HALF = 12, 4


@dataclass(frozen=True)
class ModelUse:
    """A distinct call and the numbers of the models that make it."""

    invocation: Invocation
    models: tuple[int, ...]


@dataclass(frozen=True)
class FromUse:
    """Replays what models call.

    Attributes:
        whole: Take every call, rather than those of most models.
    """

    whole: bool = True
    name = "use"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return model_calls().keys()

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        found = {call.case_id: call for call in self._calls(request.overload)}
        calls = [call for call in found.values() if request.dtypes is None or call.dtype in request.dtypes]
        if not request.dynamic:
            return SourceFinding(grouped([(call, None) for call in calls]))
        bases = [call for call in calls if call.dtype not in HALVES]
        return SourceFinding(resized(request, bases if self.whole else bases[:1]))

    def _calls(self, overload: str) -> Iterator[Invocation]:
        uses = model_calls().get(overload, ())
        for use in uses if self.whole else uses[:_BY_DEFAULT]:
            yield use.invocation
        for dtype in HALVES:
            for use in uses if self.whole else uses[:_BY_DEFAULT_HALF]:
                if use.invocation.dtype == "float32":
                    yield in_dtype(use.invocation, dtype)


def in_dtype(call: Invocation, dtype: str) -> Invocation:
    """A float32 call with its float32 tensors, and what it asks for in float32, in a half precision."""

    def cast(value: Argument) -> Argument:
        if isinstance(value, TensorSpec) and value.dtype == "float32":
            return replace(value, dtype=dtype)
        if isinstance(value, Enumerated) and value.kind == "dtype" and value.name == "float32":
            return replace(value, name=dtype)
        return tuple(map(cast, value)) if isinstance(value, tuple) else value

    return replace(call, arguments=tuple((name, cast(value)) for name, value in call.arguments))


@cache
def model_calls() -> Mapping[str, tuple[ModelUse, ...]]:
    """Overload → its distinct calls, those of most models first.

    Raises:
        ResultsError: the file is damaged.
    """
    table = _table()
    found: dict[str, list[ModelUse]] = {}
    try:
        for row in table.to_pylist() if table is not None else ():
            use = ModelUse(Invocation.from_json(row["invocation"]), tuple(row["models"]))
            found.setdefault(row["overload"], []).append(use)
    except (InvalidInvocation, KeyError, TypeError) as error:
        raise ResultsError(
            f"cases/{FILE} cannot be read: {reason(error)}; `python ci/operator_use.py` makes it anew"
        ) from None
    return {overload: tuple(uses) for overload, uses in found.items()}


def using_models() -> tuple[tuple[str, str], ...]:
    """Name and kind of each model, by number."""
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
        raise ResultsError(
            f"{path} cannot be read: {reason(error)}; `python ci/operator_use.py` makes it anew"
        ) from None
