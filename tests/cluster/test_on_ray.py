"""`conformance run --on ray` on clusters of several nodes, each a group of processes of this machine.

Everything may die but the verdicts: whatever happens, the rows are those of `pytest harness`.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from commands import typed
from harness_runs import environment, record_of, rows, run_harness, unary

from harness.record.progress import completeness
from harness.record.run_info import read_run_info

ray_cluster = pytest.importorskip("ray.cluster_utils")

pytestmark = pytest.mark.slowest(1)

#: On it the planted backends crash and hang.
GUILTY = 13.25
OPERATORS = ("abs", "celu", "neg", "relu", "tanh")
SEGFAULT, HANG = "onnx-api:planted.segfault", "onnx-api:planted.hang"
#: What runs differ in: their ids, hosts and times.
OWN = ("run_id", "convert_ms", "load_ms", "run_ms")
#: A module that Python imports at its start, on a node where hardly anything can be written.
FULL_DISK = """
import resource, sys
if "harness.cluster.shard_process" in sys.orig_argv:
    # Python 3.11 keeps half a compiled file, here in a folder that all nodes share.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
"""


#: A backend as a package of its own, for which a node must have something.
ACCELERATED = """
from harness.run.backend import BACKENDS, BackendEntry, register
register(BackendEntry(
    name="accelerated",
    probe=lambda argument: None,
    create=lambda argument: BACKENDS.find("onnx-reference")[0].create(argument),
    version=lambda argument: "1.0",
    resources={"accelerator": 1},
))
"""


class Nodes:
    """A cluster whose head runs no shard, and with one sound node, which runs one at once."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.said: dict[int, Path] = {}
        self.cluster: Any = ray_cluster.Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "include_dashboard": False,
                "ray_client_server_port": _free_port(),
            },
        )
        self.steady = self.add()

    def add(self, first_on_path: Path | None = None, **resources: Any) -> Any:
        path = os.pathsep.join([*([str(first_on_path)] if first_on_path else []), os.environ["PYTHONPATH"]])
        return self.cluster.add_node(**{"num_cpus": 1, **resources}, env_vars={"PYTHONPATH": path})

    def kill(self, node: Any) -> None:
        self.cluster.remove_node(node, allow_graceful=False)

    @property
    def client_address(self) -> str:
        """The address for clients outside the cluster."""
        return f"ray://127.0.0.1:{self.cluster.head_node._ray_params.ray_client_server_port}"

    def run(self, *words: str | Path, path: Path | None = None, on: str = "ray") -> subprocess.Popen[str]:
        """A driver in a process of its own; it imports from `path`, too."""
        options = ["--on", on, "--shard-seconds", "0.01", *map(str, words)]
        imports = os.pathsep.join([*([str(path)] if path else []), os.environ["PYTHONPATH"]])
        # A shell starts what is to run in the background with interrupts ignored, and so would be the driver.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with tempfile.NamedTemporaryFile("w", dir=self.logs, delete=False) as log:
                driver = subprocess.Popen(
                    [sys.executable, "-m", "harness.app.cli", "run", *options],
                    env={**os.environ, "RAY_ADDRESS": self.cluster.address, "PYTHONPATH": imports},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
        finally:
            signal.signal(signal.SIGINT, before)
        self.said[driver.pid] = Path(log.name)
        return driver

    def said_by(self, driver: subprocess.Popen[str], *, wait: bool = True) -> str:
        """Return the output of a driver, complete or up to now."""
        if wait:
            driver.wait(400)
        return self.said[driver.pid].read_text()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def arguments(calls: Path) -> list[str]:
    backends = ("--backend", "ort-cpu", "--backend", SEGFAULT, "--backend", HANG)
    return ["--replay", str(calls), "--converter", "dynamo", *backends, "--timeout", "6", "--no-blame"]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    # What Ray keeps for later sessions is not to be found in this user's home.
    with patch.dict(os.environ, {**environment(), "RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}):
        found = Nodes(tmp_path_factory.mktemp("drivers"))
        yield found
        found.cluster.shutdown()


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded calls, one of which crashes and hangs."""
    values = [[0.5, -2.0], [3.0, 4.0, -5.0]]
    found = [unary(f"aten.{name}.default", value) for name in OPERATORS for value in values]
    return record_of(tmp_path_factory.mktemp("calls") / "run", [*found, unary("aten.neg.default", [GUILTY])])


@pytest.fixture(scope="module")
def expected(calls: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of the same cases on one machine."""
    out = tmp_path_factory.mktemp("one") / "run"
    run_harness(*arguments(calls), "--results-dir", out, "--shrink", "0")
    found = comparable(out)
    assert {row["outcome"] for row in found} == {"pass", "crash", "timeout"}
    return found


def comparable(run: Path) -> list[dict[str, Any]]:
    """The rows of a run in order, without what differs from run to run."""
    found = [{name: value for name, value in row.items() if name not in OWN} for row in rows(run)]
    return sorted(found, key=lambda row: (row["case_id"], row["backend"]))


def wait_for(what: Callable[[], Any], seconds: float = 240) -> Any:
    """Return the first true result of a function."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.1)
    return found


def recorded(out: Path, name: str) -> int:
    """Return the number of recorded shards of a run that is under way."""
    return len(list((out / "running" / name).glob("*/run.json")))


def shard_processes() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "harness.cluster.shard_process" in (process.info["cmdline"] or ()):
            found.append(process)
    return found


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that has ended stays until its parent asks for its status."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def workers_with_a_shard(node: Any) -> list[psutil.Process]:
    """Return a node's workers that have started the process of a shard."""
    raylet = node.all_processes["raylet"][0].process.pid
    parents = [parent for process in shard_processes() if (parent := process.parent())]
    return [parent for parent in parents if parent.ppid() == raylet]


@pytest.mark.thorough
def test_nothing_is_lost_with_a_node_a_worker_a_disk_or_a_version(
    nodes: Nodes, calls: Path, expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    full, other = tmp_path / "full", tmp_path / "other" / "hypothesis-0.0.1.dist-info"
    full.mkdir()
    other.mkdir(parents=True)
    (full / "sitecustomize.py").write_text(FULL_DISK)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: hypothesis\nVersion: 0.0.1\n")
    lost, full_node = nodes.add(), nodes.add(full)
    runs = tmp_path / "runs"
    words = ("--run", "faults", "--results-dir", tmp_path / "out", "--dataset", runs)
    driver = nodes.run(*arguments(calls), *words)
    # All three nodes are at work: nothing else is sure to find two of them so. Two faults at once: no shard
    # meets more than one of them, and none is lost three times.
    wait_for(lambda: workers_with_a_shard(nodes.steady) and workers_with_a_shard(lost))
    (worker,) = workers_with_a_shard(nodes.steady)
    orphans = worker.children()
    worker.kill()
    nodes.kill(lost)
    wait_for(lambda: not any(map(is_alive, orphans)), seconds=30)
    # Nodes of one machine share their copy of the project, which a new one writes again: while it does, no
    # other node may have to start a process.
    wait_for(lambda: workers_with_a_shard(nodes.steady))
    unfit = nodes.add(other.parent)
    said = nodes.said_by(driver)
    for node in (full_node, unfit):
        nodes.kill(node)
    assert driver.returncode == 1, said
    assert comparable(tmp_path / "out") == expected, said
    assert completeness(tmp_path / "out").complete
    assert re.search(r"shard \d lost: .*is run again", said), said
    assert re.search(r"shard \d failed: .*File too large.*is run again", said), said
    assert re.search(r"shard \d unfit: .*hypothesis 0.0.1, not .*is run again", said), said
    # The dataset has the run, and nothing more of its shards.
    run_id = read_run_info(tmp_path / "out").run_id
    assert comparable(runs / f"run_id={run_id}") == expected
    assert sorted(path.name for path in runs.iterdir()) == ["adding", f"run_id={run_id}"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["run.json", "verdicts.parquet"]
    assert not read_run_info(tmp_path / "out").shards


@pytest.mark.thorough
def test_a_driver_that_is_no_part_of_the_cluster(
    nodes: Nodes, calls: Path, expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    words = ("--results-dir", tmp_path / "out", "--dataset", tmp_path / "runs")
    driver = nodes.run(*arguments(calls), *words, on=nodes.client_address)
    said = nodes.said_by(driver)
    assert driver.returncode == 1, said
    assert comparable(tmp_path / "out") == expected, said
    assert completeness(tmp_path / "out").complete


@pytest.mark.slow
def test_a_default_run_on_this_machine_has_the_rows_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run leaves failures in the working directory, which the next one there begins with.
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    words = ["--op", "relu", "--op", "tanh", "--examples", "24", "--backend", "ort-cpu"]
    for name, more in (("here", ("-n", "2", "--shrink", "0")), ("there", ("--on", "ray"))):
        monkeypatch.chdir(tmp_path / name)
        out = ("--results-dir", str(tmp_path / name / "run"))
        with patch.dict(os.environ, {**environment(), "RAY_AUTH_MODE": "disabled"}):
            done = subprocess.run(
                [sys.executable, "-m", "harness.app.cli", "run", *words, *more, *out],
                capture_output=True,
                text=True,
                timeout=400,
                check=False,
            )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        assert "lost" not in done.stdout
    named = ("case_id", "exported_invocation", "source", "converter", "backend", "stage", "outcome")
    both = [
        [[row[name] for name in named] for row in comparable(tmp_path / name / "run")] for name in ("here", "there")
    ]
    assert both[0] == both[1]


@pytest.mark.thorough
def test_a_driver_that_is_killed_or_interrupted_goes_on(
    nodes: Nodes, calls: Path, expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("--run", "resumed", "--results-dir", out)
    driver = nodes.run(*arguments(calls), *words)
    wait_for(lambda: recorded(out, "resumed") >= 1)
    driver.kill()
    driver.wait()
    wait_for(lambda: not shard_processes())
    driver = nodes.run(*arguments(calls), *words)
    # Those that it has begun take seconds more, however slow this process is.
    wait_for(shard_processes)
    driver.send_signal(signal.SIGINT)
    said = nodes.said_by(driver)
    assert driver.returncode == 2, said
    assert "interrupted" in said
    assert "--run resumed goes on" in said
    # The record is sound, and says what it lacks.
    some = comparable(out)
    assert some
    assert all(row in expected for row in some)
    assert completeness(out).unfinished
    wait_for(lambda: not shard_processes())
    driver = nodes.run(*arguments(calls), *words)
    said = nodes.said_by(driver)
    assert re.search(r"\d shards, \d of them recorded before", said), said
    assert comparable(out) == expected, said
    assert completeness(out).complete
    # Another run is not overwritten.
    driver = nodes.run(*arguments(calls), *words)
    assert "already holds a run" in nodes.said_by(driver)


@pytest.mark.thorough
def test_a_backend_that_needs_something_of_a_node_runs_where_that_is(nodes: Nodes, calls: Path, tmp_path: Path) -> None:
    path = tmp_path / "plug-in"
    path.mkdir()
    (path / "accelerated.py").write_text(ACCELERATED)
    metadata = path / "accelerated-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: accelerated\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[harness.backends]\naccelerated = accelerated\n")
    backends = ("--backend", "ort-cpu", "--backend", "accelerated")
    words = ("--replay", calls, "--converter", "dynamo", *backends, "--no-blame")
    with patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join([str(path), os.environ["PYTHONPATH"]])}):
        run_harness(*words, "--results-dir", tmp_path / "one", "--shrink", "0")
    # The other node does not even know the backend.
    node = nodes.add(path, resources={"accelerator": 1})
    runs = tmp_path / "runs"
    driver = nodes.run(*words, "--results-dir", tmp_path / "out", "--dataset", runs, path=path)
    said = nodes.said_by(driver)
    nodes.kill(node)
    assert driver.returncode == 0, said
    assert " 1 node" in said
    assert "is run again" not in said
    assert comparable(tmp_path / "out") == comparable(tmp_path / "one")
    assert {row["backend"] for row in comparable(tmp_path / "out")} == {"ort-cpu", "accelerated"}
    one, info = read_run_info(tmp_path / "one"), read_run_info(tmp_path / "out")
    assert completeness(tmp_path / "out").complete
    assert (info.planned, info.operators, info.shards) == (one.planned, one.operators, ())
    assert info.options["backend"] == ["ort-cpu", "accelerated"]


@pytest.mark.thorough
def test_nodes_with_other_versions_are_refused(nodes: Nodes, calls: Path, tmp_path: Path) -> None:
    other = tmp_path / "hypothesis-0.0.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: hypothesis\nVersion: 0.0.1\n")
    # The run is described on one of them and the others are compared with it.
    node = nodes.add(tmp_path)
    driver = nodes.run(*arguments(calls), "--results-dir", tmp_path / "out")
    said = nodes.said_by(driver)
    nodes.kill(node)
    assert driver.returncode == 4, said
    assert re.search(r"^Error: node [\d.]+ \(\w+\) has hypothesis .*0\.0\.1.* as the run: all nodes", said, re.M)
    assert not (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--on", "ray", "-n", "2"], "-n does not go with --on: the cluster decides how much runs at once"),
        (["--on", "slurm"], "--on slurm: give ray, or the address of a Ray cluster, ray://HOST:10001"),
        (["--on", "ray://127.0.0.1:1"], "--on ray://… needs --dataset"),
        (
            ["--on", "ray://127.0.0.1:1", "--dataset", "d"],
            "--on ray://127.0.0.1:1: the cluster cannot be reached: [Errno 111] Connection refused",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_one_line(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed("run", *words, "--op", "celu", status=4)
    assert done.output.startswith(f"Error: {problem}")
    assert done.output.count("\n") == 1


def test_without_ray_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "harness.cluster.on_ray", raising=False)
    done = typed("run", "--on", "ray", "--op", "celu", status=4)
    assert done.output == "Error: --on ray needs Ray: pip install 'aten-onnx-conformance[ray]'\n"


@pytest.mark.thorough
def test_a_backend_that_needs_a_gpu_is_refused_without_one(nodes: Nodes, calls: Path, tmp_path: Path) -> None:
    driver = nodes.run(*arguments(calls), "--backend", "trt", "--results-dir", tmp_path / "out")
    said = nodes.said_by(driver)
    assert driver.returncode == 4, said
    lacking = "no node of the cluster has a GPU, which the backends need"
    assert said == f"Error: {lacking}: add one, or choose other backends\n"
