"""The Parquet files of the record: their columns, writing, reading.

Strings have plain string type; Parquet encodes repeated ones as dictionaries, which keeps files small and is invisible
to readers. Checksums of pages and of the whole file distinguish damage from data.
"""

from __future__ import annotations

import typing
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.text import strip_escapes
from harness.record.layout import MERGED_DIRECTORY, PARTS_DIRECTORY, PENDING_DIRECTORY, ResultsError, reason, replacing

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

#: Nearly every row has a distinct value, so a dictionary would only cost time.
_DISTINCT = {"case_id", "invocation"}
DICTIONARY_COLUMNS = [f.name for f in SCHEMA if f.type == pa.string() and f.name not in _DISTINCT]

_VERDICT_COLUMNS = SCHEMA.names[1:]
#: Text from exporters and runtimes, which may contain terminal sequences.
_SAID = ("signature", "message", "evidence")


def to_table(verdicts: Iterable[Verdict], run_id: str) -> pa.Table:
    """Return verdicts as rows of the record, in their order."""
    rows = list(verdicts)
    columns: dict[str, list[object]] = {"run_id": [run_id] * len(rows)}
    for name in _VERDICT_COLUMNS:
        columns[name] = [getattr(row, name) for row in rows]
    for name in ("stage", "outcome"):
        columns[name] = [str(value) for value in columns[name]]
    for name in _SAID:
        # A dying process may print bytes that are not text.
        columns[name] = [strip_escapes(str(value)).encode(errors="replace").decode() for value in columns[name]]
    return pa.table(columns, schema=SCHEMA)


def to_verdicts(table: pa.Table) -> Iterator[Verdict]:
    """Yield the rows of a table with all columns of the record as verdicts.

    Raises:
        ValueError: A stage or an outcome is invalid.
    """
    for batch in table.select(_VERDICT_COLUMNS).to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            # Early versions recorded terminal sequences.
            texts = {name: strip_escapes(row[name]) for name in _SAID}
            yield Verdict(**{**row, **texts, "stage": Stage(row["stage"]), "outcome": Outcome(row["outcome"])})


#: A file without these columns is not a record; others may have been added by a later version.
IDENTIFYING = ("run_id", "case_id", "overload", "converter", "backend", "stage", "outcome", "invocation")
#: Number of rows in memory while files are copied or checked; a row takes about 2 kB.
ROW_GROUP = 10_000

_CHECKED = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
#: Precedes the checksum in a file's metadata, a CRC-32 of 8 hexadecimal digits.
_SEAL = b"CRC-32 of the file with zeros for these digits: "
_DIGITS = 8
#: Format by whether columns with repeated strings are read as dictionaries.
_FORMATS = {
    False: ds.ParquetFileFormat(default_fragment_scan_options=_CHECKED),
    True: ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(dictionary_columns=DICTIONARY_COLUMNS),
        default_fragment_scan_options=_CHECKED,
    ),
}
_WORDS = pa.dictionary(pa.int32(), pa.string())
#: The exceptions that Arrow raises for damaged files.
_DAMAGE = (OSError, ValueError, pa.ArrowException)


@contextmanager
def open_writer(path: Path) -> Iterator[pq.ParquetWriter]:
    """Open a writer of record rows; it adds checksums of pages and of the file."""
    with pq.ParquetWriter(
        path, SCHEMA, compression="zstd", use_dictionary=DICTIONARY_COLUMNS, write_page_checksum=True
    ) as writer:
        yield writer
        writer.add_key_value_metadata({"checksum": _SEAL.decode() + "0" * _DIGITS})
    with path.open("r+b") as file:
        content = file.read()
        place, checksum = _sealed(content)
        file.seek(place)
        file.write(checksum)


def _sealed(content: bytes) -> tuple[int, bytes]:
    """Return the position of a file's checksum, 0 in files of earlier versions, and its correct value."""
    place = content.rfind(_SEAL) + len(_SEAL)
    if place < len(_SEAL):
        return 0, b""
    view = memoryview(content)
    checksum = zlib.crc32(view[:place])
    checksum = zlib.crc32(view[place + _DIGITS :], zlib.crc32(b"0" * _DIGITS, checksum))
    return place, f"{checksum:0{_DIGITS}x}".encode()


def _whole(path: Path) -> bytes:
    """Read a file and verify its checksum, which also covers columns that the caller does not read.

    Raises:
        ValueError: The file is damaged.
    """
    content = path.read_bytes()
    place, checksum = _sealed(content)
    if content[place : place + len(checksum)] != checksum:
        raise ValueError("its bytes are not those that were written")
    return content


def read(
    path: Path,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    encoded: bool = False,
) -> pa.Table:
    """Return the rows of one file; the arguments and exceptions are those of `pieces`."""
    tables = list(pieces(path, columns, where, encoded))
    return pa.concat_tables(tables) if tables else schema_of(columns, encoded).empty_table()


def pieces(
    path: Path,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    encoded: bool = False,
) -> Iterator[pa.Table]:
    """Yield the rows of one file by row group, so that memory can be reused.

    A file of an older version is read as if it had the columns that were added later: see `completed`.

    Args:
        path: The file.
        columns: The columns to read; None means all.
        where: Keeps only rows that satisfy it; it may use columns that are not read.
        encoded: Read columns with repeated strings as dictionaries, which takes a tenth of the memory and time.

    Raises:
        ResultsError: The file is damaged or not a record.
    """
    wanted = schema_of(columns, encoded)
    try:
        fragment = _FORMATS[encoded].make_fragment(pa.py_buffer(_whole(path)))
        schema = fragment.physical_schema.remove_metadata()
        _require_record(path, schema.names)
        # For small parts and for numbers, threads cost more than they save.
        threads = path.parent.name != PARTS_DIRECTORY and not encoded
        if set(schema.names).issuperset(SCHEMA.names):
            groups = fragment.split_by_row_group()
            if where is not None and len(groups) > 1:
                # Count matches first: the rows of one case, for instance, are in few row groups.
                groups = [g for g in groups if g.count_rows(filter=where, use_threads=False)]
            for group in groups:
                table = group.to_table(schema, wanted.names, filter=where, use_threads=threads)
                yield _cast(table, wanted)
        else:
            # The filter may use a column that the file lacks.
            table = completed(fragment.to_table(schema, use_threads=threads))
            yield _cast(table if where is None else table.filter(where), wanted)
    except _DAMAGE as error:
        raise damaged(path, error) from None


def _cast(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    table = table.select(wanted.names)
    return table if table.schema.equals(wanted) else table.cast(wanted)


def schema_of(columns: Sequence[str] | None = None, encoded: bool = False) -> pa.Schema:
    """Return the schema of the tables that `read` returns."""
    fields = (SCHEMA.field(name) for name in columns or SCHEMA.names)
    return pa.schema([f.with_type(_WORDS) if encoded and f.name in DICTIONARY_COLUMNS else f for f in fields])


def tables(paths: Iterable[Path]) -> Iterator[pa.Table]:
    """Yield all rows of some files, in tables of about `ROW_GROUP` rows.

    Raises:
        ResultsError: A file is damaged or not a record.
    """
    waiting: list[pa.Table] = []
    for path in paths:
        try:
            content = pa.BufferReader(_whole(path))
            with pq.ParquetFile(content, page_checksum_verification=True) as file:
                _require_record(path, file.schema_arrow.names)
                for batch in file.iter_batches(ROW_GROUP):
                    table = pa.Table.from_batches([batch])
                    waiting.append(table if table.schema.equals(SCHEMA) else completed(table).cast(SCHEMA))
                    if sum(table.num_rows for table in waiting) >= ROW_GROUP:
                        yield pa.concat_tables(waiting)
                        waiting = []
        except _DAMAGE as error:
            raise damaged(path, error) from None
    if waiting:
        yield pa.concat_tables(waiting)


def completed(table: pa.Table) -> pa.Table:
    """Return a table of another version of the record with exactly this version's columns.

    Missing columns hold "" if their type is text, else null.
    """
    columns = {}
    for field in SCHEMA:
        if field.name in table.column_names:
            columns[field.name] = table[field.name]
        else:
            empty = "" if field.type == pa.string() else None
            columns[field.name] = pa.repeat(pa.scalar(empty, field.type), table.num_rows)
    return pa.table(columns)


def concatenate(paths: Iterable[Path], path: Path) -> None:
    """Write all rows of some files to `path`, which appears only when it is complete.

    Raises:
        ResultsError: A file is damaged or not a record, or `path` cannot be written.
    """
    with replacing(path) as temporary, open_writer(temporary) as file:
        for rows in tables(paths):
            file.write_table(rows)


def count_rows(file: pa.NativeFile | Path) -> int:
    """Return the number of rows of a record file, reading only its footer.

    Raises:
        ValueError: It is truncated, not a Parquet file, or not a record.
    """
    try:
        with pq.ParquetFile(file) as opened:
            _require_record("", opened.schema_arrow.names)
            rows: int = opened.metadata.num_rows
    except (ResultsError, *_DAMAGE) as error:
        raise ValueError(reason(error)) from None
    return rows


def damaged(path: Path, error: BaseException) -> ResultsError:
    """Return the error for a file whose content cannot be read."""
    if isinstance(error, FileNotFoundError):
        return ResultsError(f"{path} is gone; another session may be finishing that run")
    advice = (
        "delete that part to read the rest of the run"
        if path.parent.name in (PARTS_DIRECTORY, MERGED_DIRECTORY, PENDING_DIRECTORY)
        else "restore it from a copy or run again into another directory"
    )
    return ResultsError(f"{path} is damaged ({reason(error)}); {advice}")


def _require_record(path: Path | str, names: Sequence[str]) -> None:
    missing = [name for name in IDENTIFYING if name not in names]
    if missing:
        what = f"not a record of this harness: it has no column {', '.join(missing[:3])}"
        raise ResultsError(f"{path} is {what}" if path else what)
