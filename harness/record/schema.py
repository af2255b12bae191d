"""The columns of the record, and verdicts as rows of it.

Strings are plain strings, dictionary-encoded by Parquet where they repeat: small on disk, and no
reader needs to know of it.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator

import pyarrow as pa

from harness.compare import Outcome, Stage, Verdict
from harness.core import without_escapes

_TYPES = {
    str: pa.string(),
    Stage: pa.string(),
    Outcome: pa.string(),
    int: pa.int64(),
    int | None: pa.int32(),
    float | None: pa.float64(),
    bool | None: pa.bool_(),
}


def _columns() -> Iterator[pa.Field]:
    yield pa.field("run_id", pa.string(), metadata={"description": "the run, as in run.json"})
    for name, hint in typing.get_type_hints(Verdict, include_extras=True).items():
        kind, description = typing.get_args(hint)
        yield pa.field(name, _TYPES[kind], metadata={"description": description})


#: One column per field of `Verdict`, after the run's id.
SCHEMA = pa.schema(list(_columns()))

#: Nearly every row has its own: a dictionary of them would only cost time.
_DISTINCT = {"case_id", "invocation"}
DICTIONARY_COLUMNS = [f.name for f in SCHEMA if f.type == pa.string() and f.name not in _DISTINCT]

_VERDICT_COLUMNS = SCHEMA.names[1:]
#: Others' words, which may hold what a terminal obeys.
_SAID = ("signature", "message", "evidence")


def to_table(verdicts: Iterable[Verdict], run_id: str) -> pa.Table:
    """Verdicts as rows of the record, in their order."""
    rows = list(verdicts)
    columns: dict[str, list[object]] = {"run_id": [run_id] * len(rows)}
    for name in _VERDICT_COLUMNS:
        columns[name] = [getattr(row, name) for row in rows]
    for name in ("stage", "outcome"):
        columns[name] = [str(value) for value in columns[name]]
    for name in _SAID:
        # What a dying process printed need not be text.
        columns[name] = [without_escapes(str(value)).encode(errors="replace").decode() for value in columns[name]]
    return pa.table(columns, schema=SCHEMA)


def to_verdicts(table: pa.Table) -> Iterator[Verdict]:
    """The rows of a table with all columns of the record, as verdicts.

    Raises:
        ValueError: a stage or an outcome is none.
    """
    for batch in table.select(_VERDICT_COLUMNS).to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            # Records of earlier versions hold them.
            said = {name: without_escapes(row[name]) for name in _SAID}
            yield Verdict(**{**row, **said, "stage": Stage(row["stage"]), "outcome": Outcome(row["outcome"])})
