"""`conformance run --on`: a run whose shards an engine carries to nodes, and which is one run in the end."""

from __future__ import annotations

import io
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.app.cluster import cluster_options
from harness.app.cluster.cluster_options import ClusterOptions
from harness.app.cluster.cluster_progress import ClusterProgress
from harness.app.cluster.drive import drive
from harness.app.cluster.micro_shards import cut
from harness.app.cluster.node_environment import difference
from harness.app.cluster.schedule import Schedule
from harness.app.cluster.staged_run import ACCOUNT_FILE, ClusterPlan, StagedRun, read_account
from harness.app.cluster.unit_times import USUAL_EXAMPLES, read_times, write_times
from harness.core import count
from harness.plan import UsageProblem
from harness.present import print_summary
from harness.record import Dataset, ResultsError, ShardState, completeness, layout, merge, write_run_info

if TYPE_CHECKING:
    from harness.app.cluster.on_ray import RayEngine

#: Exit statuses, as pytest has them.
_FINE, _FAILURES, _INTERRUPTED = 0, 1, 2


def run_on_cluster(arguments: Sequence[str], console: Console) -> tuple[int, Path]:
    """Carry out `conformance run --on`.

    Returns:
        The exit status, and where the run is.

    Raises:
        UsageProblem: it cannot be carried out as it was asked for.
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
        from harness.app.cluster.on_ray import RayEngine
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UsageProblem("--on ray needs Ray: pip install '.[ray]'") from None
    # What a CI or a cluster sends to a job that is cancelled.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Ray prints to the terminal what became of its processes; `ClusterProgress` says it in a line.
        with redirect_stdout(io.StringIO()), RayEngine(given.on, given.resources) as engine:
            plan = _checked(plan, given, engine) if plan else _planned(given, staged, engine)
            status = _carry_out(plan, staged, engine, console)
    finally:
        signal.signal(signal.SIGTERM, before)
    return _conclude(given, plan, staged, status, console), given.results_dir


def _planned(given: ClusterOptions, staged: StagedRun, engine: RayEngine) -> ClusterPlan:
    directory = str(Path.cwd())
    status, said, described = engine.describe(given.arguments, directory)
    if status != _FINE or not described.units:
        raise UsageProblem(said if status != _FINE else "nothing to run: no operator is left")
    _check_nodes(described.environment, engine)
    usual = read_times(given.dataset)
    seconds = {name: usual(name) * described.examples / USUAL_EXAMPLES for name in described.units}
    shards = cut(seconds, engine.slots(), smallest=given.shard_seconds)
    plan = ClusterPlan(
        arguments=given.arguments,
        shards=tuple(shard.units for shard in shards),
        seconds=tuple(shard.seconds for shard in shards),
        examples=described.examples,
        environment=described.environment,
        variables=cluster_options.variables(),
        directory=directory,
    )
    staged.begin(plan)
    return plan


def _checked(plan: ClusterPlan, given: ClusterOptions, engine: RayEngine) -> ClusterPlan:
    if plan.arguments != given.arguments:
        raise UsageProblem(
            f"--run {given.name} began with other options ({' '.join(plan.arguments)}): give the same, or "
            "another --run"
        )
    _check_nodes(plan.environment, engine)
    return plan


def _check_nodes(expected: Mapping[str, str], engine: RayEngine) -> None:
    """Refuse to mix versions."""
    for node, found in sorted(engine.environments(tuple(expected)).items()):
        wrong = difference(found, expected, f"node {node}", "the run")
        if wrong:
            raise UsageProblem(
                f"{wrong}: all nodes must have the same; mend it, or take it out of the cluster"
            )


def _carry_out(plan: ClusterPlan, staged: StagedRun, engine: RayEngine, console: Console) -> int:
    """Run what is not recorded yet; pytest's exit status."""
    recorded = staged.recorded()
    todo = {n: seconds for n, seconds in enumerate(plan.seconds, start=1) if n not in recorded}
    schedule = Schedule(todo)
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


def _conclude(
    given: ClusterOptions, plan: ClusterPlan, staged: StagedRun, status: int, console: Console
) -> int:
    """Make one run of the recorded shards, and show it."""
    recorded = staged.recorded()
    if not recorded:
        raise ResultsError(
            f"nothing of the run {given.name} is recorded; the same --run {given.name} begins it again"
        )
    times: Counter[str] = Counter()
    statuses = []
    given.results_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".merging-", dir=given.results_dir) as scratch:
        fetched = [staged.fetch(name, Path(scratch)) for name in recorded.values()]
        for directory in fetched:
            times.update(read_account(directory).seconds)
            (directory / ACCOUNT_FILE).unlink(missing_ok=True)
        merged = merge(fetched, Path(scratch) / "merged")
        statuses += [part.exit_status for part in merged.info.shards if part.exit_status is not None]
        if all(part.state is ShardState.COMPLETE for part in merged.info.shards):
            # Nobody needs to know of the shards of a run that lacks none.
            planned = _planned_units(merged.info.planned)
            write_run_info(Path(scratch) / "merged", replace(merged.info, shards=(), planned=(planned,)))
        _move(Path(scratch) / "merged", given.results_dir)
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
        scale = USUAL_EXAMPLES / max(plan.examples, 1)
        write_times(given.dataset, {name: taken * scale for name, taken in times.items()})
    staged.remove()
    if not given.dataset:
        with suppress(OSError):
            # What uploads were written to first.
            (given.results_dir / "adding").rmdir()
    # A shard without a case is none to speak of where others have some.
    drawn = [one for one in statuses if one != 5] or statuses
    return max([status, *drawn])


def _planned_units(parts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    words: dict[str, list[str]] = {}
    for part in parts:
        for overload, some in part.items():
            words.setdefault(overload, []).extend(some.split())
    return {overload: " ".join(sorted(words[overload])) for overload in sorted(words)}


def _move(merged: Path, results_dir: Path) -> None:
    """Put the merged run in place of one that was merged when less was recorded."""
    for path in sorted(merged.iterdir(), key=lambda path: path.name == layout.RUN_FILE):
        target = results_dir / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
