"""Writing a run as it goes, so that a killed one keeps everything but its last batch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from harness.compare import Verdict
from harness.record import layout, parquet, progress
from harness.record.layout import ResultsError, reason
from harness.record.run_info import RunInfo, read_run_info, write_run_info
from harness.record.schema import to_table

#: So many parts are merged into a file, and so many of these files into a larger one.
_MERGED = 16


class RunWriter:
    """Writes one worker's rows of a run.

    The first writer of a run creates its directory; those that come with the same run id and another
    worker's name join it. Every `flush` makes one more part file, complete from the moment that it has
    its name. So that thousands of parts need not be opened by a reader, they are merged as the run goes.
    """

    def __init__(self, results_dir: Path, run_info: RunInfo, worker: str = "main") -> None:
        """Create the run in `results_dir`, or join it there.

        Args:
            results_dir: May exist, with anything in it but a run.
            worker: Names this process's parts; letters, digits, ``_`` and ``-``.

        Raises:
            ResultsError: the directory cannot be written or holds another run or the remains of one.
        """
        if not re.fullmatch(r"[\w-]+", worker):
            raise ValueError(f"{worker!r} cannot name a file")
        self._directory = results_dir
        self._run_id = run_info.run_id
        self._worker = worker
        self._rows: list[Verdict] = []
        self._parts = 0
        if layout.holds_run(results_dir):
            self._join()
        else:
            self._create(run_info)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, verdicts: Iterable[Verdict]) -> None:
        """Keep rows for the next `flush`."""
        self._rows.extend(verdicts)

    def flush(self) -> None:
        """Write what was kept, in one part.

        Raises:
            ResultsError: it cannot be written; the rows are kept.
        """
        if not self._rows:
            return
        table, number = to_table(self._rows, self._run_id), self._parts + 1
        path = layout.part_file(self._directory, self._worker, number, number)
        with layout.replacing(path) as temporary, parquet.open_writer(temporary) as file:
            file.write_table(table)
        self._parts += 1
        self._rows.clear()
        self._merge(1)
        self._merge(_MERGED)

    def done(self, overload: str, unit: str) -> None:
        """Flush, and note that all rows of a unit, ``dynamo`` or ``dynamo-dynamic``, are written."""
        self.flush()
        progress.note(self._directory, self._worker, "done", [(overload, unit)])

    def leave_out(self, units: Iterable[tuple[str, str]]) -> None:
        """Note planned units, (overload, unit), that the user deselected."""
        progress.note(self._directory, self._worker, "left", units)

    def close(self) -> None:
        """Flush; the run is left open for other workers and for `store.finish`."""
        self.flush()

    def _merge(self, size: int) -> None:
        """Put the newest files of `size` parts each in one, beside which they stay, if there are enough."""
        last = self._parts
        if last % (size * _MERGED):
            return
        first = last + 1 - size * _MERGED
        starts = range(first, last + 1, size)
        sources = [layout.part_file(self._directory, self._worker, n, n + size - 1) for n in starts]
        merged = layout.part_file(self._directory, self._worker, first, last)
        # Whatever is wrong with a file or the disk, the rows are in the parts, and who reads them is told.
        with suppress(ResultsError, OSError):
            merged.parent.mkdir(exist_ok=True)
            parquet.concatenate(sources, merged)

    def _create(self, run_info: RunInfo) -> None:
        parts = self._directory / layout.PARTS_DIRECTORY
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            parts.mkdir()
        except OSError as error:
            # Of two sessions that create a run here at once, `mkdir` lets one through.
            if parts.exists():
                raise layout.refusal(self._directory) from None
            raise ResultsError(
                f"cannot write results to {self._directory}: {reason(error)}; "
                "choose another place with --results-dir"
            ) from None
        write_run_info(self._directory, run_info)

    def _join(self) -> None:
        try:
            same = read_run_info(self._directory).run_id == self._run_id
        except ResultsError:
            same = False
        parts = self._directory / layout.PARTS_DIRECTORY
        if not same or not parts.is_dir() or any(parts.glob(f"{self._worker}-?????.parquet")):
            raise layout.refusal(self._directory)
