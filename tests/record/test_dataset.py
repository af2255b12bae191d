"""Runs kept together: on several file systems, by several jobs at once, with damaged ones among them."""

from __future__ import annotations

import dataclasses
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import fsspec.implementations.memory
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from commands import answered, entered, typed
from dataset_places import KINDS, url
from harness_runs import recorded, row_of, unary
from writers import add_to_dataset

from harness.record import layout, store
from harness.record.archive.archive import AddResult, ArchiveContents, ArchivedRun, Dataset
from harness.record.archive.place import Location
from harness.record.run_info import RunInfo, write_run_info
from harness.record.writer import RunWriter

CELU = "aten.celu.default"
#: A byte of the case ids of a small file; before them are a header and the run id.
_DATA = 300


def make_run(
    parent: Path, started: str = "2026-11-20T01:00:00.000+00:00", *, rows: int = 3, finished: bool = True
) -> Path:
    """A recorded run that began at `started`."""
    info = RunInfo.begin(seed=0, options={"converter": ["dynamo"], "backend": ["ort-cpu"]})
    info = dataclasses.replace(info, started=started)
    run = parent / info.run_id
    with RunWriter(run, info) as writer:
        writer.write(row_of(unary(CELU, [float(n)])) for n in range(rows))
    if finished:
        store.finish(run, 0)
    return run


def cli(*words: str | Path) -> Result:
    return entered("dataset", *words)


def done(*words: str | Path) -> str:
    return typed("dataset", *words).output


def asked(*words: str | Path) -> Any:
    return answered("dataset", *words)


def ids(dataset: str) -> list[str]:
    return [run["run_id"] for run in asked("list", dataset)["runs"]]


@pytest.mark.parametrize("kind", KINDS)
def test_runs_go_in_and_come_out_on_any_file_system(kind: str, tmp_path: Path) -> None:
    dataset = url(kind, tmp_path)
    old, new = make_run(tmp_path), make_run(tmp_path, "2026-11-21T01:00:00.000+00:00", rows=5)
    (new / "minimal.jsonl").write_text("")
    (new / layout.WITHOUT_RULES_DIRECTORY).mkdir()
    shutil.copy(old / layout.RUN_FILE, new / layout.WITHOUT_RULES_DIRECTORY)

    done("add", new, old, "--to", dataset)
    listed = asked("list", dataset)
    assert [(run["run_id"], run["verdicts"]) for run in listed["runs"]] == [(old.name, 3), (new.name, 5)]
    assert listed["damaged"] == listed["set_aside"] == []
    assert listed["runs"][0]["backends"] == ["ort-cpu"]

    out = tmp_path / "out"
    assert done("fetch", dataset, "--out", out).split() == [str(out / old.name), str(out / new.name)]
    for run in (old, new):
        files = {file.relative_to(run) for file in run.rglob("*")}
        assert {file.relative_to(out / run.name) for file in (out / run.name).rglob("*")} == files
        assert all((run / f).read_bytes() == (out / run.name / f).read_bytes() for f in files if (run / f).is_file())
    assert not Location(dataset).files("adding")

    done("keep", dataset, "--last", "1", "--delete")
    assert ids(dataset) == [new.name]
    assert not Location(dataset).files(f"run_id={old.name}")


@pytest.mark.parametrize("kind", ["path", "memory"])
def test_duckdb_reads_it_by_run(kind: str, tmp_path: Path) -> None:
    dataset = url(kind, tmp_path)
    runs = [make_run(tmp_path, rows=rows) for rows in (2, 4)]
    killed = make_run(tmp_path, finished=False)
    assert cli("add", *runs, killed, "--to", dataset).exit_code == 1
    with duckdb.connect() as connection:
        connection.register_filesystem(fsspec.filesystem("memory"))
        found = connection.sql(
            f"SELECT run_id, count(*) FROM read_parquet('{dataset}/run_id=*/verdicts.parquet', "
            "hive_partitioning = true) WHERE overload = 'aten.celu.default' GROUP BY ALL"
        ).fetchall()
        (one,) = connection.sql(
            f"SELECT count(*) FROM '{dataset}/*/verdicts.parquet' WHERE run_id = '{runs[1].name}'"
        ).fetchall()
    assert sorted(found) == sorted([(runs[0].name, 2), (runs[1].name, 4)])
    assert one == (4,)


def test_runs_of_older_versions_are_read_beside_newer_ones(tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    old, new = make_run(tmp_path, rows=2), make_run(tmp_path, rows=4)
    file = old / layout.VERDICTS_FILE
    pq.write_table(pq.read_table(file).drop_columns(["reused_from"]), file)
    done("add", old, new, "--to", dataset)
    with duckdb.connect() as connection:
        found = connection.sql(
            f"SELECT run_id, count(reused_from) FROM read_parquet('{dataset}/run_id=*/verdicts.parquet', "
            "union_by_name = true) GROUP BY ALL"
        ).fetchall()
    assert sorted(found) == sorted([(old.name, 0), (new.name, 4)])


def test_adding_again_changes_nothing_but_what_is_new(tmp_path: Path) -> None:
    run, dataset = make_run(tmp_path), tmp_path / "dataset"
    done("add", run, "--to", dataset)
    before = {file: file.stat().st_mtime_ns for file in dataset.rglob("*") if file.is_file()}
    assert "already there" in done("add", run, "--to", dataset)
    assert {file: file.stat().st_mtime_ns for file in dataset.rglob("*") if file.is_file()} == before

    (run / "minimal.jsonl").write_text("")
    assert "updated" in done("add", run, "--to", dataset)
    assert (dataset / f"run_id={run.name}" / "minimal.jsonl").exists()

    other = tmp_path / "other"
    info = RunInfo.from_json((run / layout.RUN_FILE).read_text())
    recorded(other, [row_of(unary(CELU, [9.0]))], dataclasses.replace(info, finished=None))
    refused = cli("add", other, "--to", dataset)
    assert refused.exit_code == 1
    assert "refused: the dataset has other rows of that run; see --replace" in refused.output
    assert asked("list", dataset)["runs"][0]["verdicts"] == 3
    done("add", other, "--to", dataset, "--replace")
    assert asked("list", dataset)["runs"][0]["verdicts"] == 1


def test_partial_and_damaged_runs_are_set_aside(tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    sound, killed, cut, bent, empty = (
        make_run(tmp_path, finished=kind != "killed", rows=kind != "empty" and 40)
        for kind in ("sound", "killed", "cut", "bent", "empty")
    )
    rows = cut / layout.VERDICTS_FILE
    rows.write_bytes(rows.read_bytes()[:-100])
    rows = bent / layout.VERDICTS_FILE
    content = bytearray(rows.read_bytes())
    content[_DATA] ^= 0xFF
    rows.write_bytes(content)

    result = cli("add", killed, cut, bent, empty, sound, "--to", dataset)
    assert result.exit_code == 1
    assert f"{killed.name}: set aside: it did not finish" in result.output
    assert f"{sound.name}: added" in result.output
    assert ids(str(dataset)) == [sound.name]
    aside = {entry["name"]: entry["reason"] for entry in asked("list", dataset)["set_aside"]}
    assert "damaged" in aside[cut.name]
    assert "damaged" in aside[bent.name]
    assert aside[empty.name] == "it holds no case"
    # What there is of a killed run can be looked at.
    assert store.read(dataset / "set-aside" / killed.name).num_rows == 40

    store.finish(killed, 0)
    done("add", killed, "--to", dataset)
    assert sorted(ids(str(dataset))) == sorted([sound.name, killed.name])
    assert killed.name not in {entry["name"] for entry in asked("list", dataset)["set_aside"]}


@pytest.mark.parametrize("kind", ["path", "arrowlocal", "memory"])
def test_what_is_damaged_in_the_dataset_hinders_nothing(kind: str, tmp_path: Path) -> None:
    dataset = url(kind, tmp_path)
    sound, cut, bent, unfinished = (make_run(tmp_path, rows=40) for _ in range(4))
    done("add", sound, cut, bent, unfinished, "--to", dataset)
    place = Location(dataset)
    rows = f"run_id={cut.name}/{layout.VERDICTS_FILE}"
    place.write(place.read(rows)[:-100].decode("latin-1"), rows)
    rows = f"run_id={bent.name}/{layout.VERDICTS_FILE}"
    content = bytearray(place.read(rows))
    content[_DATA] ^= 0xFF
    (tmp_path / "bent").write_bytes(content)
    place.upload(tmp_path / "bent", rows)
    # As if a job were adding it.
    place.remove([f"run_id={unfinished.name}/{layout.VERDICTS_FILE}"])

    listed = asked("list", dataset)
    assert {run["run_id"] for run in listed["runs"]} == {sound.name, bent.name}
    assert [bad["run_id"] for bad in listed["damaged"]] == [cut.name]
    fetched = cli("fetch", dataset, "--out", tmp_path / "out")
    assert fetched.exit_code == 1
    assert fetched.stdout.split() == [str(tmp_path / "out" / sound.name)]
    assert f"left out: {cut.name}" in fetched.stderr
    assert f"left out: {bent.name}" in fetched.stderr
    assert not (tmp_path / "out" / bent.name).exists()

    assert cli("fetch", dataset, "--out", tmp_path / "out", "--set-aside").exit_code == 1
    assert cli("fetch", dataset, "--out", tmp_path / "out").exit_code == 0
    assert cli("check", dataset).exit_code == 0
    listed = asked("list", dataset)
    assert [run["run_id"] for run in listed["runs"]] == [sound.name]
    assert {aside["name"] for aside in listed["set_aside"]} == {cut.name, bent.name}
    done("add", cut, "--to", dataset)
    assert cut.name in ids(dataset)


def test_a_file_system_that_does_not_answer_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, run = url("memory", tmp_path), make_run(tmp_path)
    done("add", run, "--to", dataset)

    def refuse(*_: Any, **__: Any) -> Any:
        raise TimeoutError("no answer")

    with monkeypatch.context() as patch:
        for name in ("get_file", "_open"):
            patch.setattr(fsspec.implementations.memory.MemoryFileSystem, name, refuse)
        said = cli("fetch", dataset, "--out", tmp_path / "out", "--set-aside")
    assert said.exit_code == 1
    assert "no answer" in said.stderr
    assert ids(dataset) == [run.name]


def test_a_shard_is_no_run(tmp_path: Path) -> None:
    shard = make_run(tmp_path)
    info = RunInfo.from_json((shard / layout.RUN_FILE).read_text())
    write_run_info(shard, dataclasses.replace(info, shard={"index": 3, "count": 8}))
    said = cli("add", shard, "--to", tmp_path / "dataset")
    assert said.exit_code == 1
    assert "set aside: it is shard 3/8 of a run: put them together with `conformance merge`" in said.output


@pytest.mark.slow
def test_jobs_that_add_at_the_same_time_do_no_harm(tmp_path: Path) -> None:
    dataset = str(tmp_path / "dataset")
    shared, *others = (make_run(tmp_path, rows=20) for _ in range(5))
    jobs = [(dataset, run) for run in others for run in (shared, run)]
    # Not forked from this process: it has threads, whose locks a forked one would wait for.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, context) as pool, duckdb.connect() as connection:
        pending = [pool.submit(add_to_dataset, *job) for job in jobs]
        while not all(future.done() for future in pending):
            # Readers never see half a file.
            if list(Path(dataset).glob("run_id=*/verdicts.parquet")):
                connection.sql(f"SELECT count(*) FROM '{dataset}/run_id=*/verdicts.parquet'").fetchall()
        became = [future.result() for future in pending]
    assert set(became) <= {AddResult.ADDED, AddResult.UPDATED, AddResult.UNCHANGED}
    assert sorted(ids(dataset)) == sorted(run.name for run in (shared, *others))
    assert cli("check", dataset).exit_code == 0
    assert not Location(dataset).files("adding")


def test_threads_of_one_process_may_add_to_one_dataset(tmp_path: Path) -> None:
    dataset = Dataset(url("memory", tmp_path))
    runs = [make_run(tmp_path) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert {one.result for one in pool.map(dataset.add, runs)} == {AddResult.ADDED}
    assert len(dataset.contents().runs) == 6


def _contents(*ages: float, now: datetime, unfinished: float | None = None) -> ArchiveContents:
    """Runs that began so many days ago."""
    runs = [
        RunInfo(
            run_id=f"{age:g}",
            started=(now - timedelta(days=age)).isoformat(),
            seed=0,
            unfinished=(CELU,) if age == unfinished else (),
        )
        for age in sorted(ages, reverse=True)
    ]
    return ArchiveContents(tuple(ArchivedRun(info, 1, {}) for info in runs), (), ())


def test_the_newest_runs_and_one_of_each_month_are_kept() -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    ages = (0, 1, 2, 5, 8, 15, 22, 40, 41, 80, 400)
    contents = _contents(*ages, now=now)
    assert contents.ids_to_keep(2, 0) == {"0", "1"}
    assert contents.ids_to_keep(0, 4) == {"0", "22", "80", "400"}
    assert contents.ids_to_keep(2, 2) == {"0", "1", "22"}
    # A run that lost a shard does not stand for its month where another one does.
    assert _contents(*ages, now=now, unfinished=0).ids_to_keep(1, 1) == {"0", "1"}
    assert _contents(0, 22, now=now, unfinished=22).ids_to_keep(1, 2) == {"0", "22"}


def test_keeping_deletes_only_when_told_to(tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    runs = [make_run(tmp_path, f"2026-11-{day:02}T00:00:00.000+00:00") for day in (1, 2, 3)]
    cli("add", *runs, "--to", dataset)
    refused = cli("keep", dataset)
    assert refused.exit_code == 2
    assert "say what to keep: --last N" in refused.output
    said = done("keep", dataset, "--last", "1")
    assert f"{runs[0].name}  would be removed" in said
    assert "2 runs would be removed" in said
    assert len(ids(str(dataset))) == 3
    removed = asked("keep", dataset, "--last", "1", "--delete")["removed"]
    assert [run["run_id"] for run in removed] == [runs[0].name, runs[1].name]
    assert [path.name for path in dataset.glob("run_id=*")] == [f"run_id={runs[2].name}"]


def test_commands_take_a_dataset_for_its_newest_run(tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    old, new = make_run(tmp_path), make_run(tmp_path, "2026-11-21T01:00:00.000+00:00", rows=5)
    done("add", old, new, "--to", dataset)
    assert answered("failures", dataset)["run"].endswith(new.name)
    assert answered("diff", dataset / f"run_id={old.name}", dataset)["counts"]["new"] == 2


def test_a_run_is_fetched_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    dataset, out = tmp_path / "dataset", tmp_path / "out"
    runs = [make_run(tmp_path), make_run(tmp_path)]
    done("add", *runs, "--to", dataset)
    assert done("fetch", dataset, runs[0].name[:-3], "--out", out).split() == [str(out / runs[0].name)]
    kept = (out / runs[0].name / layout.VERDICTS_FILE).stat().st_mtime_ns
    done("fetch", dataset, "--out", out)
    assert (out / runs[0].name / layout.VERDICTS_FILE).stat().st_mtime_ns == kept
    ambiguous = cli("fetch", dataset, "2", "--out", out)
    assert ambiguous.exit_code == 2
    assert "'2' is a prefix of 2 runs" in ambiguous.output
    assert "has no run '1999'; newest: " in cli("fetch", dataset, "1999", "--out", out).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "nowhere"), "there is no dataset at nowhere; `conformance dataset add RUN --to nowhere`"),
        (("list", "s3://bucket/x"), "s3://bucket/x cannot be opened: Install s3fs to access S3"),
        (("list", "nope://x"), "nope://x cannot be opened: Protocol not known: nope"),
        (("add", "tests", "--to", "x"), "tests holds no run; give the directory that holds its run.json"),
        (("add", "RUN", "--to", "RUN/run.json/x"), "run.json/x"),
    ],
)
def test_what_cannot_be_done_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    result = cli(*(word.replace("RUN", str(run)) for word in words))
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("\n") == 1


def test_a_run_of_another_name_or_time_is_damaged(tmp_path: Path) -> None:
    dataset, run = tmp_path / "dataset", make_run(tmp_path)
    done("add", run, "--to", dataset)
    partition = dataset / f"run_id={run.name}"
    shutil.copytree(partition, dataset / "run_id=other")
    info = RunInfo.from_json((partition / layout.RUN_FILE).read_text())
    write_run_info(partition, dataclasses.replace(info, started="yesterday"))
    assert {bad["run_id"]: bad["reason"] for bad in asked("list", dataset)["damaged"]} == {
        run.name: "its `started` is not a time: yesterday",
        "other": f"run.json is of the run {run.name}",
    }
