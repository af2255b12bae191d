"""`conformance show`: everything that a run knows about one case."""

from __future__ import annotations

from pathlib import Path

import click

from harness.analyse import read_known_issues
from harness.app.cli._shared import emit, example, json_option, print_json, run_option, statuses
from harness.present import case_report as case


@click.command(
    epilog=example("conformance show 82129e6a", "conformance show 82129e6a --run results/RUN --json")
    + statuses("0 if the case did not fail; 1 if it failed somewhere")
)
@click.argument("case_id")
@run_option
@json_option
@click.pass_context
def command(ctx: click.Context, case_id: str, run: Path, as_json: bool) -> None:
    """Show a recorded case: the call, its verdicts, and whom to blame.

    CASE_ID is the id of a case, the beginning of it, or the id of its minimal case.

    With --json: run, case_id, call, torch, invocation, versions, verdicts, minimal, known.
    """
    view = case.case_view(run, case_id, read_known_issues())
    if as_json:
        print_json(view.to_data())
    else:
        emit(*case.render(view))
    ctx.exit(int(view.failed))
