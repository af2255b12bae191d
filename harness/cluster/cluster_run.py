"""`conformance run --on`: a run whose shards an engine carries to nodes, and which is one run in the end.

1. Ask this machine or a node what the run consists of, and check that all nodes have the same versions.
2. Cut the units into shards and write the plan to the place that all nodes reach.
3. Start shards where there is room, and run again what is lost, until nothing is left (`drive`).
4. Merge the recorded shards into one run, and show it.
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


#: Seconds between two looks at the nodes.
_LOOK = 1.0


class Engine(Protocol):
    """What carries attempts to nodes."""

    def nodes(self) -> Mapping[str, str]:
        """Id → address of the nodes that can run a shard."""

    def slots(self) -> int:
        """How many attempts run at once."""

    def start(self, attempt: Attempt) -> None:
        """Begin an attempt."""

    def wait(self, seconds: float) -> list[tuple[Attempt, AttemptReport]]:
        """The attempts that have ended; waits for the first at most so long."""

    def told(self) -> Mapping[Attempt, Counts]:
        """What attempts that run told of last."""

    def stop(self, attempt: Attempt) -> None:
        """End an attempt; nothing more is heard of it."""


def drive(
    schedule: Schedule, engine: Engine, progress: ClusterProgress, clock: Callable[[], float] = time.monotonic
) -> None:
    """Start, wait for and stop attempts until nothing is left to do; `clock` gives seconds."""
    while not schedule.over:
        for attempt in schedule.next(engine.slots(), clock()):
            engine.start(attempt)
        for attempt, report in engine.wait(_LOOK):
            schedule.ended(attempt, report, clock())
            if report.fate is not AttemptOutcome.DONE:
                what = "is given up" if attempt.shard in schedule.missing else "is run again"
                progress.tell(f"shard {attempt.shard} {report.fate}: {report.said}; it {what}")
        why = schedule.no_node_is_left(engine.nodes())
        for attempt in schedule.give_up(why) if why else ():
            engine.stop(attempt)
        progress.show(len(engine.nodes()), engine.slots(), engine.told)


#: Exit statuses, as pytest has them.
_FINE, _FAILURES, _INTERRUPTED = 0, 1, 2


def run_on_cluster(arguments: Sequence[str], console: Console) -> tuple[int, Path]:
    """Carry out `conformance run --on`.

    Returns:
        The exit status, and where the run is.

    Raises:
        UsageProblem: the options are invalid for a cluster.
        ResultsError: a place cannot be written or read.
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
        raise UsageProblem("--on ray needs Ray: pip install '.[ray]'") from None
    # What a CI or a cluster sends to a job that is cancelled.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    if given.left_out:
        console.print(f"left out: {given.left_out}", soft_wrap=True)
    try:
        # Ray prints to the terminal what became of its processes; `ClusterProgress` says it in a line.
        with redirect_stdout(io.StringIO()), ThreadPoolExecutor() as aside:
            # A cluster of this machine alone takes seconds to start, in which the machine can be asked.
            ask_here = plan is None and given.starts_cluster
            here = aside.submit(describe, given.arguments, str(Path.cwd())) if ask_here else None
            with RayEngine(given.on, given.resources) as engine:
                found = here.result() if here else None
                plan = _checked(plan, given, engine) if plan else _planned(given, staged, engine, found)
                status = _carry_out(plan, staged, engine, console)
    finally:
        signal.signal(signal.SIGTERM, before)
    return _conclude(given, plan, staged, status, console), given.results_dir


def _planned(
    given: ClusterOptions, staged: StagedRun, engine: RayEngine, here: tuple[int, str, Described] | None
) -> ClusterPlan:
    """What is to be done. `here` describes the run if this machine was asked."""
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
    """Refuse to mix versions."""
    for node, found in sorted(engine.environments(tuple(expected)).items()):
        wrong = difference(found, expected, f"node {node}", "the run")
        if wrong:
            raise UsageProblem(f"{wrong}: all nodes must have the same; correct it, or take it out of the cluster")


def _carry_out(plan: ClusterPlan, staged: StagedRun, engine: RayEngine, console: Console) -> int:
    """Run what is not recorded yet; pytest's exit status."""
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
    """Make one run of the recorded shards, and show it."""
    recorded = staged.recorded()
    if not recorded:
        raise ResultsError(f"nothing of the run {given.name} is recorded; the same --run {given.name} begins it again")
    given.results_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".merging-", dir=given.results_dir) as scratch:
        fetched = [staged.fetch(recorded[number], Path(scratch)) for number in sorted(recorded)]
        for directory in fetched:
            (directory / ACCOUNT_FILE).unlink(missing_ok=True)
        whole = Path(scratch) / "whole"
        info = merge(fetched, whole).info
        statuses = [part.exit_status for part in info.shards if part.exit_status is not None]
        if all(part.state is ShardState.COMPLETE for part in info.shards):
            # The shards of a run that lacks none are of no interest.
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
        console.print(f"the same command with --run {given.name} tries again what is missing", soft_wrap=True)
        return max(status, _FAILURES)
    if given.dataset:
        Dataset(given.dataset).add(given.results_dir)
    staged.remove()
    if not given.dataset:
        with suppress(OSError):
            # What uploads were written to first.
            (given.results_dir / "adding").rmdir()
    # A shard without cases does not count where others have some.
    drawn = [one for one in statuses if one != 5] or statuses
    return max([status, *drawn])


def _move(merged: Path, results_dir: Path) -> None:
    """Put the merged run in place of one that was merged when less was recorded."""
    for path in sorted(merged.iterdir(), key=lambda path: path.name == layout.RUN_FILE):
        target = results_dir / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
