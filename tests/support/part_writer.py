"""A process that writes a run, part by part, and reports each part, until it is killed.

python tests/support/part_writer.py RUN ROWS
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from recorded_rows import row_of

from harness.compare.verdict import Verdict
from harness.core.invocation import Invocation
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter


def rows_of_part(part: int, rows: int) -> Iterator[Verdict]:
    """Yield rows whose ids count on from those of the parts before."""
    celu = Invocation("aten.celu.default", ())
    return (row_of(celu, case_id=f"{part * rows + row:012x}") for row in range(rows))


if __name__ == "__main__":
    writer = RunWriter(Path(sys.argv[1]), RunInfo.begin(seed=1, options={}))
    for number in range(1_000_000):
        writer.write(rows_of_part(number, int(sys.argv[2])))
        writer.flush()
        print(number, flush=True)
