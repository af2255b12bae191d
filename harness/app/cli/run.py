"""`conformance run`: the same as `pytest harness`, from any directory."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from harness.app.cli._shared import example, print_json
from harness.plan.options import UsageProblem
from harness.plan.pytest_session import pytest_main
from harness.record import layout, store
from harness.record.run_info import newest, read_run_info

SECTION = "run"


@click.command(
    short_help="Run operators, as `pytest harness ARGS` does.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=example(
        "conformance run",
        "conformance run --op aten::celu --examples 400 -n 2",
        "conformance run --backend onnx-reference --converter torchscript --record-only",
        "conformance run --on ray --dataset s3://bucket/runs --run tonight",
    )
    + "\n\nExit status: pytest's; 0 for no failure, 1 for failures, 4 for options that cannot be carried "
    "out, 5 if the run drew nothing.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.pass_context
def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run operators, as `pytest harness ARGS` does, from any directory.

    All options go to pytest: `conformance run -- --help` lists them. Begin with --op, --converter, --backend
    and --examples. The run is written to results/ in the current directory, or to --results-dir.

    \b
    --on ray               runs on Ray: on the cluster of RAY_ADDRESS, or on all CPUs of this machine
    --on ray://HOST:10001  runs on another cluster; needs --dataset
    --dataset DATASET      with --on: where nodes write and the run is kept; a URL of fsspec or a directory
    --run NAME             with --on: names the run; the same command goes on with one that was ended
    --shard-seconds S      with --on: work in the smallest shard (150)

    With --json, pytest's output goes to stderr and a summary to stdout: exit_status, run, run_id, cases,
    verdicts, outcomes.
    """
    given = list(arguments)
    options = given[: given.index("--")] if "--" in given else given
    if any(word.partition("=")[0] == "--on" for word in options):
        ctx.exit(_start_cluster_run(given))
    if "--json" not in options:
        ctx.exit(pytest_main(given))
    given.remove("--json")
    before = _newest()
    directory = _ResultsDirectory()
    with contextlib.redirect_stdout(sys.stderr):
        status = pytest_main(given, directory)
    run = directory.path or _newest()
    print_json("run", {"exit_status": status, **_summary(run if run is not None and run != before else None)})
    ctx.exit(status)


def _start_cluster_run(given: list[str]) -> int:
    """Run on a cluster, and report problems in one line."""
    from harness.cluster.cluster_run import run_on_cluster

    as_json = "--json" in given
    stream = sys.stderr if as_json else sys.stdout
    try:
        status, run = run_on_cluster([word for word in given if word != "--json"], Console(file=stream))
    except UsageProblem as error:
        click.echo(f"Error: {error}", err=True)
        return 4
    if as_json:
        print_json("run", {"exit_status": status, **_summary(run)})
    return status


class _ResultsDirectory:
    """A pytest plug-in that learns where the run is written."""

    path: Path | None = None

    def pytest_configure(self, config: Any) -> None:
        """Take note of the option."""
        given = getattr(config.option, "results_dir", None)
        self.path = Path(given) if given else None


def _newest() -> Path | None:
    return newest(Path.cwd() / layout.DEFAULT_PARENT)


def _summary(run: Path | None) -> dict[str, Any]:
    if run is None or not layout.holds_run(run):
        return {"run": None, "run_id": None, "cases": 0, "verdicts": 0, "outcomes": {}}
    rows = store.read(run, ["case_id", "outcome"])
    outcomes = rows.group_by("outcome").aggregate([([], "count_all")]).sort_by("outcome").to_pylist()
    return {
        "run": str(run),
        "run_id": read_run_info(run).run_id,
        "cases": len(rows["case_id"].unique()),
        "verdicts": rows.num_rows,
        "outcomes": {row["outcome"]: row["count_all"] for row in outcomes},
    }
