"""`conformance nightly` as a team runs it: with a shard that is killed half-way, and with nothing at all."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from os import killpg
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import answered, typed
from harness_runs import ROOT, environment, recorded, row_of, rows, unary

from harness.app.cli.nightly import command
from harness.app.nightly import Nightly, NightOptions
from harness.compare.verdict import Outcome
from harness.gate.baseline.file import DEFAULT, Baseline, read_baseline, write_baseline
from harness.record import store
from harness.record.progress import completeness
from harness.record.run_info import RunInfo, ShardState

pytestmark = pytest.mark.slowest(16)

OPERATORS = ("abs", "asinh", "celu", "cos", "erf", "exp", "neg", "relu", "tanh")
EXAMPLES = 8
#: Each has three of the operators.
SHARDS = 3
KILLED = 1


def nightly(*words: str | Path, **more: str) -> subprocess.Popen[str]:
    """Start `conformance nightly`."""
    return subprocess.Popen(
        [sys.executable, "-m", "harness.app.cli", "nightly", *map(str, words)],
        cwd=ROOT,
        env={**environment(), "GITHUB_STEP_SUMMARY": "", "CONFORMANCE_WEBHOOK": "", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_baseline_that_is_not_there_ends_the_night_at_once(tmp_path: Path) -> None:
    done = nightly("--baseline", tmp_path / "tyop", "--out", tmp_path / "out")
    said, _ = done.communicate(timeout=60)
    assert done.returncode == 2
    assert "tyop" in said
    assert not (tmp_path / "out").exists()


@dataclass(frozen=True)
class Night:
    """The results of a night."""

    out: Path
    dataset: Path
    job_page: Path
    status: int
    said: str


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """Three shards, two at once, of which one is killed with -9 once it has measured an operator."""
    directory = tmp_path_factory.mktemp("night")
    out, dataset, job_page = directory / "out", directory / "runs", directory / "job.md"
    # Of the whole one, reading takes longer than all that is measured.
    whole = read_baseline(ROOT / DEFAULT)
    few = {key: cell for key, cell in whole.cells.items() if key[0].split(".")[1] in OPERATORS}
    write_baseline(directory / "baseline", Baseline(few, whole.versions, whole.options))
    process = nightly(
        *("--shards", str(SHARDS), "--jobs", "2", "--dataset", dataset, "--out", out),
        *("--baseline", directory / "baseline"),
        *(word for name in OPERATORS for word in ("--op", name)),
        *("--converter", "torchscript", "--examples", str(EXAMPLES), "--shrink", "0", "--no-graphs"),
        GITHUB_STEP_SUMMARY=str(job_page),
    )
    _kill_half_way(process, out / "shards" / str(KILLED))
    said, _ = process.communicate(timeout=300)
    return Night(out, dataset, job_page, process.returncode, said)


def _kill_half_way(process: subprocess.Popen[str], shard: Path) -> None:
    """Kill the process group of a shard as soon as one of its operators is measured."""
    deadline = time.monotonic() + 300
    while not any("done" in file.read_text() for file in shard.glob("parts/*.units")):
        assert time.monotonic() < deadline, "no operator is measured"
        assert process.poll() is None, process.communicate(timeout=60)[0]
        time.sleep(0.005)
    children = psutil.Process(process.pid).children()
    running = (child for child in children if child.status() != psutil.STATUS_ZOMBIE)
    (sweep,) = (child for child in running if f"{KILLED}/{SHARDS}" in child.cmdline())
    killpg(sweep.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_shard_makes_the_night_red(night: Night) -> None:
    assert night.status == 1, night.said
    assert f"FAILED shard {KILLED}/{SHARDS}: was killed (SIGKILL)" in night.said
    assert "FAILED merge: something is missing" in night.said
    failed = re.findall(r"^FAILED (.+?):", night.said, re.MULTILINE)
    assert failed == [f"shard {KILLED}/{SHARDS}", "merge", "gate"], night.said


@pytest.mark.slow
def test_the_merged_run_names_what_is_missing_and_has_the_rest(night: Night) -> None:
    there = completeness(night.out / "run")
    assert [part.state for part in there.parts] == [
        ShardState.PARTIAL if part.index == KILLED else ShardState.COMPLETE for part in there.parts
    ]
    assert len(there.operators) == len(OPERATORS)
    assert 1 <= len(there.unfinished) < len(there.parts[KILLED - 1].operators)
    drawn = Counter(row["overload"] for row in rows(night.out / "run", "overload"))
    whole = set(there.operators) - set(there.unfinished)
    assert {name: drawn[name] for name in whole} == dict.fromkeys(whole, EXAMPLES)
    shards = [store.read(night.out / "shards" / str(n), ["case_id", "outcome"]) for n in range(1, SHARDS + 1)]
    assert sum(shard.num_rows for shard in shards) == drawn.total()


@pytest.mark.slow
def test_the_summary_the_chat_and_the_gate_say_so(night: Night) -> None:
    page = (night.out / "summary.md").read_text()
    assert page.startswith("## Conformance is red: ")
    assert f"shard {KILLED}/{SHARDS} is incomplete" in page
    assert f"| {KILLED}/{SHARDS} | partial | 3 |" in page
    assert f"| **failed** shard {KILLED}/{SHARDS} | was killed (SIGKILL) |" in page
    # Of nine operators only those that were measured wholly are judged.
    lacking = len(completeness(night.out / "run").unfinished)
    (row,) = re.findall(r"^\| torchscript → ort-cpu \| (.*) \|$", page, re.MULTILINE)
    # The last three cells are shares of cases.
    numbers = [int(cell) for cell in row.split(" | ")[:-3]]
    assert numbers[0] == sum(numbers[1:]) == len(OPERATORS)
    assert numbers[-1] == lacking
    assert night.job_page.read_text() == page
    message = json.loads((night.out / "chat.json").read_text())["text"]
    assert message.startswith(f"Conformance is red: shard {KILLED}/{SHARDS} is incomplete")
    assert f"{lacking} missing" in message


@pytest.mark.slow
def test_the_site_of_a_red_night_shows_what_is_missing(night: Night) -> None:
    said = json.loads((night.out / "site" / "summary.json").read_text())["run"]
    assert said["state"] == "partial"
    assert f"Shard {KILLED} of {SHARDS} is unfinished" in " ".join(said["notes"])


@pytest.mark.slow
def test_the_run_is_in_the_dataset_with_what_it_lacks(night: Night) -> None:
    listed = answered("dataset", "list", night.dataset)
    (run,) = listed["runs"]
    assert run["unfinished"] == list(completeness(night.out / "run").unfinished)
    assert listed["set_aside"] == listed["damaged"] == []


@pytest.mark.slow
def test_the_next_night_draws_programs_and_tries_known_cases_again(night: Night, tmp_path: Path) -> None:
    before = rows(night.out / "run", "overload", "case_id", "outcome")
    failed = {(row["overload"], row["case_id"]) for row in before if Outcome(row["outcome"]).is_failure}
    # Which of them stands for a root cause depends on the draws.
    overloads = {overload for overload, _ in failed}
    operators = [word for overload in sorted(overloads) for word in ("--op", overload)]
    process = nightly(
        *("--dataset", night.dataset, "--out", tmp_path / "out", "--seed", "9", "--examples", "4", "--shrink", "0"),
        *(*operators, "--op", "program.conv-bn", "--converter", "torchscript", "--no-graphs"),
        *("--baseline", night.out.parent / "baseline"),
    )
    said, _ = process.communicate(timeout=300)
    assert "shard 1/1: done" in said
    ran = rows(tmp_path / "out" / "run", "overload", "case_id", "source")
    tried = {(row["overload"], row["case_id"]) for row in ran if row["source"] == "corpus"}
    assert tried
    assert tried <= failed
    assert {row["overload"] for row in ran if row["source"] == "generated"} == overloads
    assert {row["overload"] for row in ran if row["source"] == "programs"} == {"program.conv-bn"}


@pytest.fixture
def chat() -> Iterator[tuple[str, list[bytes]]]:
    """An address that takes what a webhook takes, and what it took."""
    posted: list[bytes] = []

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Chat) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/secret", posted
        server.shutdown()


def test_a_night_without_any_shard_is_red(tmp_path: Path, chat: tuple[str, list[bytes]]) -> None:
    address, posted = chat
    process = nightly("--finish", "--out", tmp_path / "out", CONFORMANCE_WEBHOOK=address)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "FAILED merge: no shard left anything in" in said
    assert "webhook: posted, status 200" in said
    assert "secret" not in said
    assert "red: there is no run" in (tmp_path / "out" / "summary.md").read_text()
    (message,) = posted
    assert json.loads(message)["text"].startswith(
        "Conformance is red: there is no run\nFailed: merge: no shard left anything"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--shards", "0"), "Invalid value for '--shards': 0"),
        (("--shard", "1/2", "--finish"), "give one of them"),
        (("--keep", "30"), "Invalid value for '--keep': 30: a rule is last=30 or monthly=12"),
        (("--out", "OUT"), "already holds a night: give another --out, or delete it"),
    ],
)
def test_impossible_options_end_the_night_at_once(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    process = nightly(*(str(tmp_path) if word == "OUT" else word for word in words))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said in output


def test_a_night_is_compared_with_the_last_one_of_its_kind(tmp_path: Path) -> None:
    def run(name: str, *operators: str, **options: Any) -> Path:
        info = RunInfo.begin(seed=0, options={"op": [], "converter": ["dynamo"], **options})
        return recorded(tmp_path / name, (row_of(unary(operator, [1.0])) for operator in operators), info)

    celu, erf = "aten.celu.default", "aten.erf.default"
    earlier = [run("full", celu, erf), run("small", celu, op=[celu])]
    dataset = str(tmp_path / "runs")
    typed("dataset", "add", *earlier, "--to", dataset)
    night = Nightly(NightOptions(out=tmp_path / "out", finish=True, dataset=dataset, baseline=tmp_path / "none"))
    night.fetch_previous()
    (against,) = night.against()
    done = typed("diff", against, run("now", celu, erf))
    assert done.output.endswith(" → now: 2 cases in both\n  2 unchanged\n"), done.output


@pytest.mark.parametrize("name", ["workflow.yml", "README.md", "Containerfile.cpu", "Containerfile.gpu"])
def test_every_command_line_that_we_show_is_one(name: str) -> None:
    text = (ROOT / "ci" / name).read_text().replace("\\\n#", "")
    text = re.sub(r"\$\{\{.*?\}\}", "1", text)
    # Of a container, what stands after its name.
    found = re.findall(r"(?:conformance nightly|--rm [^\n]*? conformance-(?:cpu|gpu)) +(--[^\n]*)", text)
    assert found
    for line in found:
        words = [word for word in shlex.split(line.split("`")[0], comments=True) if word]
        command.make_context("nightly", words)
