"""The engine: runs tasks on the nodes of a Ray cluster. The only module that imports Ray.

By default Ray reruns a task whose worker died three times, and without limit if the node was out of memory, so that a
crash would be repeated until it does not happen. Here Ray retries nothing; `schedule.py` decides.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, cast

# Disable Ray's usage reports.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# On a cluster that this process starts, shards are the machine's main work.
os.environ.setdefault("RAY_worker_niceness", "0")

import ray
from ray.exceptions import (
    NodeDiedError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    TaskUnschedulableError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from harness.cluster import node_task
from harness.cluster.node_environment import Described, copy_project
from harness.cluster.schedule import Attempt, AttemptOutcome, AttemptReport, Counts, Tally
from harness.plan.options import UsageProblem

#: Seconds in which a node has to describe itself; it may have to fetch the project first.
DESCRIBE_TIMEOUT = 300.0
#: Seconds for which a list of nodes is cached.
_LOOK = 1.0
#: Seconds after which a task that a node could not start is retried.
RETRY_DELAY = 3.0
#: Timeout for reading progress, in seconds.
PROGRESS_TIMEOUT = 0.5
#: Seconds in which a cluster has to accept a connection.
CONNECT_TIMEOUT = 10.0
_CLIENT = "ray://"
#: Ray's exceptions → a shorter description of how a task ended.
_ENDS = {
    "NodeDiedError": "its node died",
    "WorkerCrashedError": "its process on the node died",
    "OutOfMemoryError": "its node was out of memory",
    "LocalRayletDiedError": "its node died",
}
_NODE_ID = "ray.io/node-id"


def _shard_task(generation: int) -> Callable[[str, str, int, int, Any], AttemptReport]:
    """Return the function that a worker runs for a shard; Ray treats another generation as another function."""

    def run(place: str, name: str, shard: int, number: int, tally: Any, generation: int = generation) -> AttemptReport:
        node = str(ray.get_runtime_context().get_node_id())

        def tell(cases: int, failures: int) -> None:
            tally.note.remote(number, cases, failures)

        return replace(node_task.run_shard(place, name, shard, tell), node=node)

    return run


class _NodeIsGone(UsageProblem):
    """A node that a task was pinned to has left the cluster."""


class RayEngine:
    """A Ray cluster.

    Args:
        on: ``ray`` for the cluster of ``RAY_ADDRESS`` or, without that, one that is started on this machine; or an
            address, ``ray://HOST:PORT``.
        needs: The resources that an attempt needs in addition to a CPU.

    Raises:
        UsageProblem: The cluster cannot be reached, or no node has what is needed.
    """

    def __init__(self, on: str, needs: Mapping[str, float]) -> None:
        self._project = tempfile.TemporaryDirectory(prefix="conformance-")
        self._needs = dict(needs)
        self._running: dict[Any, Attempt] = {}
        self._tally: Any = None
        self._counts: dict[int, Counts] = {}
        self._context: Any = None
        self._run = "", ""
        self._generation = 0
        self._known: list[dict[str, Any]] = []
        self._looked = float("-inf")
        #: When attempts may start again, after a node could not start one.
        self._resumes = float("-inf")
        logging.getLogger("ray").setLevel(logging.ERROR)
        self._connect(on)
        if not self.nodes():
            self.close()
            named = {"GPU": "a GPU"}
            lacking = " and ".join(named.get(name, name) for name in needs) or "a CPU"
            raise UsageProblem(
                f"no node of the cluster has {lacking}, which the backends need: add one, or choose other backends"
            )

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, on: str) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        address = os.environ.get("RAY_ADDRESS", "") if on == "ray" else on
        if not address:
            # Ray starts the dashboard server even if its page is not installed.
            page = importlib.util.find_spec("aiohttp_cors") is not None
            self._context = ray.init("local", include_dashboard=page, **quiet)
            return
        if address.startswith(_CLIENT) and importlib.util.find_spec("grpc") is None:
            raise UsageProblem(f"--on {on} needs Ray's client: pip install 'aten-onnx-conformance[ray]'")
        where = f"--on {on}" if on != "ray" else f"RAY_ADDRESS={address}"
        try:
            _check_port(address)
            project = {"working_dir": str(copy_project(Path(self._project.name)))}
            self._context = ray.init(address, runtime_env=project, **quiet)
        except (OSError, RayError, RuntimeError, ValueError) as error:
            raise UsageProblem(f"{where}: the cluster cannot be reached: {_line(error)}") from None

    @property
    def dashboard(self) -> str:
        """The address of Ray's dashboard; "" if there is none."""
        url = str(getattr(self._context, "dashboard_url", None) or "")
        return url if not url or "://" in url else f"http://{url}"

    def nodes(self) -> dict[str, str]:
        """Return the nodes that can run a shard: id → address."""
        return {node["NodeID"]: node["NodeManagerAddress"] for node in self._seen() if self._fit(node)}

    def slots(self) -> int:
        """Return how many attempts can run concurrently."""
        if time.monotonic() < self._resumes:
            return 0
        return sum(self._fit(node) for node in self._seen())

    def describe(self, arguments: Sequence[str], directory: str) -> tuple[int, str, Described]:
        """Run `node_task.describe` on a node that can run a shard."""
        # The task has no side effects, so Ray may retry it on another node.
        task = ray.remote(node_task.describe).options(max_retries=3, **self._options())
        description: tuple[int, str, Described] = self._get(_start_task(task, arguments, directory))
        return description

    def environments(self, packages: Sequence[str]) -> dict[str, dict[str, str]]:
        """Run `node_task.environment` on every node that can run a shard: address → environment."""
        asked = {}
        for node, address in self.nodes().items():
            strategy = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(node_task.environment).options(max_retries=0, num_cpus=0, scheduling_strategy=strategy)
            asked[f"{address} ({node[:6]})"] = _start_task(task, packages)
        environments = {}
        for name, reference in asked.items():
            # Ray lists a node for a while after it has left. If it comes back, each of its shards is checked.
            with suppress(_NodeIsGone):
                environments[name] = self._get(reference)
        return environments

    def serve(self, place: str, name: str) -> None:
        """Run the attempts of the `StagedRun` at `place`."""
        self._run = place, name
        self._tally = ray.remote(Tally).options(num_cpus=0, max_restarts=-1).remote()

    def progress(self) -> Mapping[Attempt, Counts]:
        """Return the latest counts of running attempts."""
        # If its node is lost, the tally restarts elsewhere.
        with suppress(RayError):
            self._counts = ray.get(self._tally.counts.remote(), timeout=PROGRESS_TIMEOUT)
        return {a: self._counts[a.number] for a in self._running.values() if a.number in self._counts}

    def start(self, attempt: Attempt) -> None:
        """Start an attempt as soon as there is room."""
        options: dict[str, Any] = {}
        if avoid := attempt.avoided(self.nodes()):
            # Ray would take a space after a comma for a part of the next word.
            options["label_selector"] = {_NODE_ID: f"!in({','.join(sorted(avoid))})"}
        task = ray.remote(_shard_task(self._generation)).options(
            name=f"shard {attempt.shard}", max_retries=0, **self._options(), **options
        )
        reference = _start_task(task, *self._run, attempt.shard, attempt.number, self._tally)
        self._running[reference] = attempt

    def wait(self, seconds: float) -> list[tuple[Attempt, AttemptReport]]:
        """Return the attempts that have ended, waiting at most `seconds` for the first one."""
        if not self._running:
            return []
        first, rest = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        others = ray.wait(rest, num_returns=len(rest), timeout=0)[0] if first and rest else []
        ended = []
        for reference in [*first, *others]:
            attempt = self._running.pop(reference)
            ended.append((attempt, self._report(attempt, reference)))
        return ended

    def stop(self, attempt: Attempt) -> None:
        """Abort an attempt, without a report."""
        for reference, running in list(self._running.items()):
            if running == attempt:
                del self._running[reference]
                with suppress(Exception):
                    ray.cancel(reference, force=True)

    def close(self) -> None:
        """Disconnect from the cluster, and stop it if it was started for this run."""
        for attempt in list(self._running.values()):
            self.stop(attempt)
        with suppress(Exception):
            ray.shutdown()
        self._project.cleanup()

    def _options(self) -> dict[str, Any]:
        resources = {name: amount for name, amount in self._needs.items() if name not in ("GPU", "CPU")}
        return {"num_cpus": 1, "num_gpus": self._needs.get("GPU", 0), "resources": resources}

    def _fit(self, node: Mapping[str, Any]) -> int:
        """Return how many attempts fit on a node."""
        if not node["Alive"]:
            return 0
        return int(min(node["Resources"].get(name, 0) / amount for name, amount in {"CPU": 1, **self._needs}.items()))

    def _seen(self) -> list[dict[str, Any]]:
        """Return all nodes from a short-lived cache, since listing many nodes takes Ray a while."""
        if time.monotonic() - self._looked > _LOOK:
            self._known, self._looked = cast(Any, ray).nodes(), time.monotonic()
        return self._known

    def _get(self, reference: Any) -> Any:
        try:
            return ray.get(reference, timeout=DESCRIBE_TIMEOUT)
        except RayTaskError as error:
            raise UsageProblem(f"a node cannot run the harness: {_line(error.cause)}") from None
        except RayError as error:
            gone = isinstance(error, TaskUnschedulableError | NodeDiedError)
            problem = _NodeIsGone if gone else UsageProblem
            raise problem(f"a node does not answer: {_line(error)}") from None

    def _report(self, attempt: Attempt, reference: Any) -> AttemptReport:
        try:
            report: AttemptReport = ray.get(reference)
        except (RayTaskError, RuntimeEnvSetupError) as error:
            # The task did not start: perhaps the node does not have the project yet. A worker never retries to import a
            # function that it could not import, so another generation is used from now on.
            self._generation += 1
            self._resumes = time.monotonic() + RETRY_DELAY
            lines = str(getattr(error, "cause", None) or error).strip().splitlines()
            return _lost(attempt, f"a node cannot run the harness: {lines[-1][:200]}")
        except TaskCancelledError:
            return _lost(attempt, "it was cancelled")
        except RayError as error:
            return _lost(attempt, _ENDS.get(type(error).__name__) or _line(error))
        return report


def _lost(attempt: Attempt, message: str) -> AttemptReport:
    return AttemptReport(shard=attempt.shard, outcome=AttemptOutcome.LOST, message=message)


def _start_task(task: Any, *arguments: Any) -> Any:
    try:
        return task.remote(*arguments)
    except Exception as error:
        # Through its client, Ray first imports the task in a process of the cluster, and raises the import's error
        # here.
        raise UsageProblem(f"the cluster cannot run the harness: {_line(error)}") from None


def _check_port(address: str) -> None:
    """Check that a process listens, since Ray itself retries for minutes.

    Raises:
        OSError: No process listens.
    """
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()


def _line(error: BaseException) -> str:
    """Return an error's first line, without what Ray adds for its developers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:200]
