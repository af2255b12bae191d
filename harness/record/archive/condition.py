"""Whether a run can be kept: whether it is whole and undamaged, and if not, why."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from harness.record import layout, parquet
from harness.record.json_lines import read_flaky, read_minimal
from harness.record.layout import ResultsError
from harness.record.run_info import read_run_info


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
        # Reading every row compares every checksum.
        if not sum(table.num_rows for table in parquet.tables([verdicts])):
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
