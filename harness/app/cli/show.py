"""`conformance show`: everything that a run knows of one case."""

from __future__ import annotations

from pathlib import Path

import click

from harness.analyse import read_known_issues
from harness.app.cli._output import emit, example, print_json, statuses
from harness.app.cli._run_argument import json_option, run_option
from harness.present import case_report as case


@click.command(
    epilog=example("conformance show 82129e6a", "conformance show 82129e6a --run results/RUN --json")
    + statuses("0 for a case that did not fail; 1 for one that failed somewhere")
)
@click.argument("case_id")
@run_option
@json_option
@click.pass_context
def command(ctx: click.Context, case_id: str, run: Path, as_json: bool) -> None:
    """Show a recorded case: the call, and what became of it.

    CASE_ID is the id of a case, the beginning of it, or the id of the minimal case that it was shrunk to.

    With --json: run, case_id, call, torch, invocation, versions, verdicts, minimal, known.
    """
    view = case.case_view(run, case_id, read_known_issues())
    if as_json:
        print_json(view.to_data())
    else:
        emit(*case.render(view))
    ctx.exit(int(view.failed))
