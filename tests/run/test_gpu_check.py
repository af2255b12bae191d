"""`ci/gpu_check`: what it does without a GPU, and that what is wrong makes it fail."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from backend_models import needs_no_gpu
from harness_runs import ROOT, environment, row_of, unary

from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

SCRIPT = ROOT / "ci" / "gpu_check"
sys.path.append(str(SCRIPT.parent))

import gpu_judging  # noqa: E402

pytestmark = pytest.mark.slowest(30)

NAME = "ort-cuda"


def gpu_check(*words: str | Path) -> subprocess.CompletedProcess[str]:
    words = sys.executable, SCRIPT, *words
    return subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)


@pytest.mark.slow
@needs_no_gpu
def test_without_a_gpu_all_that_needs_none_is_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx_bindings")
    out = tmp_path / "out"
    done = gpu_check("--quick", "--operators", "3", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    rows: list[Mapping[str, Any]] = json.loads((out / "checks.json").read_text())
    ended = {row["check"]: row["result"] for row in rows}
    passed = {name for name, result in ended.items() if result == "passed"}
    assert passed == {
        *(
            "packages",
            "providers of ONNX Runtime",
            "sweep of 3 operators",
            "a simulated fault, and what follows",
        ),
        *(
            f"trt-rtx: {what}"
            for what in ("start", "static shapes", "dynamic shapes", "whose the failures are", "times")
        ),
        "trt-rtx: memory after sessions",
    }
    unmade = {row["check"]: row["note"] for row in rows if row["result"] == "not run"}
    assert unmade["driver and devices"] == "no NVIDIA driver is installed"
    assert unmade["trt-rtx: what fell back to the CPU"] == "it does not run here: no NVIDIA driver is installed"
    assert unmade["ort-cuda: all else"].startswith("it did not start: ")
    assert all(row["check"].split()[0] in done.stdout for row in rows)
    assert f"{len(passed)} passed, 0 failed, {len(unmade)} not run; see {out}" in done.stdout
    record = store.read(out / "run", ["backend", "outcome"]).to_pylist()
    assert {row["backend"] for row in record} == {"trt-rtx", "ort-cpu"}
    assert Counter(row["outcome"] for row in record if row["backend"] == "trt-rtx")["built"] > 4


def test_bad_options_are_one_line(tmp_path: Path) -> None:
    done = gpu_check("--operators", "0", "--out", tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("--operators is a number from 1 to 71, not 0")


def test_what_is_done_to_a_device_can_be_done_to_a_cpu() -> None:
    # Imported here: it registers a backend, which the other files of this process are not to meet.
    gpu_faults = importlib.import_module("gpu_faults")
    assert gpu_faults.start("ort-cpu")[1] == ""
    assert gpu_faults.sessions("ort-cpu", 40)[1] < 64 * 2**20
    for operator in ("Gather", "GatherElements", "GatherND"):
        assert gpu_faults.wrong_indices("ort-cpu", operator).startswith("BackendFailure: ")


@pytest.fixture
def record(tmp_path: Path) -> Any:
    def make(*outcomes: str, **more: Any) -> gpu_judging.Rows:
        calls = [unary("aten.neg.default", [float(number)]) for number in range(len(outcomes))]
        with RunWriter(tmp_path / "run", RunInfo.begin(seed=0, options={})) as writer:
            writer.write(row_of(call) for call in calls)
            changes = [{"outcome": outcome, "backend": NAME, **more} for outcome in outcomes]
            writer.write(row_of(call, **one) for call, one in zip(calls, changes, strict=True))
        store.finish(tmp_path / "run", 0)
        return gpu_judging.verdicts(tmp_path / "run")

    return make


def test_a_backend_of_which_most_cases_fail_is_wrong(record: Any) -> None:
    rows = record("pass", "narrowed", "unsupported", "error", "crash")
    with pytest.raises(RuntimeError, match="too few are right: 1 pass, 1 narrowed, 1 unsupported, 1 error, 1 crash"):
        gpu_judging.right(rows, NAME, builds=False)


def test_a_backend_of_which_most_cases_pass_is_right(record: Any) -> None:
    rows = record("pass", "pass", "unsupported", "mismatch")
    said = "2 pass, 1 unsupported, 1 mismatch, of 4 that ort-cpu passes"
    assert gpu_judging.right(rows, NAME, builds=False) == said
    assert gpu_judging.right(rows, NAME, builds=False, mode="static") == said
    with pytest.raises(gpu_judging.NotRun, match="none of the 0 cases"):
        gpu_judging.right(rows, NAME, builds=False, mode="dynamic")
    with pytest.raises(RuntimeError, match="too few are right"):
        gpu_judging.right(rows, NAME, builds=True)


def test_a_failure_without_blame_and_a_place_that_nobody_knows_are_wrong(record: Any) -> None:
    rows = record("pass", "mismatch", placement="unknown")
    with pytest.raises(RuntimeError, match="1 failures have no blame"):
        gpu_judging.blamed(rows, NAME)
    with pytest.raises(RuntimeError, match="the placement of 2 cases is unknown"):
        gpu_judging.placed(rows, NAME)


def test_what_fell_back_is_counted(record: Any) -> None:
    rows = record("pass", "pass", placement="partly-on-cpu NonZero", blame="backend")
    assert gpu_judging.placed(rows, NAME) == "0 cases ran wholly on the device; 2 fell back to CPU: NonZero"
