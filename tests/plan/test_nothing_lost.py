"""Recorded results survive a blame that fails, a killed session, and an error of the harness itself."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness_runs import ROOT, command, environment, literal_unit, record_of, row_of, rows, unary
from planted._guilty import VALUE

from harness.app.session import Session
from harness.blame.testimony import BlameTask
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec
from harness.generate.regressions.corpus_store import Corpus, CorpusEntry
from harness.generate.regressions.remember import Memory
from harness.pipeline.supervisor import Supervisor, WorkerFailed
from harness.pipeline.task import WorkerTask
from harness.plan.options import Options
from harness.plan.plan import make_plan
from harness.plan.unit import run_unit
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

RAISES = "onnx-api:planted.raises"
GOOD = [unary("aten.neg.default", [float(n)] * n) for n in range(1, 5)]
BAD = [unary("aten.neg.default", [VALUE] * n) for n in range(1, 5)]


class WithoutWitnesses(Supervisor):
    """Cannot start a process for blame, as on a machine that runs out of memory by then."""

    def serve(self, task: WorkerTask, *, patience: float = 1.0) -> Iterator[Any]:
        if isinstance(task, BlameTask):
            raise WorkerFailed("no worker process can be started")
        return super().serve(task, patience=patience)


def test_failures_are_yielded_and_held_when_blame_fails() -> None:
    held: list[Verdict] = []
    verdicts: list[Verdict] = []
    unit = literal_unit([*GOOD, *BAD], backends=[RAISES])
    with WithoutWitnesses() as supervisor:
        parts = run_unit(unit, supervisor, hold=held.extend)
        with pytest.raises(WorkerFailed):
            verdicts.extend(verdict for found in parts for verdict in found)
    assert {v.case_id for v in verdicts} == {call.case_id for call in (*GOOD, *BAD)}
    failed = [v for v in verdicts if v.outcome.is_failure]
    assert {v.case_id for v in failed} == {v.case_id for v in held} == {call.case_id for call in BAD}
    assert {v.blame for v in failed} == {"unknown"}
    assert {v.blame_rule for v in failed} == {"not-examined"}


def test_a_session_whose_blame_fails_records_every_row(tmp_path: Path) -> None:
    cases = record_of(tmp_path / "cases", [*GOOD, *BAD])
    plan = make_plan(Options(replay=tuple(replay for replay in _replayed(cases)), backends=(RAISES,)))
    session = Session(plan, tmp_path / "run")
    session._supervisor.close()
    session._supervisor = WithoutWitnesses()
    with session, pytest.raises(WorkerFailed):
        session.run(plan.units[0])
    assert len(rows(tmp_path / "run")) == len(GOOD) + len(BAD)


def _replayed(run: Path) -> Iterator[Any]:
    from harness.generate.sources.recorded import Replayed

    for row in rows(run):
        yield Replayed(Invocation.from_json(row["invocation"]), None)


@pytest.mark.slow
@pytest.mark.slowest(20)
@pytest.mark.parametrize("victim", ["session", "worker"])
def test_killing_a_process_in_blame_loses_no_row(tmp_path: Path, victim: str) -> None:
    replay = record_of(tmp_path / "cases", [*GOOD, *BAD])
    results = tmp_path / "run"
    session = subprocess.Popen(
        command(
            *("--replay", replay, "--results-dir", results),
            *("--backend", "onnx-api:planted.fails_then_hangs", "--timeout", "600"),
        ),
        cwd=ROOT,
        env=environment(),
    )
    expected = len(GOOD) + len(BAD)
    try:
        assert _wait_until(lambda: (results / "run.json").exists() and len(rows(results)) == expected, 120)
        if victim == "worker":
            # The process that hangs is below the session's fork server.
            deepest = psutil.Process(session.pid).children(recursive=True)[-1]
            deepest.send_signal(signal.SIGKILL)
            time.sleep(1)
    finally:
        session.send_signal(signal.SIGKILL)
        session.wait(60)
    kept = rows(results)
    assert sorted(row["case_id"] for row in kept) == sorted(call.case_id for call in (*GOOD, *BAD))
    assert {row["outcome"] for row in kept} == {"pass", "error"}
    assert store.finish(results).finished
    assert len(rows(results)) == expected


def _wait_until(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("seed", range(8))
def test_a_writer_that_is_killed_leaves_every_flushed_row_once(tmp_path: Path, seed: int) -> None:
    """Held rows, final rows and merged parts, cut off at a random moment."""
    run = tmp_path / "run"
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            _write_for_ever(run, told)
        finally:
            os._exit(1)
    os.close(told)
    time.sleep(0.05 + random.Random(seed).random() * 0.6)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(ready, "rb") as pipe:
        flushed = pipe.read().count(b".")
    kept = rows(run)
    ids = [row["case_id"] for row in kept]
    assert len(ids) == len(set(ids))
    assert len(ids) >= 3 * flushed
    # The writer makes the held rows of a round final in the next one.
    finals = sum(row["evidence"] == "" for row in kept)
    assert finals >= 3 * max(flushed - 1, 0)


def _write_for_ever(run: Path, told: int) -> None:
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        before: list[Verdict] = []
        for n in range(sys.maxsize):
            writer.write(before)
            before = [row_of(unary("aten.celu.default", [float(n), float(k)]), outcome=Outcome.ERROR) for k in range(3)]
            writer.hold(replace(verdict, evidence="open") for verdict in before)
            writer.flush()
            os.write(told, b".")


def test_rows_are_on_disk_soon_whatever_the_session_waits_for(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", RunInfo.begin(seed=0, options={})) as writer:
        writer.write([row_of(GOOD[0])])
        writer.hold([row_of(BAD[0], outcome=Outcome.ERROR)])
        assert _wait_until(lambda: len(rows(tmp_path / "run")) == 2, 20)


def test_an_error_of_the_harness_is_not_pytorchs_rejection() -> None:
    unknown = Recipe(("no such domain",), "plain", 1)
    broken = Invocation("aten.neg.default", (("self", TensorSpec((2,), "float32", (1,), 0, unknown)),))
    rejected = Invocation("aten.neg.default", (("self", TensorSpec((1,), "bool", (1,), 0, Literal((True,)))),))
    beyond_int64 = Invocation("aten.item.default", (("self", TensorSpec((1,), "uint64", (1,), 0, Literal((2**63,)))),))
    with Supervisor(timeout=30) as supervisor:
        unit = literal_unit([GOOD[0], broken, beyond_int64], backends=["ort-cpu"])
        found = {v.case_id: v for part in run_unit(unit, supervisor) for v in part}
        (skipped,) = [v for part in run_unit(literal_unit([rejected], backends=["ort-cpu"]), supervisor) for v in part]
    assert found[GOOD[0].case_id].outcome is Outcome.PASS
    assert found[beyond_int64.case_id].outcome is Outcome.SKIP
    failure = found[broken.case_id]
    assert (failure.outcome, failure.stage, failure.blame) == (Outcome.CRASH, Stage.REFERENCE, "unknown")
    assert failure.message.startswith("the harness itself failed")
    assert (skipped.outcome, skipped.stage) == (Outcome.SKIP, Stage.REFERENCE)
    assert skipped.message.startswith("RuntimeError: ")


def test_a_case_that_was_skipped_stays_in_the_corpus(tmp_path: Path) -> None:
    corpus = Corpus([tmp_path])
    entry = CorpusEntry(
        invocation=GOOD[0],
        origin="failure",
        converter="dynamo",
        backend="ort-cpu",
        stage=Stage.RUN,
        outcome=Outcome.ERROR,
    )
    corpus.add(entry)
    memory = Memory(corpus, GOOD[0].overload)
    memory.add([row_of(GOOD[0], outcome=Outcome.SKIP, stage=Stage.REFERENCE)])
    assert memory.commit().dropped == 0
    assert corpus.read(GOOD[0].overload).entries == (entry,)
    memory.add([row_of(GOOD[0])])
    assert memory.commit().dropped == 1
