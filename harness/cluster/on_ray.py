"""The engine: nodes, tasks and their ends, as Ray has them. The only file that imports Ray.

Ray runs a task again whose worker died, three times by default, and without a limit where the node was out of
memory. So a crash would be tried until it does not happen. Here Ray retries nothing; `schedule.py` decides.
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
# On a cluster of this process's own, shards are what the machine is for.
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

#: Seconds until a node has to say what it has; it may have to fetch the project first.
_LOOKING = 300.0
#: Seconds for which a list of nodes holds.
_LOOK = 1.0
#: Seconds after which what a node could not begin is begun again.
_AGAIN = 3.0
#: Timeout for reading progress, in seconds.
_HEARING = 0.5
#: Seconds until a cluster has to accept a connection.
_KNOCKING = 10.0
_CLIENT = "ray://"
#: What Ray's exceptions say of a task, in fewer words.
_ENDS = {
    "NodeDiedError": "its node died",
    "WorkerCrashedError": "its process on the node died",
    "OutOfMemoryError": "its node was out of memory",
    "LocalRayletDiedError": "its node died",
}
_NODE_ID = "ray.io/node-id"


def _shard_task(generation: int) -> Callable[[str, str, int, int, Any], AttemptReport]:
    """What a worker runs for a shard. That of another generation is another function for Ray."""

    def run(place: str, name: str, shard: int, number: int, tally: Any, generation: int = generation) -> AttemptReport:
        node = str(ray.get_runtime_context().get_node_id())

        def tell(cases: int, failures: int) -> None:
            tally.note.remote(number, cases, failures)

        return replace(node_task.run_shard(place, name, shard, tell), node=node)

    return run


class _NodeIsGone(UsageProblem):
    """A node that was asked by name is not part of the cluster any more."""


class RayEngine:
    """A Ray cluster.

    Args:
        on: ``ray`` for the one of ``RAY_ADDRESS``, or without that for one that is started on this machine;
            or an address, ``ray://HOST:PORT``.
        needs: What an attempt takes of a node in addition to a CPU.

    Raises:
        UsageProblem: the cluster cannot be reached, or no node has what is needed.
    """

    def __init__(self, on: str, needs: Mapping[str, float]) -> None:
        self._carried = tempfile.TemporaryDirectory(prefix="conformance-")
        self._needs = dict(needs)
        self._running: dict[Any, Attempt] = {}
        self._tally: Any = None
        self._heard: dict[int, Counts] = {}
        self._context: Any = None
        self._run = "", ""
        self._generation = 0
        self._known: list[dict[str, Any]] = []
        self._looked = float("-inf")
        #: When attempts may begin again, after a node could not begin one.
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
            # Without the page, Ray would start what serves it anyway.
            page = importlib.util.find_spec("aiohttp_cors") is not None
            self._context = ray.init("local", include_dashboard=page, **quiet)
            return
        if address.startswith(_CLIENT) and importlib.util.find_spec("grpc") is None:
            raise UsageProblem(f"--on {on} needs Ray's client: pip install '.[ray]'")
        where = f"--on {on}" if on != "ray" else f"RAY_ADDRESS={address}"
        try:
            _knock(address)
            project = {"working_dir": str(copy_project(Path(self._carried.name)))}
            self._context = ray.init(address, runtime_env=project, **quiet)
        except (OSError, RayError, RuntimeError, ValueError) as error:
            raise UsageProblem(f"{where}: the cluster cannot be reached: {_line(error)}") from None

    @property
    def dashboard(self) -> str:
        """The address of Ray's dashboard; "" where it has none."""
        url = str(getattr(self._context, "dashboard_url", None) or "")
        return url if not url or "://" in url else f"http://{url}"

    def nodes(self) -> dict[str, str]:
        """The nodes that can run a shard: id → address."""
        return {node["NodeID"]: node["NodeManagerAddress"] for node in self._seen() if self._fit(node)}

    def slots(self) -> int:
        """How many attempts run at once."""
        if time.monotonic() < self._resumes:
            return 0
        return sum(self._fit(node) for node in self._seen())

    def describe(self, arguments: Sequence[str], directory: str) -> tuple[int, str, Described]:
        """`node_task.describe` on a node that can run a shard."""
        # It changes nothing, so that Ray may ask another node where one is lost.
        task = ray.remote(node_task.describe).options(max_retries=3, **self._options())
        found: tuple[int, str, Described] = self._get(_begun(task, arguments, directory))
        return found

    def environments(self, packages: Sequence[str]) -> dict[str, dict[str, str]]:
        """`node_task.look` on every node that can run a shard: address → environment."""
        asked = {}
        for node, address in self.nodes().items():
            strategy = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(node_task.look).options(max_retries=0, num_cpus=0, scheduling_strategy=strategy)
            asked[f"{address} ({node[:6]})"] = _begun(task, packages)
        found = {}
        for name, reference in asked.items():
            # Ray lists a node for a while that is no more. If it comes back, its shards are checked.
            with suppress(_NodeIsGone):
                found[name] = self._get(reference)
        return found

    def serve(self, place: str, name: str) -> None:
        """Attempts are those of the `StagedRun` at `place`."""
        self._run = place, name
        self._tally = ray.remote(Tally).options(num_cpus=0, max_restarts=-1).remote()

    def told(self) -> Mapping[Attempt, Counts]:
        """What attempts that run told of last."""
        # Its node may be lost, and it begins anew elsewhere.
        with suppress(RayError):
            self._heard = ray.get(self._tally.counts.remote(), timeout=_HEARING)
        return {a: self._heard[a.number] for a in self._running.values() if a.number in self._heard}

    def start(self, attempt: Attempt) -> None:
        """Begin an attempt as soon as there is room."""
        options: dict[str, Any] = {}
        if avoid := attempt.avoided(self.nodes()):
            # Ray takes a blank behind a comma for a part of the next word.
            options["label_selector"] = {_NODE_ID: f"!in({','.join(sorted(avoid))})"}
        task = ray.remote(_shard_task(self._generation)).options(
            name=f"shard {attempt.shard}", max_retries=0, **self._options(), **options
        )
        reference = _begun(task, *self._run, attempt.shard, attempt.number, self._tally)
        self._running[reference] = attempt

    def wait(self, seconds: float) -> list[tuple[Attempt, AttemptReport]]:
        """The attempts that have ended; waits for the first at most so long."""
        if not self._running:
            return []
        first, rest = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        more = ray.wait(rest, num_returns=len(rest), timeout=0)[0] if first and rest else []
        ended = []
        for reference in [*first, *more]:
            attempt = self._running.pop(reference)
            ended.append((attempt, self._report(attempt, reference)))
        return ended

    def stop(self, attempt: Attempt) -> None:
        """End an attempt; nothing more is heard of it."""
        for reference, running in list(self._running.items()):
            if running == attempt:
                del self._running[reference]
                with suppress(Exception):
                    ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leave the cluster; end it where it was started for this run."""
        for attempt in list(self._running.values()):
            self.stop(attempt)
        with suppress(Exception):
            ray.shutdown()
        self._carried.cleanup()

    def _options(self) -> dict[str, Any]:
        own = {name: amount for name, amount in self._needs.items() if name not in ("GPU", "CPU")}
        return {"num_cpus": 1, "num_gpus": self._needs.get("GPU", 0), "resources": own}

    def _fit(self, node: Mapping[str, Any]) -> int:
        """How many attempts have room on a node."""
        if not node["Alive"]:
            return 0
        return int(min(node["Resources"].get(name, 0) / amount for name, amount in {"CPU": 1, **self._needs}.items()))

    def _seen(self) -> list[dict[str, Any]]:
        """All nodes, as they were a moment ago: the list of many takes Ray a while."""
        if time.monotonic() - self._looked > _LOOK:
            self._known, self._looked = cast(Any, ray).nodes(), time.monotonic()
        return self._known

    def _get(self, reference: Any) -> Any:
        try:
            return ray.get(reference, timeout=_LOOKING)
        except RayTaskError as error:
            raise UsageProblem(f"a node cannot run the harness: {_line(error.cause)}") from None
        except RayError as error:
            gone = isinstance(error, TaskUnschedulableError | NodeDiedError)
            problem = _NodeIsGone if gone else UsageProblem
            raise problem(f"a node does not answer: {_line(error)}") from None

    def _report(self, attempt: Attempt, reference: Any) -> AttemptReport:
        try:
            found: AttemptReport = ray.get(reference)
        except (RayTaskError, RuntimeEnvSetupError) as error:
            # The task did not begin: a node may be about to get the project. A worker never tries again to
            # import a function that it could not import, and would spoil one shard after the other.
            self._generation += 1
            self._resumes = time.monotonic() + _AGAIN
            lines = str(getattr(error, "cause", None) or error).strip().splitlines()
            said = f"a node cannot run the harness: {lines[-1][:200]}"
            return AttemptReport(shard=attempt.shard, fate=AttemptOutcome.LOST, said=said)
        except TaskCancelledError:
            return AttemptReport(shard=attempt.shard, fate=AttemptOutcome.LOST, said="it was cancelled")
        except RayError as error:
            said = _ENDS.get(type(error).__name__) or _line(error)
            return AttemptReport(shard=attempt.shard, fate=AttemptOutcome.LOST, said=said)
        return found


def _begun(task: Any, *arguments: Any) -> Any:
    try:
        return task.remote(*arguments)
    except Exception as error:
        # From outside, Ray first imports the task in a process of the cluster, and raises what that raised.
        raise UsageProblem(f"the cluster cannot run the harness: {_line(error)}") from None


def _knock(address: str) -> None:
    """Check that a process listens: Ray itself tries for many minutes.

    Raises:
        OSError: none does.
    """
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_KNOCKING).close()


def _line(error: BaseException) -> str:
    """An error's first line, without what Ray adds for its developers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:200]
