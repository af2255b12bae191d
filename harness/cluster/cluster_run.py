"""`conformance run --on`: distribute the shards of a run over nodes and merge them into one run.

1. Ask this machine or a node what the run consists of, and check that all nodes have the same versions.
2. Divide the units into shards and write the plan to a place that all nodes can access.
3. Start shards while there is room, and rerun those that are lost, until nothing is left (`drive`).
4. Merge the recorded shards into one run, and show its summary.
"""

from __future__ import annotations

import io
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from harness.cluster import cluster_options
from harness.cluster.cluster_options import ClusterOptions
from harness.cluster.cluster_progress import ClusterProgress
from harness.cluster.node_environment import Described, difference
from harness.cluster.node_task import describe
from harness.cluster.schedule import (
    Attempt,
    AttemptOutcome,
    AttemptReport,
    Counts,
    Schedule,
    cut,
)
from harness.cluster.staged_run import ACCOUNT_FILE, ClusterPlan, StagedRun, planned_units
from harness.core.text import count
from harness.plan.options import UsageProblem
from harness.plan.sharding import USUAL_EXAMPLES, usual_seconds
from harness.present.terminal_summary import print_summary
from harness.record import layout
from harness.record.archive.archive import Dataset
from harness.record.layout import ResultsError
from harness.record.merging import merge
from harness.record.progress import completeness
from harness.record.run_info import ShardState, write_run_info

if TYPE_CHECKING:
    from harness.cluster.on_ray import RayEngine


#: Seconds between two checks of the nodes.
_LOOK = 1.0


class Engine(Protocol):
    """Runs attempts on nodes."""

    def nodes(self) -> Mapping[str, str]:
        """Return the nodes that can run a shard: id → address."""

    def slots(self) -> int:
        """Return how many attempts can run concurrently."""

    def start(self, attempt: Attempt) -> None:
        """Start an attempt."""

    def wait(self, seconds: float) -> list[tuple[Attempt, AttemptReport]]:
        """Return the attempts that have ended, waiting at most `seconds` for the first one."""

    def progress(self) -> Mapping[Attempt, Counts]:
        """Return the latest counts of running attempts."""

    def stop(self, attempt: Attempt) -> None:
        """Abort an attempt, without a report."""


def drive(
    schedule: Schedule, engine: Engine, progress: ClusterProgress, clock: Callable[[], float] = time.monotonic
) -> None:
    """Start, await and stop attempts until nothing is left to do; `clock` returns seconds."""
    while not schedule.over:
        for attempt in schedule.next(engine.slots(), clock()):
            engine.start(attempt)
        for attempt, report in engine.wait(_LOOK):
            schedule.ended(attempt, report, clock())
            if report.outcome is not AttemptOutcome.DONE:
                what = "is given up" if attempt.shard in schedule.missing else "is run again"
                progress.tell(f"shard {attempt.shard} {report.outcome}: {report.message}; it {what}")
        why = schedule.why_no_node_fits(engine.nodes())
        for attempt in schedule.give_up(why) if why else ():
            engine.stop(attempt)
        progress.show(len(engine.nodes()), engine.slots(), engine.progress)


#: Exit statuses of pytest.
_FINE, _FAILURES, _INTERRUPTED = 0, 1, 2


def run_on_cluster(arguments: Sequence[str], console: Console) -> tuple[int, Path]:
    """Execute `conformance run --on`.

    Returns:
        The exit status, and the directory of the run.

    Raises:
        UsageProblem: The options are invalid for a cluster.
        ResultsError: A directory or URL cannot be written or read.
    """
    given = cluster_options.parse(arguments)
    staged = StagedRun(given.place, given.name)
    plan = staged.plan()
    if plan is None and layout.holds_run(given.results_dir):
        raise ResultsError(
            f"{given.results_dir} already holds a run; nothing was overwritten: choose another place with "
            "--results-dir, or another --run"
        )
    try:
        from harness.cluster.on_ray import RayEngine
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UsageProblem("--on ray needs Ray: pip install 'aten-onnx-conformance[ray]'") from None
    # CI systems and clusters send SIGTERM to a job that is cancelled.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    if given.left_out:
        console.print(f"left out: {given.left_out}", soft_wrap=True)
    try:
        # Ray prints events of its processes to the terminal; `ClusterProgress` reports them in one line.
        with redirect_stdout(io.StringIO()), ThreadPoolExecutor() as aside:
            # While a cluster on this machine starts, which takes seconds, the machine itself can be asked.
            ask_here = plan is None and given.starts_cluster
            here = aside.submit(describe, given.arguments, str(Path.cwd())) if ask_here else None
            with RayEngine(given.on, given.resources) as engine:
                description = here.result() if here else None
                plan = _checked(plan, given, engine) if plan else _plan(given, staged, engine, description)
                status = _run_missing_shards(plan, staged, engine, console)
    finally:
        signal.signal(signal.SIGTERM, before)
    return _conclude(given, plan, staged, status, console), given.results_dir


def _plan(
    given: ClusterOptions, staged: StagedRun, engine: RayEngine, here: tuple[int, str, Described] | None
) -> ClusterPlan:
    """Return the plan of a new run; `here` describes the run if this machine was asked."""
    directory = str(Path.cwd())
    status, last_line, described = here or engine.describe(given.arguments, directory)
    if status != _FINE or not described.units:
        raise UsageProblem(last_line if status != _FINE else "nothing to run: no operator is left")
    _check_nodes(described.environment, engine)
    scale = described.examples / USUAL_EXAMPLES
    seconds = {name: usual_seconds(name.partition(" ")[0]) * scale for name in described.units}
    shards = cut(seconds, engine.slots(), smallest=given.shard_seconds)
    plan = ClusterPlan(
        arguments=given.arguments,
        shards=tuple(shard.units for shard in shards),
        seconds=tuple(shard.seconds for shard in shards),
        environment=described.environment,
        variables=cluster_options.variables(),
        directory=directory,
    )
    staged.begin(plan)
    return plan


def _checked(plan: ClusterPlan, given: ClusterOptions, engine: RayEngine) -> ClusterPlan:
    if plan.arguments != given.arguments:
        raise UsageProblem(
            f"--run {given.name} began with other options ({' '.join(plan.arguments)}): give the same, or another --run"
        )
    _check_nodes(plan.environment, engine)
    return plan


def _check_nodes(expected: Mapping[str, str], engine: RayEngine) -> None:
    """Raise a `UsageProblem` if a node has other versions."""
    for node, environment in sorted(engine.environments(tuple(expected)).items()):
        wrong = difference(environment, expected, f"node {node}", "the run")
        if wrong:
            raise UsageProblem(f"{wrong}: all nodes must have the same; correct it, or remove it from the cluster")


def _run_missing_shards(plan: ClusterPlan, staged: StagedRun, engine: RayEngine, console: Console) -> int:
    """Run the shards that are not recorded yet and return pytest's exit status."""
    recorded = staged.recorded()
    numbered = enumerate(plan.seconds, start=1)
    schedule = Schedule({number: seconds for number, seconds in numbered if number not in recorded})
    progress = ClusterProgress(schedule, len(plan.shards), console.file)
    engine.serve(staged.place, staged.name)
    dashboard = f"; Ray's dashboard: {engine.dashboard}" if engine.dashboard else ""
    before = f", {len(recorded):,} of them recorded before" if recorded else ""
    shards, nodes = count(len(plan.shards), "shard"), count(len(engine.nodes()), "node")
    progress.tell(f"run {staged.name}: {shards}{before}, on {nodes}{dashboard}")
    try:
        drive(schedule, engine, progress)
    except KeyboardInterrupt:
        for attempt in schedule.give_up("the run was interrupted"):
            engine.stop(attempt)
        return _INTERRUPTED
    progress.tell(progress.line(len(engine.nodes()), engine.slots()))
    return _FAILURES if schedule.missing else _FINE


def _conclude(given: ClusterOptions, plan: ClusterPlan, staged: StagedRun, status: int, console: Console) -> int:
    """Merge the recorded shards into one run, and show its summary."""
    recorded = staged.recorded()
    if not recorded:
        raise ResultsError(f"nothing of the run {given.name} is recorded; rerun with --run {given.name} to retry")
    given.results_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".merging-", dir=given.results_dir) as scratch:
        fetched = [staged.fetch(recorded[number], Path(scratch)) for number in sorted(recorded)]
        for directory in fetched:
            (directory / ACCOUNT_FILE).unlink(missing_ok=True)
        whole = Path(scratch) / "whole"
        info = merge(fetched, whole).info
        statuses = [part.exit_status for part in info.shards if part.exit_status is not None]
        if all(part.state is ShardState.COMPLETE for part in info.shards):
            # The shards of a complete run are not worth recording.
            units = planned_units(unit for part in plan.shards for unit in part)
            write_run_info(whole, replace(info, shards=(), planned=(units,)))
        _move(whole, given.results_dir)
    print_summary(console, given.results_dir)
    if status == _INTERRUPTED:
        console.print(
            f"interrupted: {len(recorded):,} of {count(len(plan.shards), 'shard')} are recorded; the same "
            f"command with --run {given.name} goes on",
            soft_wrap=True,
        )
        return status
    if not completeness(given.results_dir).complete:
        console.print(f"rerun with --run {given.name} to retry what is missing", soft_wrap=True)
        return max(status, _FAILURES)
    if given.dataset:
        Dataset(given.dataset).add(given.results_dir)
    staged.remove()
    if not given.dataset:
        with suppress(OSError):
            # Uploads were stored there until they were complete.
            (given.results_dir / "adding").rmdir()
    # A shard without cases does not count if others have some.
    drawn = [status for status in statuses if status != 5] or statuses
    return max([status, *drawn])


def _move(merged: Path, results_dir: Path) -> None:
    """Move the merged run to the results directory, replacing one with fewer shards."""
    for path in sorted(merged.iterdir(), key=lambda path: path.name == layout.RUN_FILE):
        target = results_dir / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
