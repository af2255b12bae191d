"""`conformance upgrade`: what changed with the installed versions, and how to accept it."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.app.cli._shared import (
    directory_option,
    emit,
    example,
    json_option,
    op_option,
    operators_matching,
    print_json,
    statuses,
)

if TYPE_CHECKING:
    from harness.gate.after_upgrade import Goldens

SECTION = "gate"
#: Where releases are kept, as `conformance bisect` keeps them.
_RELEASES = Path(".conformance") / "releases"


@click.command(
    short_help="Say what an upgrade of packages changed.",
    context_settings={"ignore_unknown_options": True},
    epilog=example(
        "pip install --upgrade onnxruntime && conformance upgrade -n 2",
        "conformance upgrade --accept",
        "conformance upgrade --op celu --markdown",
    )
    + statuses("0 if nothing is worse, or if you accept the changes; 1 if something is worse"),
)
@op_option("Only these operators.")
@directory_option("--baseline", "The baseline to compare with.", "golden/baseline")
@directory_option("--golden", "The goldens to compare with, if there are any.", "golden")
@click.option("--results-dir", type=click.Path(path_type=Path), help="Where to write the run.")
@click.option("--accept", is_flag=True, help="Accept the changes: record the baseline and the goldens again.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
@json_option
@click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST OPTIONS]...")
@click.pass_context
def command(
    ctx: click.Context,
    ops: tuple[str, ...],
    baseline: Path,
    golden: Path,
    results_dir: Path | None,
    accept: bool,
    markdown: bool,
    as_json: bool,
    more: tuple[str, ...],
) -> None:
    """Say what changed since the goldens and the baseline were recorded, and which versions changed.

    Call it after you upgraded a dependency. It runs the goldens in PyTorch and in the backends (`conformance
    golden check`), then the cases of the baseline (`pytest harness --baseline`). The progress goes to stderr.

    What is worse is run once more with the earlier releases, which pip installs into .conformance/releases. What these
    do on this machine, too, is called "this machine", and is not counted as worse.

    With --json: worse, versions, goldens, baseline, run, accepted.
    """
    from harness.gate.after_upgrade import confirmed, look, sweep
    from harness.gate.baseline.file import of_run, read_baseline, updated, write_baseline
    from harness.plan.pytest_session import pytest_main
    from harness.present import report as reports, upgrade_report as upgrade
    from harness.record import layout
    from harness.record.run_info import RunInfo

    expected = read_baseline(baseline)
    known = sorted({key[0] for key in expected.cells})
    names = operators_matching(ops, known, "in the baseline") if ops else None
    run = results_dir or layout.default_directory(RunInfo.begin(seed=0, options={}).run_id)
    with contextlib.redirect_stdout(sys.stderr):
        goldens = look(golden, names)
    compared = sweep(baseline, run, pytest_main, names, more)
    compared = confirmed(compared, baseline, run.with_name(f"{run.name}-earlier"), _RELEASES, more)
    account = upgrade.Account(goldens=goldens, sweep=compared)
    if as_json:
        print_json({**upgrade.as_json(account), "run": str(run), "accepted": accept})
    elif markdown:
        click.echo(reports.markdown(upgrade.report(account)), nl=False)
    else:
        emit(reports.render(upgrade.report(account)))
    if not accept:
        ctx.exit(int(account.worse > 0))
    write_baseline(baseline, updated(expected, of_run(run)))
    click.echo(f"wrote {baseline}", err=True)
    if goldens is not None:
        _record_again(golden, goldens, names)


def _record_again(golden: Path, goldens: Goldens, names: list[str] | None) -> None:
    """Record the goldens of some operators with what is installed now; of all where none is named."""
    from harness.gate.golden.record import record

    done = record(
        golden,
        list(goldens.manifest.goldens) if names is None else names,
        backends=[name for name in goldens.manifest.backends if name not in goldens.left_out],
        converter_names=list(goldens.manifest.converters),
        complete=names is None,
        seed=goldens.manifest.seed,
        count=goldens.manifest.count,
    )
    for overload, why in done.lost.items():
        click.echo(f"{overload}: no goldens: {why}", err=True)
    click.echo(f"wrote {sum(map(len, done.manifest.goldens.values()))} goldens to {golden}", err=True)
