"""Whether a run can be kept: whether it is whole and undamaged, and if not, why."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.record import layout, parquet
from harness.record.json_lines import read_flaky, read_minimal
from harness.record.layout import ResultsError, reason
from harness.record.run_info import read_run_info

#: Rows that are in memory at once while a file is checked.
_ROWS = 10_000


def complaint(run: Path) -> str | None:
    """Why the run in a local directory is to be set aside; None for a sound one. Reads all of it."""
    try:
        info = read_run_info(run)
        if not re.fullmatch(r"[\w.-]+", info.run_id):
            return f"its run id {info.run_id!r} cannot name a directory"
        if not is_time(info.started):
            return f"its `started` is no time: {info.started}"
        if info.shard is not None:
            part = f"{info.shard.get('index')}/{info.shard.get('count')}"
            return f"it is shard {part} of a run: put them together with `conformance merge`"
        verdicts = run / layout.VERDICTS_FILE
        if info.finished is None or not verdicts.exists():
            return "it did not finish: it was killed or is still running"
        rows = 0
        with parquet.open_reader(verdicts) as file:
            for batch in _batches(file, verdicts):
                rows += batch.num_rows
        if not rows:
            return "it holds no case"
        read_flaky(run)
        read_minimal(run)
    except ResultsError as error:
        return str(error)
    return None


def is_time(text: str) -> bool:
    """Whether runs can be put in order by it: ISO 8601 with a time zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _batches(file: pq.ParquetFile, path: Path) -> Any:
    """Every row, so that every checksum is compared."""
    try:
        yield from file.iter_batches(_ROWS)
    except (OSError, pa.ArrowException) as error:
        raise parquet.damaged(path, error) from None


def rows_of(file: Any) -> int:
    """How many rows a Parquet file of the record has, from its last bytes alone.

    Args:
        file: Opened for reading, at any position.

    Raises:
        ValueError: it is truncated, no Parquet, or no record.
    """
    try:
        with pq.ParquetFile(file) as opened:
            missing = [name for name in parquet.IDENTIFYING if name not in opened.schema_arrow.names]
            rows: int = opened.metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        raise ValueError(reason(error)) from None
    if missing:
        raise ValueError(f"no record of this harness: it has no column {', '.join(missing[:3])}")
    return rows
