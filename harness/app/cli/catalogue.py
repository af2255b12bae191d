"""`conformance catalogue`: the defects that runs found, as Markdown."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import emit, example, file_option, find_run, json_option, line, print_json, statuses
from harness.causes import known_issues
from harness.core.documents import count
from harness.present.catalogue import catalogue, markdown
from harness.record.layout import reason

SECTION = "look"


@click.command(
    short_help="Write a catalogue of the distinct defects of some runs.",
    epilog=example(
        "conformance catalogue --out defects.md",
        "conformance catalogue results/DYNAMO results/TORCHSCRIPT --lines 600 --out defects.md",
    )
    + statuses("0"),
)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@file_option("--out", "Write to FILE. Default: the terminal.")
@click.option(
    "--lines",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Run cases to find the lines of converters' defects, in each run at most so long.",
)
@json_option
def command(runs: tuple[str, ...], out: Path | None, lines: float | None, as_json: bool) -> None:
    """Write a catalogue of the distinct defects that runs found, a page for each component, worst first.

    Failures of one root cause are one entry: a place, such as a conversion function or an operator of a
    backend, and what is wrong there. With several runs, the catalogue says which run found what. Declared
    gaps of converters and backends are listed apart, and so is what a specification leaves open.

    With --lines, a case of each root cause of a converter is run to see which line of the converter it
    comes of, those that models meet first. What is found is kept in RUN/places.jsonl, and the next
    catalogue goes on from there.

    With --json: runs, defects, entries. An entry is a group of `conformance failures` and the runs.
    """
    directories = [find_run(run) for run in runs] or [find_run(None)]
    if len({directory.resolve().name for directory in directories}) < len(directories):
        raise click.UsageError("two of the runs have the same name: a catalogue could not tell them apart")
    for directory in directories if lines is not None else ():
        _locate(directory, lines or 0.0)
    found = catalogue(directories, known_issues.read_known_issues())
    if as_json:
        print_json(found.to_data())
        return
    text = markdown(found)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {out}: {reason(error)}") from None
    emit(Text(f"{count(len(found.defects()), 'distinct defect')} of {count(len(directories), 'run')}"))
    emit(line(f"written to {out}"))


def _locate(run: Path, seconds: float) -> None:
    """Look for the lines of a run's defects, and say on the error stream how far that got."""
    # PyTorch takes seconds to import, and only this needs it.
    from harness.reproduce.attachments import locate_failures

    looked, left = locate_failures(run, seconds)
    more = f"; {left:,} are left" if left else ""
    click.echo(f"looked for the lines of {count(looked, 'root cause')} of {run.name}{more}", err=True)
