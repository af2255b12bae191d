"""The columns of the record, and verdicts as rows of it.

Strings are plain strings, dictionary-encoded by Parquet where they repeat: small on disk, and no
reader needs to know of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import pyarrow as pa

from harness.compare import Outcome, Stage, Verdict

_DESCRIPTIONS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("run_id", pa.string(), "the run, as in run.json"),
    ("case_id", pa.string(), "content hash of the invocation"),
    ("overload", pa.string(), "aten.celu.default; model.NAME for a whole model"),
    ("dtype", pa.string(), "the invocation's main dtype"),
    ("shape_mode", pa.string(), "static or dynamic"),
    ("source", pa.string(), "generated, opinfo, corpus, replay or model"),
    ("converter", pa.string(), ""),
    ("converter_version", pa.string(), ""),
    ("opset", pa.int32(), "that was emitted; null where the case got no model"),
    ("backend", pa.string(), ""),
    ("backend_version", pa.string(), ""),
    ("device", pa.string(), "cpu or cuda"),
    ("stage", pa.string(), "where the case ended"),
    ("outcome", pa.string(), "how"),
    ("blame", pa.string(), "empty for no failure"),
    ("signature", pa.string(), "empty for no failure"),
    ("max_abs_error", pa.float64(), "in the values' unit; null where nothing was compared"),
    ("max_rel_error", pa.float64(), "ratio"),
    ("max_ulp_error", pa.float64(), "units in the last place of the expected value"),
    ("mismatched_elements", pa.int64(), ""),
    ("total_elements", pa.int64(), "that were compared"),
    ("convert_ms", pa.float64(), "the case's share of its batch, milliseconds"),
    ("load_ms", pa.float64(), "likewise"),
    ("run_ms", pa.float64(), "likewise"),
    ("invocation", pa.string(), "JSON"),
    ("family", pa.string(), "the operator case's"),
    ("message", pa.string(), "the failure's own words"),
    ("structure_id", pa.string(), "shared by the cases that share an export"),
    ("rule", pa.string(), "the user's conversion function that took part"),
    ("evidence", pa.string(), "what the blame rests on"),
    ("exported_invocation", pa.string(), "JSON; empty where the invocation itself was exported"),
    ("needed_rtol", pa.float64(), "of the smallest (rtol, atol) that accepts all elements"),
    ("needed_atol", pa.float64(), "likewise, in the values' unit"),
    ("exported_id", pa.string(), "content hash of what was exported for the case"),
    ("reused_from", pa.string(), "the earlier run that found this; empty where its own did"),
)

SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"description": text} if text else None)
        for name, kind, text in _DESCRIPTIONS
    ]
)

#: Nearly every row has its own: a dictionary of them would only cost time.
_DISTINCT = {"case_id", "invocation"}
DICTIONARY_COLUMNS = [f.name for f in SCHEMA if f.type == pa.string() and f.name not in _DISTINCT]

_VERDICT_COLUMNS = tuple(f.name for f in dataclasses.fields(Verdict))


def to_table(verdicts: Iterable[Verdict], run_id: str) -> pa.Table:
    """Verdicts as rows of the record, in their order."""
    rows = list(verdicts)
    columns: dict[str, list[object]] = {"run_id": [run_id] * len(rows)}
    for name in _VERDICT_COLUMNS:
        columns[name] = [getattr(row, name) for row in rows]
    for name in ("stage", "outcome"):
        columns[name] = [str(value) for value in columns[name]]
    for name in ("signature", "message"):
        # What a dying process printed need not be text.
        columns[name] = [str(value).encode(errors="replace").decode() for value in columns[name]]
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def to_verdicts(table: pa.Table) -> Iterator[Verdict]:
    """The rows of a table with all columns of the record, as verdicts.

    Raises:
        ValueError: a stage or an outcome is none.
    """
    for batch in table.select(_VERDICT_COLUMNS).to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            yield Verdict(**{**row, "stage": Stage(row["stage"]), "outcome": Outcome(row["outcome"])})
