"""The schedule of a cluster decides what starts, what is tried again and what is given up."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from harness_runs import environment, output, run_harness

from harness.cluster.cluster_options import parse
from harness.cluster.cluster_progress import ClusterProgress
from harness.cluster.cluster_run import drive
from harness.cluster.schedule import Attempt, AttemptOutcome, AttemptReport, Counts, Schedule, cut


def report(attempt: Attempt, outcome: AttemptOutcome, node: str = "", message: str = "") -> AttemptReport:
    return AttemptReport(shard=attempt.shard, outcome=outcome, node=node, message=message)


@pytest.mark.parametrize("slots", [1, 2, 7, 100])
def test_every_unit_is_in_one_shard_and_the_last_shards_are_short(slots: int) -> None:
    chance = random.Random(slots)
    seconds = {f"unit {n}": chance.expovariate(0.4) for n in range(1000)}
    shards = cut(seconds, slots, smallest=10, largest=300)
    assert sorted(name for shard in shards for name in shard.units) == sorted(seconds)
    assert [s.seconds for s in shards] == sorted((s.seconds for s in shards), reverse=True)
    assert sum(shard.seconds for shard in shards) == pytest.approx(sum(seconds.values()))
    assert shards[0].seconds <= 300 + max(seconds.values())
    # Whoever comes last keeps the others waiting for little, and no process is started for next to nothing.
    assert shards[-1].seconds <= 20
    assert all(shard.seconds > 4 for shard in shards)


def test_a_unit_that_is_longer_than_a_shard_may_be_has_one_to_itself() -> None:
    shards = cut({"long": 1000.0, **{f"short {n}": 1.0 for n in range(100)}}, 4, smallest=10, largest=300)
    assert shards[0].units == ("long",)


def test_a_shard_that_is_lost_three_times_is_missing() -> None:
    schedule = Schedule({1: 10.0, 2: 10.0})
    (one, two) = schedule.next(2, 0.0)
    schedule.ended(two, report(two, AttemptOutcome.DONE), 1.0)
    for time in (1.0, 2.0):
        schedule.ended(one, report(one, AttemptOutcome.LOST), time)
        assert not schedule.missing
        (one,) = schedule.next(2, time)
        assert one.shard == 1
    schedule.ended(one, report(one, AttemptOutcome.LOST, message="the node died"), 3.0)
    assert schedule.over
    assert schedule.missing == {1: "the node died"}
    assert list(schedule.done) == [2]


def test_a_shard_that_failed_goes_elsewhere_and_its_node_is_left_after_two() -> None:
    schedule = Schedule({1: 10.0, 2: 10.0, 3: 10.0})
    one, two = schedule.next(2, 0.0)
    schedule.ended(one, report(one, AttemptOutcome.FAILED, "full", "no space"), 1.0)
    (again,) = schedule.next(2, 1.0)
    assert (again.shard, set(again.avoid)) == (1, {"full"})
    schedule.ended(two, report(two, AttemptOutcome.FAILED, "full", "no space"), 2.0)
    # Whatever comes now keeps away from it.
    assert [attempt.avoid for attempt in schedule.next(4, 2.0)] == [{"full"}, {"full"}]
    assert schedule.why_no_node_fits(["full"]) == "no space"
    assert not schedule.why_no_node_fits(["full", "sound"])


def test_a_shard_that_failed_everywhere_is_tried_again_but_not_on_a_node_that_is_no_good() -> None:
    schedule = Schedule({1: 10.0, 2: 10.0})
    one, two = schedule.next(2, 0.0)
    schedule.ended(two, report(two, AttemptOutcome.FAILED, "full"), 1.0)
    schedule.ended(one, report(one, AttemptOutcome.LOST, "sound"), 1.0)
    one, two = schedule.next(2, 1.0)
    assert one.shard == 1
    assert one.avoided(["sound", "full"]) == {"sound"}
    schedule.ended(one, report(one, AttemptOutcome.FAILED, "full"), 2.0)
    (one,) = schedule.next(2, 2.0)
    assert one.avoid == {"sound", "full"}
    assert one.avoided(["sound", "full"]) == {"full"}
    assert one.avoided(["full"]) == set()


def test_a_node_that_succeeds_in_between_is_kept() -> None:
    schedule = Schedule(dict.fromkeys(range(1, 5), 10.0))
    attempts = schedule.next(3, 0.0)
    for attempt, outcome in zip(
        attempts, (AttemptOutcome.FAILED, AttemptOutcome.DONE, AttemptOutcome.FAILED), strict=True
    ):
        schedule.ended(attempt, report(attempt, outcome, "node"), 1.0)
    assert not schedule.why_no_node_fits(["node"])


def test_other_versions_cost_a_shard_no_attempt() -> None:
    schedule = Schedule({1: 10.0})
    for number in range(5):
        (attempt,) = schedule.next(1, 0.0)
        schedule.ended(attempt, report(attempt, AttemptOutcome.UNFIT, f"node {number}"), 0.0)
    (attempt,) = schedule.next(1, 0.0)
    assert attempt.avoid == {f"node {number}" for number in range(5)}
    assert not schedule.missing


def test_the_progress_line_says_how_far_it_is() -> None:
    schedule = Schedule({2: 30.0, 3: 30.0})
    now = [0.0]
    stream = io.StringIO()
    progress = ClusterProgress(schedule, 3, stream, lambda: now[0])
    two, three = schedule.next(2, 0.0)
    now[0] = 20.0
    progress.show(4, 2, lambda: {two: Counts(100, 1), three: Counts(300)})
    assert stream.getvalue() == "400 cases, 20.0/s, 1/3 shards, 4 nodes, 1 failure, 0:10 left\n"
    stream.truncate(stream.seek(0))
    now[0] = 60.0
    done = AttemptReport(shard=2, outcome=AttemptOutcome.DONE, cases=1200, failures=7)
    schedule.ended(two, done, 60.0)
    schedule.ended(three, report(three, AttemptOutcome.LOST), 60.0)
    progress.show(4, 1, dict)
    assert stream.getvalue() == "1,200 cases, 20.0/s, 2/3 shards, 4 nodes, 7 failures, 1 lost, 1:00 left\n"


def test_a_part_of_units_is_run_and_a_wrong_division_is_refused(tmp_path: Path) -> None:
    parts = tmp_path / "parts.json"
    units = ["aten.celu.default dynamo", "aten.celu.default dynamo-dynamic", "aten.cos.default dynamo"]
    last = "aten.cos.default dynamo-dynamic"
    chosen = (
        "--op",
        "celu",
        "--op",
        "cos",
        "--shapes",
        "both",
        "--shard",
        "2/2",
        "--shard-parts",
        parts,
        "--co",
    )
    parts.write_text(json.dumps([units, [last]]))
    done = run_harness(*chosen, "-q")
    assert "[aten.cos.default-dynamo-dynamic]" in done.stdout, output(done)
    assert "1 test collected" in done.stdout, output(done)
    for wrong in ([units, []], [units, [last, units[0]]], [[*units, last]]):
        parts.write_text(json.dumps(wrong))
        done = run_harness(*chosen)
        assert done.returncode == 4, output(done)
        assert "ERROR: --shard-parts has" in done.stderr, output(done)


def test_a_shard_takes_of_a_node_what_any_of_its_backends_needs() -> None:
    words = ("--on", "ray", "--op", "celu", "--backend", "ort-cpu")
    assert parse(words).resources == {}
    assert parse((*words, "--backend=trt", "--backend", "known-to-nodes-alone")).resources == {"GPU": 1}


class Places:
    """An engine with two places, where attempts end when they are waited for."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.started: list[list[int]] = [[]]

    def nodes(self) -> dict[str, str]:
        return {"node": "here"}

    def slots(self) -> int:
        return 2

    def start(self, attempt: Attempt) -> None:
        self.started[-1].append(attempt.shard)

    def wait(self, seconds: float) -> list[tuple[Attempt, AttemptReport]]:
        ended = [(attempt, report(attempt, AttemptOutcome.DONE)) for attempt in self.schedule.running]
        self.started.append([])
        return ended

    def progress(self) -> dict[Attempt, Counts]:
        return {}

    def stop(self, attempt: Attempt) -> None:
        raise AssertionError(attempt)


def test_shards_run_where_there_is_room() -> None:
    schedule = Schedule(dict.fromkeys(range(1, 6), 1.0))
    engine = Places(schedule)
    drive(schedule, engine, ClusterProgress(schedule, 5, io.StringIO()))
    assert engine.started[:3] == [[1, 2], [3, 4], [5]]
    assert sorted(schedule.done) == [1, 2, 3, 4, 5]


def test_a_task_imports_no_framework() -> None:
    # Ray imports it in processes of its own, some of which cannot stand what a framework does to a process.
    heavy = ("torch", "onnx", "onnxruntime", "pyarrow", "pytest", "hypothesis")
    code = f"import sys, harness.cluster.node_task; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.stdout == "[]\n", done.stderr


def test_what_runs_cases_is_imported_where_the_directory_was_deleted(tmp_path: Path) -> None:
    # A node replaces its copy of the project while others are in it.
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); import harness.pipeline.supervisor"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
