"""`conformance dashboard`: runs as a static site."""

from __future__ import annotations

import time
from pathlib import Path

import click

from harness.app.cli._output import emit, example, line, print_json, statuses
from harness.app.cli._run_argument import json_option, runs_in


@click.command(
    epilog=example(
        "conformance dashboard results/* --out site/",
        "conformance dashboard DATASET --out site/ --json",
    )
    + statuses("0; 1 where no run could be shown")
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="site",
    show_default=True,
    metavar="DIR",
    help="Where; a site that is there is replaced.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, runs: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Build a static site of some runs, which opens from a file and from any web server.

    The runs are put in the order in which they began. One that is damaged is set aside: the site says so, and
    shows the others. What takes an operator to be run, ONNX graphs and scripts, is shown where
    `conformance graphs` has written it beside a run.

    With --json: site, runs, aside, seconds, summary.
    """
    # NumPy and Arrow take a while to import.
    from harness.present import write_site

    started = time.perf_counter()
    site = write_site(runs_in(runs), out)
    seconds = round(time.perf_counter() - started, 1)
    if as_json:
        aside = [{"name": one.name, "message": one.message} for one in site.aside]
        print_json(
            {"site": str(out), "runs": site.runs, "aside": aside, "seconds": seconds, "summary": site.summary}
        )
    else:
        for one in site.aside:
            click.echo(f"set aside: {one.name}: {one.message}", err=True)
        count = "1 run" if site.runs == 1 else f"{site.runs} runs"
        emit(line(f"{count}, {seconds} s; open {out / 'index.html'}"))
    ctx.exit(int(not site.runs))
