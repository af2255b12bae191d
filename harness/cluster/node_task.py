"""The tasks of a node; the engine calls these functions in a worker process on the node.

The module imports no framework: frameworks belong to the processes that it starts.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import harness
from harness.cluster.node_environment import Described, difference, environment_here
from harness.cluster.schedule import AttemptOutcome, AttemptReport
from harness.cluster.staged_run import ACCOUNT_FILE, ClusterPlan, StagedRun, read_account
from harness.core.documents import parse_json
from harness.record.layout import ResultsError, reason
from harness.record.progress import completeness

#: Exit statuses of pytest with which a shard's record may be complete: all pass, some fail, no cases.
_WHOLE = (0, 1, 5)
#: Longest message, in characters.
_SHOWN = 300
#: Seconds between progress reports.
_TELLING = 3.0

#: Receives how many cases a shard has run so far, and how many of them failed.
Tell: TypeAlias = Callable[[int, int], None]


def describe(arguments: Sequence[str], directory: str) -> tuple[int, str, Described]:
    """Return pytest's exit status, its last line of output, and the description of a run."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        out, log = Path(scratch) / "described.json", Path(scratch) / "log"
        status = _run("describe_run", [str(out), *arguments], log, {}, directory)
        described = parse_json(Described, out.read_text(encoding="utf-8")) if out.is_file() else Described()
        return status, _last_line(log), described


def environment(packages: Sequence[str]) -> dict[str, str]:
    """Return the environment of this node."""
    return environment_here(packages)


def run_shard(place: str, name: str, shard: int, tell: Tell) -> AttemptReport:
    """Run one shard in a separate process and publish its record.

    Args:
        place: Directory or URL of the `StagedRun`.
        name: The name of the run.
        shard: The number of the shard, from 1.
        tell: Called with the progress every few seconds.
    """
    began = time.monotonic()
    try:
        report = _run_shard(StagedRun(place, name), shard, tell)
    except (ResultsError, OSError) as error:
        message = f"{platform.node()}: {reason(error)}"
        report = AttemptReport(shard=shard, outcome=AttemptOutcome.FAILED, message=message)
    return AttemptReport(**{**vars(report), "host": platform.node(), "seconds": time.monotonic() - began})


def _run_shard(staged: StagedRun, shard: int, tell: Tell) -> AttemptReport:
    plan = staged.plan()
    if plan is None:
        raise ResultsError(f"{staged.place} has no run {staged.name} here: give a --dataset that all nodes reach")
    node = f"node {platform.node()}"
    wrong = difference(environment_here(plan.environment), plan.environment, node, "the others")
    if wrong:
        return AttemptReport(shard=shard, outcome=AttemptOutcome.UNFIT, message=wrong)
    # A node may run out of disk space; such errors must not be blamed on a case.
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as scratch:
        return _run_and_publish(staged, plan, shard, Path(scratch), tell)


def _run_and_publish(staged: StagedRun, plan: ClusterPlan, shard: int, scratch: Path, tell: Tell) -> AttemptReport:
    parts, record, log = scratch / "parts.json", scratch / "record", scratch / "log"
    account = scratch / ACCOUNT_FILE
    parts.write_text(json.dumps(plan.shards), encoding="utf-8")
    shard_options = ("--shard", f"{shard}/{len(plan.shards)}", "--shard-parts", parts, "--results-dir", record)
    arguments = [str(account), *plan.arguments, *map(str, shard_options)]

    def report_progress() -> None:
        if account.is_file():
            counts = read_account(scratch)
            tell(counts.cases, counts.failures)

    status = _run("shard_process", arguments, log, plan.variables, plan.directory, report_progress)
    final = read_account(scratch)
    problem = final.problem or _last_line(log)
    if status in _WHOLE and not final.problem and completeness(record).complete:
        account.rename(record / ACCOUNT_FILE)
        path = staged.publish(record, shard)
        return AttemptReport(
            shard=shard,
            outcome=AttemptOutcome.DONE,
            path=path,
            status=status,
            cases=final.cases,
            failures=final.failures,
        )
    if status < 0:
        problem = f"the process of the shard was killed ({signal.Signals(-status).name})"
    outcome = AttemptOutcome.LOST if status < 0 else AttemptOutcome.FAILED
    message = f"{platform.node()}: {problem[:_SHOWN]}"
    return AttemptReport(shard=shard, outcome=outcome, message=message, status=status)


def _run(
    module: str,
    arguments: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
    directory: str,
    meanwhile: Callable[[], None] | None = None,
) -> int:
    """Run a module of this package in a process and return its exit status.

    The process and its children end with this one, however that ends, since they read the other end of a pipe.
    `meanwhile` is called every few seconds.
    """
    home = str(Path(harness.__file__).parents[1])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            cwd=directory if Path(directory).is_dir() else log.parent,
            env={**os.environ, **variables, "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            while meanwhile is not None:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_TELLING)
                meanwhile()
            return process.wait()
        finally:
            # Also end the processes that it left behind.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or [line for line in lines if line] or ["it printed nothing"])[-1]
