"""What a node does for a run. The engine calls this in a worker of its own on the node.

It imports no framework: those belong to the processes that it starts.
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

#: Exit statuses of pytest with which a shard's record may be whole: all pass, some fail, nothing was drawn.
_WHOLE = (0, 1, 5)
#: A last line may be long; a person reads its beginning.
_SHOWN = 300
#: Seconds between two reports on a shard.
_TELLING = 3.0

#: Hears how many cases a shard has by now, and how many of them fail.
Tell: TypeAlias = Callable[[int, int], None]


def describe(arguments: Sequence[str], directory: str) -> tuple[int, str, Described]:
    """What a run consists of: pytest's exit status, what it said last, and the description."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        out, log = Path(scratch) / "described.json", Path(scratch) / "log"
        status = _run("describe_run", [str(out), *arguments], log, {}, directory)
        described = parse_json(Described, out.read_text(encoding="utf-8")) if out.is_file() else Described()
        return status, _last_line(log), described


def look(packages: Sequence[str]) -> dict[str, str]:
    """The environment of this node."""
    return environment_here(packages)


def run_shard(place: str, name: str, shard: int, tell: Tell) -> AttemptReport:
    """Run one shard in a process of its own, and put its record into the place of the run.

    Args:
        place: Path or URL of the `StagedRun`.
        name: Its name.
        shard: Its number, from 1.
        tell: Is called now and then.
    """
    began = time.monotonic()
    try:
        report = _run_shard(StagedRun(place, name), shard, tell)
    except (ResultsError, OSError) as error:
        report = AttemptReport(shard=shard, fate=AttemptOutcome.FAILED, said=f"{platform.node()}: {reason(error)}")
    return AttemptReport(**{**vars(report), "host": platform.node(), "seconds": time.monotonic() - began})


def _run_shard(staged: StagedRun, shard: int, tell: Tell) -> AttemptReport:
    plan = staged.plan()
    if plan is None:
        raise ResultsError(f"{staged.place} has no run {staged.name} here: give a --dataset that all nodes reach")
    node = f"node {platform.node()}"
    wrong = difference(environment_here(plan.environment), plan.environment, node, "the others")
    if wrong:
        return AttemptReport(shard=shard, fate=AttemptOutcome.UNFIT, said=wrong)
    # A node may be out of disk space: nothing of what goes wrong here is the fault of a case.
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as scratch:
        return _in_scratch(staged, plan, shard, Path(scratch), tell)


def _in_scratch(staged: StagedRun, plan: ClusterPlan, shard: int, scratch: Path, tell: Tell) -> AttemptReport:
    parts, record, log = scratch / "parts.json", scratch / "record", scratch / "log"
    account = scratch / ACCOUNT_FILE
    parts.write_text(json.dumps(plan.shards), encoding="utf-8")
    own = ("--shard", f"{shard}/{len(plan.shards)}", "--shard-parts", parts, "--results-dir", record)
    words = [str(account), *plan.arguments, *map(str, own)]

    def tell_on() -> None:
        if account.is_file():
            known = read_account(scratch)
            tell(known.cases, known.failures)

    status = _run("shard_process", words, log, plan.variables, plan.directory, tell_on)
    said = read_account(scratch)
    problem = said.problem or _last_line(log)
    if status in _WHOLE and not said.problem and completeness(record).complete:
        account.rename(record / ACCOUNT_FILE)
        path = staged.publish(record, shard)
        return AttemptReport(
            shard=shard, fate=AttemptOutcome.DONE, path=path, status=status, cases=said.cases, failures=said.failures
        )
    if status < 0:
        word = f"the process of the shard was killed ({signal.Signals(-status).name})"
        return AttemptReport(shard=shard, fate=AttemptOutcome.LOST, said=f"{platform.node()}: {word}", status=status)
    return AttemptReport(
        shard=shard, fate=AttemptOutcome.FAILED, said=f"{platform.node()}: {problem[:_SHOWN]}", status=status
    )


def _run(
    module: str,
    words: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
    directory: str,
    meanwhile: Callable[[], None] | None = None,
) -> int:
    """Run a module of this package to its end; its exit status.

    It and all that it starts end with this process, however that ends: it reads the other end of a pipe.
    `meanwhile` is called every few seconds.
    """
    home = str(Path(harness.__file__).parents[1])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{module}", *words],
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
            # What it left behind goes, too.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or [line for line in lines if line] or ["it said nothing"])[-1]
