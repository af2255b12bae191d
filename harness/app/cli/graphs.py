"""`conformance graphs`: write the ONNX graphs and repro scripts of a run's failures into its directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from harness.app.cli._shared import (
    emit,
    example,
    json_option,
    line,
    op_option,
    operators_matching,
    print_json,
    run_argument,
    statuses,
    timeout_option,
)
from harness.core.text import count

SECTION = "dig"


@click.command(
    short_help="Write the ONNX graphs and scripts that pages show.",
    epilog=example("conformance graphs results/RUN", "conformance graphs results/RUN --op celu --again")
    + statuses("0"),
)
@run_argument
@op_option("Only these operators.")
@click.option("--again", is_flag=True, help="Regenerate existing graphs.")
@timeout_option(60.0, "Seconds for each graph and script.")
@json_option
def command(run: Path, ops: tuple[str, ...], again: bool, timeout: float, as_json: bool) -> None:
    """Write each converter's ONNX graph of each operator of RUN, and a script for each failure.

    The command needs PyTorch and runs operators. `conformance dashboard`, which runs no operator, shows the
    content of RUN/graphs.jsonl and RUN/scripts.jsonl. Existing entries are not made again.

    With --json: run, graphs, scripts, failed.
    """
    from harness.record import store
    from harness.reproduce.attachments import write_evidence

    known = sorted(set(store.read(run, ["overload"])["overload"].to_pylist())) if ops else []
    overloads = set(operators_matching(ops, known, f"in {run}")) if ops else None
    written = write_evidence(run, overloads=overloads, again=again, timeout=timeout)
    if as_json:
        print_json("graphs", {"run": str(run), **dataclasses.asdict(written)})
        return
    for label, why in written.failed.items():
        click.echo(f"not made: {label}: {why}", err=True)
    emit(line(f"{count(written.graphs, 'graph')} and {count(written.scripts, 'script')} written to {run}"))
