"""`conformance dashboard`: runs as a static site."""

from __future__ import annotations

import time
from pathlib import Path

import click

from harness.app.cli._shared import (
    directory_option,
    emit,
    example,
    json_option,
    line,
    print_json,
    runs_in,
    say_step,
    statuses,
)
from harness.core.text import count

SECTION = "look"


@click.command(
    short_help="Build a static site of some runs.",
    epilog=example("conformance dashboard results/* --out site/", "conformance dashboard DATASET --out site/ --json")
    + statuses("0; 1 if no run could be shown"),
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@directory_option("--out", "Where to write the site. An existing site is replaced.", "site", metavar="DIR")
@json_option
@click.pass_context
def command(ctx: click.Context, runs: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Build a static site of some runs. It opens from a file or from any web server.

    The site shows the runs in the order in which they began. It sets a damaged run aside, names it, and shows
    the others. ONNX graphs and scripts appear if `conformance graphs` has written them for the run.

    With --json: site, runs, aside, seconds, summary.
    """
    # NumPy and Arrow take a while to import.
    from harness.present.dashboard.site import write_site

    started = time.perf_counter()
    found = runs_in(runs)
    say_step(f"read {count(len(found), 'run')} and write the pages")
    site = write_site(found, out)
    seconds = round(time.perf_counter() - started, 1)
    if as_json:
        aside = [{"name": one.name, "message": one.message} for one in site.aside]
        data = {"site": str(out), "runs": site.runs, "aside": aside, "seconds": seconds, "summary": site.summary}
        print_json("dashboard", data)
    else:
        for one in site.aside:
            click.echo(f"set aside: {one.name}: {one.message}", err=True)
        emit(line(f"{count(site.runs, 'run')}, {seconds} s; open {out / 'index.html'}"))
    ctx.exit(int(not site.runs))
