"""Reading and writing one Parquet file of the record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.record.layout import ResultsError, reason
from harness.record.schema import DICTIONARY_COLUMNS, SCHEMA

#: Columns without which a file is no record; any other may have been added by a later version.
IDENTIFYING = ("run_id", "case_id", "overload", "converter", "backend", "stage", "outcome", "invocation")


def open_writer(path: Path) -> pq.ParquetWriter:
    """A writer of record rows; checksums let a reader tell damage from data."""
    return pq.ParquetWriter(
        path, SCHEMA, compression="zstd", use_dictionary=DICTIONARY_COLUMNS, write_page_checksum=True
    )


def open_reader(path: Path) -> pq.ParquetFile:
    """Open a file of the record.

    Raises:
        ResultsError: it is no Parquet file, truncated, or holds something else.
    """
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise ResultsError(f"{path} is gone; another session may be finishing that run") from None
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None
    missing = [name for name in IDENTIFYING if name not in file.schema_arrow.names]
    if missing:
        file.close()
        raise ResultsError(f"{path} is no record of this harness: it has no column {', '.join(missing[:3])}")
    return file


def read(path: Path, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
    """The rows of one file.

    Args:
        path: The file.
        columns: Those wanted; None for all.
        where: Keeps only the rows for which it holds; may use other columns than `columns`.

    Raises:
        ResultsError: the file is damaged or is something else.

    A file of an older version is read as if it had the columns that came later: see `completed`.
    """
    wanted = list(columns or SCHEMA.names)
    with open_reader(path) as file:
        present = set(file.schema_arrow.names)
    try:
        if present.issuperset(SCHEMA.names):
            table = pq.read_table(path, columns=wanted, filters=where, page_checksum_verification=True)
        else:
            # The filter may name a column that the file lacks.
            table = completed(pq.read_table(path, page_checksum_verification=True))
            table = table if where is None else table.filter(where)
        return table.select(wanted).cast(pa.schema([SCHEMA.field(name) for name in wanted]))
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None


def completed(table: pa.Table) -> pa.Table:
    """A table of another version of the record with all columns of this one, in order.

    Columns that it lacks are "" where they hold text and null elsewhere.
    """
    columns = {}
    for field in SCHEMA:
        if field.name in table.column_names:
            columns[field.name] = table[field.name]
        else:
            empty = "" if field.type == pa.string() else None
            columns[field.name] = pa.repeat(pa.scalar(empty, field.type), table.num_rows)
    return pa.table(columns)


def damaged(path: Path, error: BaseException) -> ResultsError:
    """What to say of a file whose content cannot be read."""
    advice = (
        "delete that part to read the rest of the run"
        if path.parent.name == "parts"
        else "restore it from a copy or run again into another directory"
    )
    return ResultsError(f"{path} is damaged ({reason(error)}); {advice}")
