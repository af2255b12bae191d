"""`conformance summary`: a run in a few lines, for a CI job's page and for a chat."""

from __future__ import annotations

from pathlib import Path

import click

from harness.app.cli._shared import (
    example,
    file_option,
    json_option,
    print_json,
    run_argument,
    statuses,
    waivers_option,
)
from harness.core.documents import json_text
from harness.record import layout

SECTION = "look"


@click.command(
    short_help="Sum up a run in Markdown.",
    epilog=example(
        "conformance summary results/RUN --against golden/baseline >> $GITHUB_STEP_SUMMARY",
        "conformance summary results/RUN --against results/YESTERDAY",
        "conformance summary --chat --link https://example.org/site | curl --json @- $WEBHOOK",
    )
    + statuses("0, whether the run is red or green: `conformance diff --fail-on regression` is the gate"),
)
@run_argument
@click.option(
    "--against",
    metavar="BASELINE_OR_RUN",
    help="Compare with a baseline, a run or a git revision, as `conformance diff` does.",
)
@click.option(
    "--earlier",
    metavar="RUN",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Count the root causes of this run and of RUN together, and estimate how many there are; repeatable.",
)
@click.option("--chat", is_flag=True, help="Print a chat message, as the JSON that webhooks expect.")
@file_option("--chat-out", "Also write the chat message to FILE.")
@click.option("--link", default="", metavar="URL", help="Link of the dashboard, for the message.")
@waivers_option
@json_option
def command(
    run: Path,
    against: str | None,
    earlier: tuple[Path, ...],
    chat: bool,
    chat_out: Path | None,
    link: str,
    waivers: Path | None,
    as_json: bool,
) -> None:
    """Sum up a run in Markdown: the passing, missing and worse results, and the worst failures.

    A run is red if something is worse than --against, or if verdicts are missing. Without --against, failures
    alone do not make it red.

    With --json: headline, red, run_id, started, complete, missing, shards, columns, failures, fallbacks,
    causes, against, worse, differences.
    """
    from harness.gate.waivers import Waivers
    from harness.present import digest

    found = digest.digest(run, against, earlier, Waivers.read(waivers))
    if chat_out is not None:
        with layout.replacing(chat_out) as temporary:
            temporary.write_text(json_text(digest.chat(found, link)) + "\n", encoding="utf-8")
    if as_json:
        print_json("summary", digest.digest_data(found))
    elif chat:
        click.echo(json_text(digest.chat(found, link)))
    else:
        click.echo(digest.markdown(found, link), nl=False)
