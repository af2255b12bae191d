"""`conformance graphs`: ONNX graphs and repro scripts, written beside a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from harness.app.cli._output import emit, example, line, print_json, statuses
from harness.app.cli._run_argument import json_option, run_argument
from harness.core import count


@click.command(
    epilog=example("conformance graphs results/RUN", "conformance graphs results/RUN --op celu --again")
    + statuses("0")
)
@run_argument
@click.option("--op", "ops", multiple=True, metavar="NAME", help="Only these operators; repeatable.")
@click.option("--again", is_flag=True, help="Also what was written already.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds for each graph and script.",
)
@json_option
def command(run: Path, ops: tuple[str, ...], again: bool, timeout: float, as_json: bool) -> None:
    """Write what each converter makes of each operator of RUN, and its failures as scripts.

    Both take PyTorch, and operators to be run; `conformance dashboard`, which runs none, shows what is found
    in RUN/graphs.jsonl and RUN/scripts.jsonl. What is there already is not made again.

    With --json: run, graphs, scripts, failed.
    """
    from harness.analyse import write_evidence
    from harness.core import UnknownOperator, match
    from harness.record import store

    known = sorted(set(store.read(run, ["overload"])["overload"].to_pylist())) if ops else []
    try:
        overloads = {name for pattern in ops for name in match(pattern, known)} if ops else None
    except UnknownOperator as error:
        raise click.UsageError(f"in {run}: {error}") from None
    written = write_evidence(run, overloads=overloads, again=again, timeout=timeout)
    if as_json:
        print_json({"run": str(run), **dataclasses.asdict(written)})
        return
    for label, why in written.failed.items():
        click.echo(f"not made: {label}: {why}", err=True)
    emit(line(f"{count(written.graphs, 'graph')} and {count(written.scripts, 'script')} written to {run}"))
