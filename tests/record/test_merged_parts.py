"""The parts of a run that goes on, merged into fewer files: read meanwhile, and killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import part_writer
import pytest
from harness_runs import environment
from part_writer import rows_of_part
from sampling import sampled

from harness.record import layout, store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

pytestmark = pytest.mark.slowest(13)

ROWS = 2
INFO = RunInfo.begin(seed=1, options={})


def names(results: Path) -> list[str]:
    found: list[str] = store.read(results, ["case_id"])["case_id"].to_pylist()
    return found


class Writing:
    """A process that writes a run, part by part, until it is killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.flushed = 0
        self._process = process
        self._reader = threading.Thread(target=self._follow)
        self._reader.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            self.flushed += 1

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._reader.join()


@contextmanager
def writing(results: Path) -> Iterator[Writing]:
    words = [sys.executable, part_writer.__file__, str(results), str(ROWS)]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        found = Writing(process)
        try:
            yield found
        finally:
            found.kill()


@pytest.mark.parametrize("moment", sampled(range(4), every=4))
def test_every_row_is_there_once_whenever_it_is_read_and_whenever_the_run_is_killed(
    tmp_path: Path, moment: int
) -> None:
    results = tmp_path / "run"
    parts = random.Random(moment).randint(20, 340)
    with writing(results) as process:
        while process.flushed < parts:
            before = process.flushed
            if not before:
                time.sleep(0.01)
                continue
            found = names(results)
            assert found == [f"{n:012x}" for n in range(len(found))]
            assert len(found) >= before * ROWS
    found = names(results)
    assert found == [f"{n:012x}" for n in range(len(found))]
    assert len(found) - process.flushed * ROWS in (0, ROWS)
    store.finish(results)
    assert names(results) == found
    assert sorted(path.name for path in results.iterdir()) == ["run.json", "verdicts.parquet"]


@pytest.mark.slow
def test_a_killed_run_of_thousands_of_parts_is_a_few_files(tmp_path: Path) -> None:
    for worker in ("gw0", "gw1"):
        with RunWriter(tmp_path, INFO, worker) as writer:
            for part in range(300):
                writer.write(rows_of_part(part, ROWS))
                writer.flush()
    assert len(list((tmp_path / "parts").glob("*.parquet"))) == 600
    assert len(layout.part_files(tmp_path)) < 40
    assert len(names(tmp_path)) == 600 * ROWS


def test_a_part_that_could_not_be_merged_is_read_from_where_it_is(tmp_path: Path) -> None:
    with RunWriter(tmp_path, INFO) as writer:
        (tmp_path / "parts" / "merged").write_text("in the way")
        for part in range(20):
            writer.write(rows_of_part(part, ROWS))
            writer.flush()
    assert len(names(tmp_path)) == 20 * ROWS


def test_a_damaged_merged_file_is_named_and_nothing_is_lost_with_it(tmp_path: Path) -> None:
    with RunWriter(tmp_path, INFO) as writer:
        for part in range(20):
            writer.write(rows_of_part(part, ROWS))
            writer.flush()
    [merged] = (tmp_path / "parts" / "merged").iterdir()
    merged.write_bytes(b"PAR1")
    with pytest.raises(layout.ResultsError, match=r"\.\.00016\.parquet is damaged .*; delete that part"):
        store.read(tmp_path)
    merged.unlink()
    assert len(names(tmp_path)) == 20 * ROWS
