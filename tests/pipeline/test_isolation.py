"""A case that kills, hangs or starves a process costs its own verdict and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from awkward import fail_awkwardly, leave, sleep_at_start
from harness_runs import (
    ROOT,
    command,
    environment,
    literal_unit,
    output,
    record_of,
    rows,
    run_harness,
    unary,
    vector,
)
from planted._guilty import SIZE, VALUE
from planted.announcing import Announcer
from planted.chatty import Chatter

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core import isolation
from harness.core.invocation import Invocation, Recipe, TensorSpec
from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.generate.sources.recorded import FromRecord, Replayed
from harness.pipeline import supervisor as supervisor_module
from harness.pipeline.reference import run_reference
from harness.pipeline.supervisor import Death, Supervisor, WorkerFailed
from harness.pipeline.task import Settings
from harness.plan.unit import run_unit
from harness.record import store

pytestmark = pytest.mark.slowest(8)

INNOCENT = "ort-cpu"


def side_by_side(overload: str = "aten.neg.default") -> tuple[list[Invocation], Invocation, Invocation]:
    """Calls of several structures, with two that planted defects are after.

    Returns:
        All; the one with the guilty value, among others of its structure and of its batch; the one of the
        guilty size.
    """
    value = unary(overload, [1.0, VALUE, 2.0])
    size = unary(overload, [0.5] * SIZE)
    calls = [unary(overload, [float(k)] * n) for n in range(1, 7) for k in range(2)]
    return [*calls[:4], value, size, *calls[4:]], value, size


def verdicts_of(
    invocations: Sequence[Invocation],
    *backends: str,
    timeout: float = 120.0,
    memory_limit: int = 4 * 2**30,
    batch_size: int = 64,
) -> list[Verdict]:
    unit = literal_unit(invocations, backends=backends, settings=Settings(batch_size=batch_size))
    with Supervisor(timeout=timeout, memory_limit=memory_limit) as supervisor:
        return [verdict for verdicts in run_unit(unit, supervisor) for verdict in verdicts]


def assert_complete(verdicts: Sequence[Verdict], invocations: Sequence[Invocation], *backends: str) -> None:
    """One row per case and backend, whatever happened."""
    assert Counter((v.case_id, v.backend) for v in verdicts) == Counter(
        (i.case_id, b) for i in invocations for b in backends
    )


def failures(verdicts: Sequence[Verdict]) -> list[tuple[str, str, Stage, Outcome, str]]:
    return [(v.case_id, v.backend, v.stage, v.outcome, v.blame) for v in verdicts if v.outcome != Outcome.PASS]


@pytest.mark.parametrize(
    ("crime", "outcome", "words"),
    [
        ("segfault", Outcome.CRASH, "SIGSEGV"),
        ("abort", Outcome.CRASH, "planted::Error"),
        ("leaves", Outcome.CRASH, "exited with status 0"),
    ],
)
def test_a_backend_that_dies_costs_the_guilty_case_alone(crime: str, outcome: Outcome, words: str) -> None:
    invocations, guilty, _ = side_by_side()
    backend = f"onnx-api:planted.{crime}"
    verdicts = verdicts_of(invocations, backend, INNOCENT)
    assert_complete(verdicts, invocations, backend, INNOCENT)
    assert failures(verdicts) == [(guilty.case_id, backend, Stage.RUN, outcome, "backend")]
    assert words in next(v.message for v in verdicts if v.outcome is outcome)


def test_a_crash_has_the_message_of_its_own_case() -> None:
    invocations, _, _ = side_by_side()
    verdicts = verdicts_of(invocations, "onnx-api:planted.abort", batch_size=1)
    (message,) = (v.message for v in verdicts if v.outcome is Outcome.CRASH)
    assert message.splitlines() == [
        "process killed by SIGABRT",
        "terminate called after throwing an instance of 'planted::Error'",
        "Fatal Python error: Aborted",
    ]


def test_a_runtime_in_rust_says_where_it_panicked() -> None:
    pytest.importorskip("tract")
    whole = TensorSpec((2, 1, 2, 3), "float32", (6, 6, 3, 1), 0, Recipe(("any",), "mixed", 1))
    cropped = (("self", whole), ("padding", (0, -2, 0, 0, 0, 0)))
    padded = Invocation("aten.reflection_pad3d.default", cropped)
    (verdict,) = verdicts_of([padded], "tract")
    words, where, why = verdict.message.splitlines()
    assert words == "process killed by SIGABRT"
    assert where.startswith("panicked at ")
    assert why == "assertion failed: end <= axis_len"


def test_a_backend_that_dies_while_loading_costs_the_guilty_structure_alone() -> None:
    invocations, _, guilty = side_by_side()
    backend = "onnx-api:planted.segfault_at_load"
    verdicts = verdicts_of(invocations, INNOCENT, backend)
    assert_complete(verdicts, invocations, backend, INNOCENT)
    assert failures(verdicts) == [(guilty.case_id, backend, Stage.LOAD, Outcome.CRASH, "backend")]


#: Three cases of one structure and one of another: a backend hangs on each.
HANGING = [unary("aten.neg.default", [VALUE, *rest]) for rest in ([0.0], [1.0], [2.0], [])]
HANG = "onnx-api:planted.hang"


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Path]]:
    """Start a run of `HANGING`, which mostly waits, while other tests run."""
    directory = tmp_path_factory.mktemp("hung")
    replay = record_of(directory / "record", HANGING)

    def run() -> Path:
        done = run_harness(
            *("--replay", replay, "--results-dir", directory / "run", "--backend", HANG, "--timeout", "7"),
            *("--converter", "dynamo", "--no-blame", "--shrink", "0", "--batch-size", "1"),
        )
        assert done.returncode == 1, output(done)
        return directory / "run"

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run)


@pytest.mark.usefixtures("hung")
@pytest.mark.slow
def test_a_backend_that_hangs_costs_the_guilty_case_the_timeout() -> None:
    invocations, guilty, _ = side_by_side()
    # Each step of the search waits for the timeout: three of eight structures in batches of four.
    verdicts = verdicts_of(invocations, HANG, INNOCENT, timeout=6.0, batch_size=4)
    assert_complete(verdicts, invocations, HANG, INNOCENT)
    assert failures(verdicts) == [(guilty.case_id, HANG, Stage.RUN, Outcome.TIMEOUT, "backend")]
    assert [v.message for v in verdicts if v.outcome is Outcome.TIMEOUT] == [
        "no answer within 5 s (--timeout), after it was waited for to the limit among other cases"
    ]


@pytest.mark.slow
def test_a_backend_that_takes_all_memory_is_stopped_at_the_limit() -> None:
    invocations, guilty, _ = side_by_side()
    backend = "onnx-api:planted.hoard"
    verdicts = verdicts_of(invocations, backend, INNOCENT, memory_limit=3 * 2**29, batch_size=4)
    assert_complete(verdicts, invocations, backend, INNOCENT)
    assert failures(verdicts) == [(guilty.case_id, backend, Stage.RUN, Outcome.CRASH, "backend")]
    assert "1.5 GiB of memory" in next(v.message for v in verdicts if v.outcome is Outcome.CRASH)


def test_a_backend_that_raises_costs_the_guilty_case_an_error() -> None:
    invocations, guilty, _ = side_by_side()
    backend = "onnx-api:planted.raises"
    verdicts = verdicts_of(invocations, backend, INNOCENT)
    assert_complete(verdicts, invocations, backend, INNOCENT)
    # Other runtimes run the same model and are right.
    assert failures(verdicts) == [(guilty.case_id, backend, Stage.RUN, Outcome.ERROR, "backend")]
    assert "planted: no such kernel" in next(v.message for v in verdicts if v.outcome is Outcome.ERROR)


def test_two_guilty_cases_in_one_batch_are_both_found() -> None:
    invocations, guilty, _ = side_by_side()
    second = unary("aten.neg.default", [VALUE] * 5)
    backend = "onnx-api:planted.segfault"
    verdicts = verdicts_of([*invocations, second], backend, INNOCENT)
    assert_complete(verdicts, [*invocations, second], backend, INNOCENT)
    assert sorted(failures(verdicts)) == sorted(
        (case.case_id, backend, Stage.RUN, Outcome.CRASH, "backend") for case in (guilty, second)
    )


def division(dtype: str, dividend: int, divisor: int) -> Invocation:
    tensors = (("self", vector([dividend, 6], dtype)), ("other", vector([divisor, 2], dtype)))
    return Invocation("aten.div.Tensor_mode", (*tensors, ("rounding_mode", "trunc")))


OVERFLOWING = division("int32", -(2**31), -1)


def pytorch_dies() -> bool:
    """Whether the division overflows into a signal here (on x86) or into a number (elsewhere)."""
    with IsolatedCalls(fork=True) as process:
        try:
            process.call(run_reference, OVERFLOWING)
        except ProcessDied:
            return True
    return False


def test_a_call_that_kills_pytorch_costs_its_own_case() -> None:
    others = [division("int32", n, 3) for n in range(4)]
    others += [division("int64", n, -1) for n in range(4)]
    invocations = [*others[:3], OVERFLOWING, *others[3:]]
    verdicts = verdicts_of(invocations, INNOCENT, "onnx-reference")
    assert_complete(verdicts, invocations, INNOCENT, "onnx-reference")
    hit = [v for v in verdicts if v.case_id == OVERFLOWING.case_id]
    if pytorch_dies():
        assert {(v.stage, v.outcome, v.blame) for v in hit} == {(Stage.REFERENCE, Outcome.CRASH, "pytorch")}
        assert all("SIGFPE" in v.message for v in hit)
    assert all(v.stage is Stage.COMPARE for v in verdicts if v.case_id != OVERFLOWING.case_id)


@pytest.fixture(scope="module")
def criminal_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three operators of which two have guilty cases."""
    calls, *_ = side_by_side("aten.neg.default")
    more, *_ = side_by_side("aten.abs.default")
    innocent = [unary("aten.relu.default", [float(n)] * n) for n in range(1, 9)]
    return record_of(tmp_path_factory.mktemp("record") / "run", [*calls, *more, *innocent])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.thorough), "2"])
def test_with_and_without_xdist_every_crash_is_recorded_and_nothing_else_lost(
    workers: str, criminal_record: Path, tmp_path: Path
) -> None:
    at_run, at_load = "onnx-api:planted.segfault", "onnx-api:planted.segfault_at_load"
    done = run_harness(
        *("--replay", criminal_record, "--results-dir", tmp_path / "run", "-n", workers),
        *("--converter", "dynamo", "--converter", "planted-segfault"),
        *("--backend", at_run, "--backend", INNOCENT, "--backend", at_load),
    )
    assert done.returncode == 1, output(done)
    recorded = rows(tmp_path / "run")
    replayed = rows(criminal_record, "case_id", "overload")
    assert Counter((r["case_id"], r["converter"], r["backend"]) for r in recorded) == Counter(
        (case["case_id"], converter, backend)
        for case in replayed
        for converter in ("dynamo", "planted-segfault")
        for backend in (at_run, INNOCENT, at_load)
    )
    expected = set()
    for overload in ("aten.neg.default", "aten.abs.default"):
        _, value, size = side_by_side(overload)
        expected |= {
            (value.case_id, "dynamo", at_run, "run", "crash"),
            (value.case_id, "planted-segfault", at_run, "run", "crash"),
            (size.case_id, "dynamo", at_load, "load", "crash"),
            *((size.case_id, "planted-segfault", b, "convert", "crash") for b in (at_run, INNOCENT, at_load)),
        }
    assert {
        (r["case_id"], r["converter"], r["backend"], r["stage"], r["outcome"])
        for r in recorded
        if r["outcome"] != "pass"
    } == expected


@pytest.mark.slow
def test_an_overload_that_hangs_is_waited_for_to_the_limit_once(hung: Future[Path]) -> None:
    verdicts = list(store.verdicts(hung.result()))
    assert_complete(verdicts, HANGING, HANG)
    assert Counter(v.message for v in verdicts if v.outcome is Outcome.TIMEOUT) == {
        "no answer within 7 s (--timeout)": 1,
        "no answer within 5 s (--timeout), after other values of the same structure were waited for to the limit": 2,
        "no answer within 5 s (--timeout), after other calls of the overload were waited for to the limit": 1,
    }


def processes_below(pid: int) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    return found


def wait_until(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
def test_a_killed_session_keeps_what_it_flushed_and_leaves_no_process(tmp_path: Path) -> None:
    # One operator is through before the other hangs.
    through = [unary("aten.abs.default", [float(n)] * n) for n in range(1, 9)]
    hanging = [unary("aten.neg.default", [VALUE])]
    replay = record_of(tmp_path / "record", [*through, *hanging])
    results = tmp_path / "run"
    session = subprocess.Popen(
        command(
            *("--replay", replay, "--results-dir", results),
            *("--backend", "onnx-api:planted.hang", "--timeout", "600"),
        ),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert wait_until(lambda: any((results / "parts").glob("*.parquet")), 120)
        # The other operator's process is by now in its hanging run, or about to be.
        time.sleep(1.0)
        below = processes_below(session.pid)
        assert below
    finally:
        session.send_signal(signal.SIGKILL)
        session.wait(60)
    kept = rows(results)
    assert {r["case_id"] for r in kept} == {invocation.case_id for invocation in through}
    assert {r["outcome"] for r in kept} == {"pass"}
    gone = wait_until(lambda: not any(p.is_running() and p.status() != "zombie" for p in below), 20)
    assert gone, [p.cmdline() for p in below if p.is_running()]
    # What was killed can be finished later.
    assert store.finish(results).finished
    assert len(rows(results)) == len(through)


def test_a_worker_that_is_killed_from_outside_costs_no_verdict() -> None:
    invocations = [unary("aten.neg.default", [float(n)] * n) for n in range(1, 20)]
    unit = literal_unit(invocations, backends=[INNOCENT], settings=Settings(batch_size=4))
    verdicts: list[Verdict] = []
    with Supervisor() as supervisor:
        for part in run_unit(unit, supervisor):
            if not verdicts:
                assert supervisor.worker_pid is not None
                os.kill(supervisor.worker_pid, signal.SIGKILL)
            verdicts += part
    assert_complete(verdicts, invocations, INNOCENT)
    # The kernel's out-of-memory killer strikes so, too: at most the case under way pays for it.
    assert sum(v.outcome is not Outcome.PASS for v in verdicts) <= 1


def test_a_fault_of_the_harness_is_nobody_elses() -> None:
    shape = (2,)
    unknown = Recipe(("no such domain",), "plain", 1)
    bad = Invocation("aten.neg.default", (("self", TensorSpec(shape, "float32", (1,), 0, unknown)),))
    good = unary("aten.neg.default", [1.0, 2.0])
    unit = literal_unit([good], backends=["ort-cpu"])
    unit = replace(unit, route=replace(unit.route, dynamic=True), sources=(FromRecord((Replayed(good, bad),)),))
    with Supervisor(timeout=30) as supervisor:
        (verdict,) = [v for verdicts in run_unit(unit, supervisor) for v in verdicts]
        (next_,) = [
            v for verdicts in run_unit(literal_unit([good], backends=["ort-cpu"]), supervisor) for v in verdicts
        ]
    assert (verdict.outcome, verdict.blame) == (Outcome.CRASH, "unknown")
    assert verdict.message.startswith("the harness itself failed, please report it: KeyError")
    assert next_.outcome is Outcome.PASS


@pytest.mark.slow
def test_a_worker_that_never_stops_talking_is_held_to_the_memory_limit() -> None:
    with Supervisor(memory_limit=2**30) as supervisor:
        *said, death = supervisor.serve(Chatter(mebibytes=1500))
        assert said == list(range(len(said)))
        assert death == Death(Outcome.CRASH, "more than 1 GiB of memory (--memory-limit)")
        # The next task has a fresh worker.
        assert list(supervisor.serve(Chatter(mebibytes=2))) == [0, 1]


def test_an_announcement_counts_as_an_answer_and_outlives_the_worker() -> None:
    with Supervisor(timeout=0.4) as supervisor:
        (death,) = supervisor.serve(Announcer(numbers=4, pause=0.25))
        assert (death.outcome, death.announced) == (Outcome.CRASH, 3)
        (death,) = supervisor.serve(Announcer(numbers=1, pause=5))
        assert (death.outcome, death.announced) == (Outcome.TIMEOUT, 0)
        # Of a task that announces nothing nothing is left from the one before.
        (death,) = supervisor.serve(Announcer(numbers=0, pause=0))
        assert death.announced is None


@pytest.mark.slow
def test_a_task_may_have_a_share_of_the_time_limit_but_five_seconds() -> None:
    with Supervisor(timeout=25) as supervisor:
        (death,) = supervisor.serve(Announcer(numbers=1, pause=20), patience=0.1)
    assert (death.outcome, death.message) == (Outcome.TIMEOUT, "no answer within 5 s (--timeout)")


def test_a_worker_that_does_not_start_is_not_told_about_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_START_TIMEOUT", 0.5)
    monkeypatch.setattr(supervisor_module, "_serving", sleep_at_start)
    with Supervisor() as supervisor, pytest.raises(WorkerFailed) as raised:
        list(supervisor.serve(Chatter(mebibytes=1)))
    assert str(raised.value) == "the worker process does not start: no answer within 0.5 s"


def test_a_process_that_died_is_replaced_and_its_last_words_are_kept() -> None:
    with IsolatedCalls(timeout=30) as process:
        before = process.call(os.getpid)
        with pytest.raises(ProcessDied) as raised:
            process.call(leave, 3)
        assert raised.value.account == "process exited with status 3\nnever again"
        assert process.call(os.getpid) not in (before, os.getpid())


def test_what_a_function_raises_comes_back_and_costs_no_process() -> None:
    with IsolatedCalls(timeout=30) as process:
        before = process.call(os.getpid)
        with pytest.raises(ZeroDivisionError):
            process.call(divmod, 1, 0)
        with pytest.raises(TypeError, match="cannot pickle"):
            process.call(open, os.devnull)
        # Such an error is pickled, but cannot be read again.
        with pytest.raises(RuntimeError, match="Awkward: on the 3rd of May"):
            process.call(fail_awkwardly)
        assert process.call(os.getpid) == before


def test_a_call_that_takes_too_long_is_given_up() -> None:
    with IsolatedCalls(timeout=1.0) as process:
        with pytest.raises(ProcessDied, match="no answer within 1 s") as raised:
            process.call(time.sleep, 60)
        assert raised.value.hung
        assert process.call(abs, -1) == 1


def test_the_environment_of_a_process_is_its_own() -> None:
    """While it starts, other threads of this process must see their variables, and no others."""
    seen: set[tuple[bool, bool]] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(("PATH" in os.environ, "OF_THE_OTHER" in os.environ))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with IsolatedCalls(timeout=30, environment={"OF_THE_OTHER": "1"}) as process:
            assert process.call(os.getenv, "OF_THE_OTHER") == "1"
    finally:
        done.set()
        watching.join(60)
    assert seen == {(True, False)}


_WITHOUT_SERVER = """
from multiprocessing import get_context
from harness.core.isolation import IsolatedCalls, ProcessDied

get_context("forkserver").set_forkserver_preload(["ends_at_once"])
with IsolatedCalls(fork=True) as process:
    try:
        process.call(abs, -1)
    except ProcessDied as died:
        print(died)
"""


def test_a_fork_server_that_ends_while_it_imports_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ends_at_once.py").write_text("import os\n\nos._exit(3)\n")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SERVER],
        env={**environment(), "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("no worker process can be started: "), output(done)


_KILLED_SERVER = """
import os, signal, threading
from harness.core.isolation import IsolatedCalls

with IsolatedCalls(fork=True) as process:
    server = process.call(os.getppid)
    process.stop()
    # It takes the next request and is killed before it answers.
    os.kill(server, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (server, signal.SIGKILL)).start()
    print(process.call(abs, -1), process.call(os.getppid) != server)
"""


def test_a_fork_server_that_is_killed_is_replaced() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_SERVER],
        env={**environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "1 True\n", output(done)
