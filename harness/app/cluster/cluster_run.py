"""`conformance run --on`: a run whose shards an engine carries to nodes, and which is one run in the end."""

from __future__ import annotations

import io
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.app.cluster import cluster_options
from harness.app.cluster.cluster_options import ClusterOptions
from harness.app.cluster.cluster_progress import ClusterProgress
from harness.app.cluster.described import Described
from harness.app.cluster.drive import drive
from harness.app.cluster.lanes import Lane, lanes
from harness.app.cluster.micro_shards import cut
from harness.app.cluster.node_environment import difference
from harness.app.cluster.node_task import describe
from harness.app.cluster.schedule import Schedule
from harness.app.cluster.staged_run import (
    ACCOUNT_FILE,
    ClusterPlan,
    PlannedLane,
    StagedRun,
    planned_units,
    read_account,
)
from harness.app.cluster.unit_times import USUAL_EXAMPLES, read_times, write_times
from harness.core import count
from harness.plan import UsageProblem
from harness.present import print_summary
from harness.record import (
    Dataset,
    ResultsError,
    ShardState,
    completeness,
    join_backends,
    layout,
    merge,
    read_run_info,
    write_run_info,
)

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
        cut_by_need = lanes(given.arguments)
        needs = [lane.resources for lane in cut_by_need]
        with redirect_stdout(io.StringIO()), ThreadPoolExecutor() as aside:
            # A cluster of this machine alone takes seconds to start, in which the machine can be asked.
            asked = cut_by_need if plan is None and given.starts_cluster else ()
            here = [aside.submit(describe, lane.arguments, str(Path.cwd())) for lane in asked]
            with RayEngine(given.on, needs) as engine:
                found = [future.result() for future in here]
                plan = _checked(plan, given, engine) if plan else _planned(given, cut_by_need, staged, engine, found)
                status = _carry_out(plan, staged, engine, console)
    finally:
        signal.signal(signal.SIGTERM, before)
    return _conclude(given, plan, staged, status, console), given.results_dir


def _planned(
    given: ClusterOptions,
    cut_by_need: Sequence[Lane],
    staged: StagedRun,
    engine: RayEngine,
    here: Sequence[tuple[int, str, Described]],
) -> ClusterPlan:
    """What is to be done. `here` describes the lanes if this machine was asked."""
    plan = ClusterPlan(
        arguments=given.arguments,
        lanes=(),
        examples=0,
        variables=cluster_options.variables(),
        directory=str(Path.cwd()),
    )
    descriptions = []
    for place, lane in enumerate(cut_by_need):
        status, said, described = here[place] if here else engine.describe(lane.arguments, plan.directory, place)
        if status != _FINE or not described.units:
            raise UsageProblem(said if status != _FINE else "nothing to run: no operator is left")
        descriptions.append(described)
        empty = PlannedLane(
            arguments=lane.arguments,
            backends=lane.backends,
            shards=(),
            seconds=(),
            environment=described.environment,
        )
        plan = replace(plan, lanes=(*plan.lanes, empty), examples=max(plan.examples, described.examples))
    _check_nodes(plan, engine)
    usual = read_times(given.dataset)
    for place, described in enumerate(descriptions):
        scale = described.examples / USUAL_EXAMPLES
        seconds = {name: usual(plan.time_name(place, name)) * scale for name in described.units}
        shards = cut(seconds, engine.slots(place), smallest=given.shard_seconds)
        whole = replace(
            plan.lanes[place],
            shards=tuple(shard.units for shard in shards),
            seconds=tuple(shard.seconds for shard in shards),
        )
        plan = replace(plan, lanes=(*plan.lanes[:place], whole, *plan.lanes[place + 1 :]))
    staged.begin(plan)
    return plan


def _checked(plan: ClusterPlan, given: ClusterOptions, engine: RayEngine) -> ClusterPlan:
    if plan.arguments != given.arguments:
        raise UsageProblem(
            f"--run {given.name} began with other options ({' '.join(plan.arguments)}): give the same, or another --run"
        )
    _check_nodes(plan, engine)
    return plan


def _check_nodes(plan: ClusterPlan, engine: RayEngine) -> None:
    """Refuse to mix versions. What one lane has and another lacks is a runtime of its own."""
    shared = {name: version for lane in plan.lanes for name, version in lane.environment.items()}
    for place, lane in enumerate(plan.lanes):
        expected = {name: shared[name] for name in lane.environment}
        for node, found in sorted(engine.environments(tuple(expected), place).items()):
            wrong = difference(found, expected, f"node {node}", "the run")
            if wrong:
                raise UsageProblem(f"{wrong}: all nodes must have the same; mend it, or take it out of the cluster")


def _carry_out(plan: ClusterPlan, staged: StagedRun, engine: RayEngine, console: Console) -> int:
    """Run what is not recorded yet; pytest's exit status."""
    recorded = staged.recorded()
    schedules = []
    for place, lane in enumerate(plan.lanes):
        numbered = zip(plan.numbers(place), lane.seconds, strict=True)
        todo = {n: seconds for n, seconds in numbered if n not in recorded}
        schedules.append(Schedule(todo, lane=place))
    progress = ClusterProgress(schedules, plan.count, console.file)
    engine.serve(staged.place, staged.name)
    dashboard = f"; Ray's dashboard: {engine.dashboard}" if engine.dashboard else ""
    before = f", {len(recorded):,} of them recorded before" if recorded else ""
    shards, nodes = count(plan.count, "shard"), count(len(engine.nodes()), "node")
    progress.tell(f"run {staged.name}: {shards}{before}, on {nodes}{dashboard}")
    try:
        drive(schedules, engine, progress)
    except KeyboardInterrupt:
        for schedule in schedules:
            for attempt in schedule.give_up("the run was interrupted"):
                engine.stop(attempt)
        return _INTERRUPTED
    progress.tell(progress.line(len(engine.nodes()), engine.slots()))
    return _FAILURES if any(schedule.missing for schedule in schedules) else _FINE


def _conclude(given: ClusterOptions, plan: ClusterPlan, staged: StagedRun, status: int, console: Console) -> int:
    """Make one run of the recorded shards, and show it."""
    recorded = staged.recorded()
    if not recorded:
        raise ResultsError(f"nothing of the run {given.name} is recorded; the same --run {given.name} begins it again")
    times: defaultdict[str, float] = defaultdict(float)
    statuses = []
    given.results_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".merging-", dir=given.results_dir) as scratch:
        merged = []
        for place in range(len(plan.lanes)):
            fetched = [staged.fetch(recorded[n], Path(scratch)) for n in plan.numbers(place) if n in recorded]
            for directory in fetched:
                for unit, taken in read_account(directory).seconds.items():
                    times[plan.time_name(place, unit)] += taken
                (directory / ACCOUNT_FILE).unlink(missing_ok=True)
            if fetched:
                merged.append(Path(scratch) / f"lane-{place}")
                merge(fetched, merged[-1])
        whole = merged[0]
        if len(plan.lanes) > 1:
            whole = Path(scratch) / "joined"
            without = [lane for n, lane in enumerate(plan.lanes) if not recorded.keys() & {*plan.numbers(n)}]
            join_backends(merged, whole, lost=[part for lane in without for part in lane.planned])
        info = read_run_info(whole)
        statuses += [part.exit_status for part in info.shards if part.exit_status is not None]
        if all(part.state is ShardState.COMPLETE for part in info.shards):
            # Nobody needs to know of the shards of a run that lacks none.
            units = planned_units(unit for lane in plan.lanes for part in lane.shards for unit in part)
            write_run_info(whole, replace(info, shards=(), planned=(units,)))
        _move(whole, given.results_dir)
    print_summary(console, given.results_dir)
    if status == _INTERRUPTED:
        console.print(
            f"interrupted: {len(recorded):,} of {count(plan.count, 'shard')} are recorded; the same "
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


def _move(merged: Path, results_dir: Path) -> None:
    """Put the merged run in place of one that was merged when less was recorded."""
    for path in sorted(merged.iterdir(), key=lambda path: path.name == layout.RUN_FILE):
        target = results_dir / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
