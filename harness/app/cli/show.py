"""`conformance show`: everything that a run knows about one case."""

from __future__ import annotations

from pathlib import Path

import click

from harness.app.cli._shared import emit, example, json_option, print_json, run_option, statuses
from harness.causes.known_issues import read_known_issues
from harness.present import case_report as case

SECTION = "look"


@click.command(
    short_help="Show a recorded case: its call, results and fault.",
    epilog=example(
        "conformance show 82129e6a",
        "conformance show 82129e6a --run results/RUN --json",
        "conformance show 82129e6a --lines",
    )
    + statuses("0 if the case did not fail; 1 if it failed somewhere"),
)
@click.argument("case_id")
@run_option
@click.option(
    "--lines",
    is_flag=True,
    help="Find the lines of the converter that most likely cause its failures. Exports the case and others again.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, case_id: str, run: Path, lines: bool, as_json: bool) -> None:
    """Show a recorded case: the call, its verdicts, and whom to blame.

    CASE_ID is the id of a case, the beginning of it, or the id of its minimal case.

    With --json: run, case_id, call, torch, invocation, versions, verdicts, minimal, known. With --lines each
    failure of the converter's has lines: function, file, line, text, reason, score.
    """
    view = case.case_view(run, case_id, read_known_issues())
    if lines:
        view = case.add_suspects(view)
    if as_json:
        print_json("show", view.to_data())
    else:
        emit(*case.render(view))
    ctx.exit(int(view.failed))
