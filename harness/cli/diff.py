"""`conformance diff`: what changed between two runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.cli._run_argument import find_run, json_option


@click.command(epilog="Example: conformance diff results/MONDAY results/TUESDAY --fail-on regression")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", required=False, type=click.Path(path_type=Path))
@click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "change"]),
    help="Exit with status 1 if a case regressed, or if anything changed.",
)
@json_option
def command(before: Path, after: Path | None, markdown: bool, fail_on: str | None, as_json: bool) -> None:
    """What changed from the run BEFORE to the run AFTER (the newest), and with which versions."""
    from rich.console import Console

    from harness.record.diff import Change, compare_runs
    from harness.report import changes

    first, second = find_run(before), find_run(after)
    found = compare_runs(first, second)
    if as_json:
        click.echo(json.dumps(changes.as_json(found), indent=2))
    elif markdown:
        click.echo(changes.markdown(found, before=first.name, after=second.name), nl=False)
    else:
        Console().print(changes.render(found))
    changed = any(n for kind, n in found.counts.items() if kind is not Change.UNCHANGED)
    if (fail_on == "regression" and found.regressed) or (fail_on == "change" and changed):
        raise SystemExit(1)
