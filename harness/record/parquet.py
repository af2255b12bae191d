"""Reading and writing one Parquet file of the record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.record.errors import ResultsError, reason
from harness.record.schema import DICTIONARY_COLUMNS, SCHEMA


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
    missing = [name for name in SCHEMA.names if name not in file.schema_arrow.names]
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
    """
    wanted = list(columns or SCHEMA.names)
    open_reader(path).close()
    try:
        table = pq.read_table(path, columns=wanted, filters=where, page_checksum_verification=True)
        return table.select(wanted).cast(pa.schema([SCHEMA.field(name) for name in wanted]))
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: BaseException) -> ResultsError:
    """What to say of a file whose content cannot be read."""
    advice = (
        "delete that part to read the rest of the run"
        if path.parent.name == "parts"
        else "restore it from a copy or run again into another directory"
    )
    return ResultsError(f"{path} is damaged ({reason(error)}); {advice}")
