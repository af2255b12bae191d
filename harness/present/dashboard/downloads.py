"""The data behind the views as files for other tools: JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.causes.groups import FailureGroup
from harness.gate.case_changes import CHANGES, ChangeKind
from harness.present.dashboard.cells import STANDINGS, matrix_data
from harness.present.dashboard.coded import CodedRun
from harness.present.dashboard.embed import write_text
from harness.present.dashboard.site_model import SiteModel
from harness.present.tolerance_report import SCHEMA as TOLERANCE_SCHEMA, ErrorDistribution
from harness.record import layout

_TEXT, _WHOLE = pa.string(), pa.int64()
_OVERVIEW = pa.schema(
    [(name, _TEXT) for name in ("run_id", "started", "state", "converter", "backend")]
    + [(f"operators_{name}", _WHOLE) for name in STANDINGS]
    + [("cases_passed", _WHOLE), ("cases", _WHOLE)]
    + [(f"operators_ordinary_{name}", _WHOLE) for name in STANDINGS]
    + [("ordinary_cases_passed", _WHOLE), ("ordinary_cases", _WHOLE)]
)
_MATRIX = pa.schema(
    [(n, _TEXT) for n in ("overload", "family", "converter", "backend", "dtype", "outcome", "stage", "blame")]
    + [("ordinary", pa.bool_()), ("cases", _WHOLE)]
)
_CHANGES = pa.schema(
    [(n, _TEXT) for n in ("change", "case_id", "overload", "converter", "backend", "dtype")]
    + [(f"{name}_{side}", _TEXT) for side in ("before", "after") for name in ("outcome", "stage", "signature")]
    + [(f"max_ulp_error_{side}", pa.float64()) for side in ("before", "after")]
)
_FAILURES = pa.schema(
    [(n, _TEXT) for n in ("outcome", "stage", "blame", "cause")]
    + [("cases", _WHOLE), ("ordinary_cases", _WHOLE)]
    + [(n, _TEXT) for n in ("overloads", "dtypes", "converters", "backends", "case_id", "call", "message", "known")]
)


def write_downloads(
    directory: Path, built: SiteModel, tolerances: Sequence[ErrorDistribution], failures: Sequence[FailureGroup]
) -> None:
    """Write ``directory/download``.

    Raises:
        ResultsError: it cannot be written.
    """
    place = directory / "download"
    _write(place, "overview", list(_overview(built)), _OVERVIEW)
    if not built.runs:
        return
    _write(place, "matrix", list(_matrix(built)), _MATRIX)
    _write(place, "tolerances", [_plain(d) for d in tolerances], TOLERANCE_SCHEMA)
    _write(place, "failures", list(map(_failure, failures)), _FAILURES)
    _write(place, "changes", list(_changes(built)), _CHANGES)
    for number, run in enumerate(built.coded):
        _parquet(place / "cases" / f"run-{number:03d}.parquet", _cases(built, run))


def _write(place: Path, name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    write_text(place / f"{name}.json", _json(rows) + "\n")
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(schema.names)
    writer.writerows([_cell(row.get(column, "")) for column in schema.names] for row in rows)
    write_text(place / f"{name}.csv", text.getvalue())
    _parquet(place / f"{name}.parquet", pa.Table.from_pylist(rows, schema=schema))


def _json(rows: list[dict[str, Any]]) -> str:
    """Write plain rows as `json_text` does with an indent of 1, with the fast encoder, which cannot indent."""
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",\n  ", ": ")).encode
    texts = (encode({name: _finite(value) for name, value in row.items()})[1:-1] for row in rows)
    return "[\n" + ",\n".join(f" {{\n  {text}\n }}" for text in texts) + "\n]" if rows else "[]"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> Any:
    """Escape a value so that no spreadsheet takes it for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value


def _parquet(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with layout.replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _overview(built: SiteModel) -> Iterator[dict[str, Any]]:
    names = built.words.column_names
    for number, run in enumerate(built.runs):
        columns = built.columns_of(number)
        for column, counts in zip(columns, built.counts_of(number), strict=True):
            yield dict(
                zip(
                    _OVERVIEW.names,
                    (run.info.run_id, run.info.started, run.state, *names[column], *counts.to_data()),
                    strict=True,
                )
            )


def _matrix(built: SiteModel) -> Iterator[dict[str, Any]]:
    flat = matrix_data(built.coded[built.shown], built.rank, [])["cells"]
    names, buckets = built.words.column_names, list(map(asdict, built.words.buckets))
    place = 0
    while place < len(flat):
        operator, column, dtype, pairs = flat[place : place + 4]
        place += 4
        for _ in range(pairs):
            bucket, cases = flat[place : place + 2]
            place += 2
            converter, backend = names[column]
            yield {
                "overload": built.names[operator],
                "family": built.families[operator],
                "converter": converter,
                "backend": backend,
                "dtype": built.dtypes[dtype],
                **buckets[bucket],
                "cases": cases,
            }


def _plain(distribution: ErrorDistribution) -> dict[str, Any]:
    return {field.name: getattr(distribution, field.name) for field in fields(distribution)}


def _failure(group: FailureGroup) -> dict[str, Any]:
    return {
        **{name: str(getattr(group, name)) for name in ("outcome", "stage", "blame", "case_id", "call")},
        **{name: getattr(group.cause, name) for name in ("component", "place", "fault", "symptom")},
        "message": group.message,
        "cases": group.cases,
        "ordinary_cases": group.ordinary_cases,
        **{name: " ".join(getattr(group, name)) for name in ("overloads", "dtypes", "converters", "backends")},
        "known": " ".join(issue.link for issue in group.known),
    }


def _changes(built: SiteModel) -> Iterator[dict[str, Any]]:
    found = built.compared(built.shown)
    if found is None:
        return
    changes, before, after = found.changes, built.coded[found.before], built.coded[found.after]
    states, names = built.words.states, built.words.column_names
    # The files of the two runs' cases show the new and gone ones; with another seed that is everything.
    apart = [CHANGES.index(change) for change in (ChangeKind.UNCHANGED, ChangeKind.NEW, ChangeKind.GONE)]
    for place in np.flatnonzero(~np.isin(changes.change, apart)).tolist():
        old, new = int(changes.before[place]), int(changes.after[place])
        converter, backend = names[int(after.column[new])]
        line: dict[str, Any] = {
            "change": str(CHANGES[changes.change[place]]),
            "case_id": str(after.case[new]),
            "overload": built.words.operators.words[int(after.operator[new])],
            "converter": converter,
            "backend": backend,
            "dtype": built.dtypes[int(after.dtype[new])],
        }
        for side, coded, at in (("before", before, old), ("after", after, new)):
            state = states[int(coded.state[at])]
            for name in ("outcome", "stage", "signature"):
                line[f"{name}_{side}"] = getattr(state, name)
            ulp = float(coded.ulp[at])
            line[f"max_ulp_error_{side}"] = ulp if np.isfinite(ulp) else None
        yield line


def _cases(built: SiteModel, run: CodedRun) -> pa.Table:
    """Return the outcome of every case of a run."""
    names = built.words.column_names

    def words(numbers: Any, known: list[str]) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(known, pa.string()))

    states = built.words.states
    return pa.table(
        {
            "case_id": pa.array(run.case.tolist(), pa.string()),
            "overload": words(run.operator, built.words.operators.words),
            "converter": words(run.column, [converter for converter, _ in names]),
            "backend": words(run.column, [backend for _, backend in names]),
            "dtype": words(run.dtype, built.dtypes),
            "outcome": words(run.state, [state.outcome for state in states]),
            "stage": words(run.state, [state.stage for state in states]),
            "signature": words(run.state, [state.signature for state in states]),
            "max_ulp_error": pa.array(run.ulp, pa.float64(), from_pandas=True),
        }
    )
