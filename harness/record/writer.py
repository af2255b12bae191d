"""Write a run while it is in progress, so that a killed run loses at most its last quarter of a second."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from harness.compare.verdict import CaseKey, Verdict
from harness.record import layout, parquet, progress
from harness.record.layout import ResultsError, reason
from harness.record.parquet import to_table
from harness.record.run_info import RunInfo, read_run_info, write_run_info

#: This many parts are merged into one file, and as many of these into a larger one.
_MERGED = 16


class RunWriter:
    """Writes one worker's rows of a run.

    The first writer creates the run's directory; writers with the same run id and another worker's name join it. Every
    `flush` adds a part file, which is complete as soon as it has its name. Rows are flushed `DELAY` seconds after they
    arrive, whatever the process is doing. Parts are merged during the run, so that readers need not open thousands of
    files. Rows that are provisional because their blame is still open are held: they count as rows of the run until
    `write` gets the final row of the same case.
    """

    #: Seconds.
    DELAY = 0.25

    def __init__(self, results_dir: Path, run_info: RunInfo, worker: str = "main") -> None:
        """Create the run in `results_dir`, or join it.

        Args:
            results_dir: The directory; it must not contain another run.
            run_info: The run.
            worker: Prefix of this process's parts: letters, digits, ``_`` and ``-``.

        Raises:
            ResultsError: The directory cannot be written, or contains another run or part of one.
        """
        if not re.fullmatch(r"[\w-]+", worker):
            raise ValueError(f"{worker!r} cannot name a file")
        self._directory = results_dir
        self._run_id = run_info.run_id
        self._worker = worker
        self._rows: list[Verdict] = []
        self._held: dict[CaseKey, Verdict] = {}
        #: Whether `_held` differs from the newest pending file.
        self._held_changed = False
        self._parts = 0
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        #: The error of the last flush in the background.
        self._problem: ResultsError | None = None
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
        """Add final rows; each replaces the held row of its case.

        Raises:
            ResultsError: Earlier rows could not be written; they are kept.
        """
        with self._lock:
            for verdict in verdicts:
                self._rows.append(verdict)
                self._held_changed |= self._held.pop(verdict.case_key, None) is not None
        self._flush_soon()

    def hold(self, verdicts: Iterable[Verdict]) -> None:
        """Add provisional rows, which count until `write` replaces them; raises as `write` does."""
        with self._lock:
            for verdict in verdicts:
                self._held[verdict.case_key] = verdict
                self._held_changed = True
        self._flush_soon()

    def flush(self) -> None:
        """Write all final rows to a new part, and the held ones to a pending file.

        Raises:
            ResultsError: They cannot be written; the rows are kept.
        """
        with self._lock:
            self._cancel_timer()
            self._problem = None
            if self._rows or self._held_changed:
                self._write_part()

    def _flush_soon(self) -> None:
        with self._lock:
            if self._problem is not None:
                raise self._problem
            if self._timer is None:
                self._timer = threading.Timer(self.DELAY, self._flush_in_background)
                self._timer.daemon = True
                self._timer.start()

    def _flush_in_background(self) -> None:
        try:
            self.flush()
        except ResultsError as error:
            self._problem = error

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_part(self) -> None:
        number = self._parts + 1
        # The part is written last: its appearance makes its pending rows replace the earlier ones.
        if self._held:
            held = layout.pending_file(self._directory, self._worker, number)
            with suppress(OSError):
                held.parent.mkdir(exist_ok=True)
            self._write_file(self._held.values(), held)
        self._write_file(self._rows, layout.part_file(self._directory, self._worker, number, number))
        self._parts += 1
        self._rows.clear()
        self._held_changed = False
        with suppress(OSError):
            layout.pending_file(self._directory, self._worker, number - 1).unlink(missing_ok=True)
        self._merge(1)
        self._merge(_MERGED)

    def done(self, overload: str, unit: str) -> None:
        """Flush, and note that all rows of a unit, ``dynamo`` or ``dynamo-dynamic``, are written."""
        self.flush()
        progress.note(self._directory, self._worker, "done", [(overload, unit)])

    def leave_out(self, units: Iterable[tuple[str, str]]) -> None:
        """Note planned units, as pairs of overload and unit, that the user deselected."""
        progress.note(self._directory, self._worker, "left", units)

    def close(self) -> None:
        """Flush; the run stays open for other workers and for `store.finish`. Held rows stay in the run."""
        self.flush()

    def _write_file(self, verdicts: Iterable[Verdict], path: Path) -> None:
        table = to_table(verdicts, self._run_id)
        with layout.replacing(path) as temporary, parquet.open_writer(temporary) as file:
            file.write_table(table)

    def _merge(self, size: int) -> None:
        """Merge the newest files of `size` parts each into one, if there are enough; they are kept."""
        last = self._parts
        if last % (size * _MERGED):
            return
        first = last + 1 - size * _MERGED
        starts = range(first, last + 1, size)
        sources = [layout.part_file(self._directory, self._worker, n, n + size - 1) for n in starts]
        merged = layout.part_file(self._directory, self._worker, first, last)
        # Errors do not matter here: the rows are still in the parts, and readers report damage.
        with suppress(ResultsError, OSError):
            merged.parent.mkdir(exist_ok=True)
            parquet.concatenate(sources, merged)

    def _create(self, run_info: RunInfo) -> None:
        parts = self._directory / layout.PARTS_DIRECTORY
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            parts.mkdir()
        except OSError as error:
            # If two sessions create a run here at the same time, `mkdir` succeeds for one of them.
            if parts.exists():
                raise layout.already_exists(self._directory) from None
            raise ResultsError(
                f"cannot write results to {self._directory}: {reason(error)}; choose another place with --results-dir"
            ) from None
        write_run_info(self._directory, run_info)

    def _join(self) -> None:
        try:
            same = read_run_info(self._directory).run_id == self._run_id
        except ResultsError:
            same = False
        parts = self._directory / layout.PARTS_DIRECTORY
        if not same or not parts.is_dir() or any(parts.glob(f"{self._worker}-?????.parquet")):
            raise layout.already_exists(self._directory)
