"""The record on disk: real Parquet files, killed writers, damaged files."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pandas
import part_writer
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from commands import typed
from harness_runs import environment, row_of

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.record import layout, store
from harness.record.layout import ResultsError
from harness.record.parquet import SCHEMA
from harness.record.run_info import RunInfo, newest, read_run_info
from harness.record.writer import RunWriter

CONTRACT = [
    "run_id", "case_id", "overload", "dtype", "shape_mode", "source", "converter", "converter_version",
    "opset", "backend", "backend_version", "device", "stage", "outcome", "blame", "signature",
    "max_abs_error", "max_rel_error", "max_ulp_error", "mismatched_elements", "total_elements",
    "convert_ms", "load_ms", "run_ms", "invocation",
]  # fmt: skip


def verdict(number: int = 0, **changes: Any) -> Verdict:
    fields: dict[str, Any] = {
        "case_id": f"{number:012x}",
        "family": "activation",
        "dtype": "float32",
        "converter_version": "2.13.0",
        "opset": 18,
        "backend_version": "1.31.1",
        "max_abs_error": 1e-7,
        "total_elements": 6,
        "convert_ms": 10.5,
    }
    return row_of(Invocation("aten.celu.default", ()), **{**fields, **changes})


@pytest.fixture
def info() -> RunInfo:
    return RunInfo.begin(seed=7, options={"op": ["aten::celu"], "examples": 20}, runtimes=["onnxruntime"])


def written(directory: Path, info: RunInfo, batches: int = 3, size: int = 4) -> list[Verdict]:
    rows = [verdict(n, message=f"case {n}") for n in range(batches * size)]
    with RunWriter(directory, info) as writer:
        for start in range(0, len(rows), size):
            writer.write(rows[start : start + size])
            writer.flush()
    return rows


def test_a_record_has_the_columns_of_the_contract_first() -> None:
    assert SCHEMA.names[: len(CONTRACT)] == CONTRACT
    assert set(SCHEMA.names) == {"run_id", *(f.name for f in dataclasses.fields(Verdict))}


def test_a_record_gives_back_what_was_written(tmp_path: Path, info: RunInfo) -> None:
    odd = verdict(
        99,
        opset=None,
        outcome=Outcome.CRASH,
        stage=Stage.CONVERT,
        max_abs_error=float("nan"),
        max_rel_error=float("inf"),
        message="[red] \udc80 \x00 é\n",
    )
    rows = written(tmp_path, info)
    with RunWriter(tmp_path, info, "gw0") as writer:
        writer.write([odd])
    back = sorted(store.verdicts(tmp_path), key=lambda row: row.case_id)
    assert back[:-1] == rows
    assert back[-1].opset is None
    assert back[-1].outcome is Outcome.CRASH
    assert back[-1].max_rel_error == float("inf")
    assert back[-1].message == "[red] ? \x00 é\n"


def test_merging_keeps_every_row_and_the_users_files(tmp_path: Path, info: RunInfo) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    written(tmp_path, info)
    parts = store.read(tmp_path)
    assert not read_run_info(tmp_path).finished
    ended = store.finish(tmp_path, exit_status=1)
    assert store.read(tmp_path).equals(parts)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "run.json", "verdicts.parquet"]
    assert read_run_info(tmp_path) == ended
    assert ended.exit_status == 1
    assert ended.finished is not None
    assert ended.started <= ended.finished
    assert store.finish(tmp_path, exit_status=0) == ended


def test_finishing_goes_on_where_it_was_cut_off(tmp_path: Path, info: RunInfo) -> None:
    rows = written(tmp_path, info)
    [part, *_], kept = layout.part_files(tmp_path), layout.part_files(tmp_path)[0].read_bytes()
    store.finish(tmp_path)
    (tmp_path / "parts").mkdir()
    part.write_bytes(kept)
    (tmp_path / "run.json").write_text(info.json)
    assert store.finish(tmp_path).finished
    assert store.read(tmp_path).num_rows == len(rows)
    assert not (tmp_path / "parts").exists()


def test_a_run_without_rows_is_a_table_without_rows(tmp_path: Path, info: RunInfo) -> None:
    RunWriter(tmp_path / "new" / "run", info).close()
    assert store.read(tmp_path / "new" / "run").num_rows == 0
    store.finish(tmp_path / "new" / "run")
    assert store.read(tmp_path / "new" / "run", ["case_id"]).schema.names == ["case_id"]


def test_pyarrow_duckdb_and_pandas_read_it_without_help(tmp_path: Path, info: RunInfo) -> None:
    rows = written(tmp_path, info)
    with RunWriter(tmp_path, info, "gw1") as writer:
        writer.write([verdict(100, outcome=Outcome.MISMATCH, overload="aten.add.Tensor")])
    store.finish(tmp_path)
    path = str(tmp_path / "verdicts.parquet")

    assert pq.read_table(path).schema.field("opset").type == pa.int32()
    frame = pandas.read_parquet(path)
    assert (frame.groupby("overload").outcome.value_counts()["aten.celu.default"]["pass"]) == len(rows)
    query = "select overload, outcome, count(*), min(max_abs_error) from read_parquet(?) group by all order by 1"
    assert duckdb.execute(query, [path]).fetchall() == [
        ("aten.add.Tensor", "mismatch", 1, 1e-7),
        ("aten.celu.default", "pass", len(rows), 1e-7),
    ]
    data = json.loads((tmp_path / "run.json").read_text())
    assert data["seed"] == 7
    assert {"python", "torch", "onnx", "onnxruntime", "hypothesis"} <= set(data["versions"])
    assert str(Path.home()) not in json.dumps(data["host"])


def test_a_killed_run_keeps_all_but_its_last_batch(tmp_path: Path) -> None:
    words = [sys.executable, part_writer.__file__, str(tmp_path / "run"), "10"]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        flushed = 5 + len(process.stdout.readlines())
    assert process.returncode == -signal.SIGKILL
    ids = store.read(tmp_path / "run")["case_id"].to_pylist()
    assert ids[: flushed * 10] == [f"{n:012x}" for n in range(flushed * 10)]
    assert len(ids) - flushed * 10 in (0, 10)
    store.finish(tmp_path / "run")
    assert store.read(tmp_path / "run")["case_id"].to_pylist() == ids
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_workers_share_a_run(tmp_path: Path, info: RunInfo) -> None:
    RunWriter(tmp_path, info).close()

    def work(worker: int) -> None:
        with RunWriter(tmp_path, info, f"gw{worker}") as writer:
            for batch in range(20):
                writer.write(verdict(worker * 1000 + batch * 10 + n) for n in range(10))
                writer.flush()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (0, 1)))
    store.finish(tmp_path)
    ids = store.read(tmp_path)["case_id"].to_pylist()
    assert len(set(ids)) == len(ids) == 400


@pytest.mark.parametrize("remains", ["run.json", "verdicts.parquet", "parts"])
def test_remains_of_a_run_are_not_overwritten(tmp_path: Path, info: RunInfo, remains: str) -> None:
    if remains == "parts":
        (tmp_path / remains).mkdir()
    else:
        (tmp_path / remains).write_text("damaged")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ResultsError, match="already holds a run; nothing was overwritten"):
        RunWriter(tmp_path, info)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_is_not_overwritten_by_another_or_by_itself(tmp_path: Path, info: RunInfo) -> None:
    rows = written(tmp_path, info)
    with pytest.raises(ResultsError, match="already holds a run"):
        RunWriter(tmp_path, RunInfo.begin(seed=7, options={}))
    with pytest.raises(ResultsError, match="already holds a run"):
        RunWriter(tmp_path, info)
    assert store.read(tmp_path).num_rows == len(rows)
    store.finish(tmp_path)
    with pytest.raises(ResultsError, match="already holds a run"):
        RunWriter(tmp_path, info, "gw0")


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path, info: RunInfo) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ResultsError, match=r"cannot write results to .*--results-dir") as caught:
            RunWriter(target, info)
        assert "\n" not in str(caught.value)


def test_rows_survive_a_failed_flush(tmp_path: Path, info: RunInfo) -> None:
    writer = RunWriter(tmp_path, info)
    (tmp_path / "parts").rename(tmp_path / "away")
    writer.write([verdict(1)])
    with pytest.raises(ResultsError, match="cannot write"):
        writer.flush()
    (tmp_path / "away").rename(tmp_path / "parts")
    writer.close()
    assert store.read(tmp_path).num_rows == 1


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 4
    return content[:middle] + bytes(b ^ 0xFF for b in content[middle : middle + 8]) + content[middle + 8 :]


@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b"PAR1 no", _flipped],
    ids=["empty", "truncated", "garbage", "flipped"],
)  # fmt: skip
@pytest.mark.parametrize("finished", [True, False])
def test_a_damaged_file_is_named(tmp_path: Path, info: RunInfo, finished: bool, damage: Any) -> None:
    written(tmp_path, info)
    if finished:
        store.finish(tmp_path)
    file = tmp_path / "verdicts.parquet" if finished else layout.part_files(tmp_path)[1]
    file.write_bytes(damage(file.read_bytes()))
    for attempt in (store.read, lambda path: list(store.verdicts(path))):
        with pytest.raises(ResultsError) as caught:
            attempt(tmp_path)
        assert str(caught.value).startswith(f"{file} is damaged (")
        assert "\n" not in str(caught.value)
    if not finished:
        with pytest.raises(ResultsError, match="delete that part to read the rest"):
            store.finish(tmp_path)
        assert not (tmp_path / "verdicts.parquet").exists()
        file.unlink()
        assert store.read(tmp_path).num_rows == 8


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"case_id": ["a"]}), tmp_path / "verdicts.parquet")
    with pytest.raises(ResultsError, match="not a record of this harness: it has no column run_id"):
        store.read(tmp_path)
    with pytest.raises(ResultsError, match="holds no run"):
        store.read(tmp_path / "absent")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"run_id": 1}', '{"run_id": "a", "started": "", "seed": 1'])
def test_a_damaged_description_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ResultsError, match=r"run\.json is damaged"):
        read_run_info(tmp_path)


def test_reads_only_what_is_asked_for(tmp_path: Path, info: RunInfo) -> None:
    written(tmp_path, info)
    table = store.read(tmp_path, ["overload"], pc.field("case_id") == f"{3:012x}")
    assert table.to_pylist() == [{"overload": "aten.celu.default"}]


def test_a_case_is_found_by_the_beginning_of_its_id(tmp_path: Path, info: RunInfo) -> None:
    with RunWriter(tmp_path, info) as writer:
        for case_id in ("abc123", "abc999", "def456"):
            writer.write([verdict(case_id=case_id), verdict(case_id=case_id, backend="onnx-reference")])
    assert store.resolve_case(tmp_path, "d") == "def456"
    assert {row.backend for row in store.case(tmp_path, "abc1")} == {"ort-cpu", "onnx-reference"}
    with pytest.raises(ResultsError, match=r"'abc' begins 2 cases of .*: abc123, abc999"):
        store.case(tmp_path, "abc")
    with pytest.raises(ResultsError, match="has no case 'abd123' among its 3; near: abc123"):
        store.case(tmp_path, "abd123")


def test_run_ids_sort_by_time_and_differ() -> None:
    runs = []
    for _ in range(5):
        runs.append(RunInfo.begin(seed=0, options={}))
        time.sleep(0.002)
    ids = [run.run_id for run in runs]
    assert ids == sorted(ids)
    assert len({RunInfo.begin(seed=0, options={}).run_id for _ in range(20)}) == 20
    assert RunInfo.from_json(runs[0].json) == runs[0]


def test_the_newest_run_is_the_one_that_began_last(tmp_path: Path) -> None:
    assert newest(tmp_path / "results") is None
    for name in ("zebra", "ant"):
        info = RunInfo.begin(seed=0, options={})
        RunWriter(layout.default_directory(name, tmp_path), info).close()
        time.sleep(0.002)
    (tmp_path / "results" / "nothing").mkdir()
    (tmp_path / "results" / "broken").mkdir()
    (tmp_path / "results" / "broken" / "run.json").write_text("")
    assert newest(tmp_path / "results") == tmp_path / "results" / "ant"


@pytest.mark.slow
def test_memory_stays_modest_over_many_rows(tmp_path: Path, info: RunInfo) -> None:
    invocation = json.dumps({"overload": "aten.celu.default", "filling": "x" * 1000})
    with RunWriter(tmp_path, info) as writer:
        for start in range(0, 20_000, 100):
            writer.write(verdict(n, invocation=f"{n}{invocation}") for n in range(start, start + 100))
            writer.flush()
        before = psutil.Process().memory_info().rss
    store.finish(tmp_path)
    assert psutil.Process().memory_info().rss - before < 100 * 2**20
    assert pq.ParquetFile(tmp_path / "verdicts.parquet").metadata.num_rows == 20_000
    assert sum(1 for _ in store.verdicts(tmp_path, pc.field("case_id") < f"{10:012x}")) == 10


def _bent(path: Path, column: str) -> None:
    """Flip a byte of a column, and nothing of the others."""
    content = bytearray(path.read_bytes())
    group = pq.ParquetFile(path).metadata.row_group(0)
    [chunk] = [found for found in map(group.column, range(group.num_columns)) if found.path_in_schema == column]
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("words", [("failures",), ("tolerance",), ("summary",)], ids=" ".join)
def test_damage_in_any_column_is_found(words: tuple[str, ...], tmp_path: Path, info: RunInfo) -> None:
    written(tmp_path, info)
    store.finish(tmp_path)
    file = tmp_path / "verdicts.parquet"
    typed(*words, tmp_path)
    # None of the commands reads it.
    _bent(file, "run_ms")
    done = typed(*words, tmp_path, status=2)
    assert done.output == (
        f"Error: {file} is damaged (its bytes are not those that were written); "
        "restore it from a copy or run again into another directory\n"
    )


def test_a_file_of_an_earlier_version_has_no_checksum(tmp_path: Path, info: RunInfo) -> None:
    written(tmp_path, info)
    store.finish(tmp_path)
    file = tmp_path / "verdicts.parquet"
    rows = pq.read_table(file)
    pq.write_table(rows.replace_schema_metadata(), file)
    assert store.read(tmp_path).num_rows == rows.num_rows
