"""`conformance failures`: a run's failures, one entry per defect, worst first."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import emit, example, json_option, line, print_json, run_argument, selecting, statuses
from harness.causes import groups as failures, known_issues
from harness.causes.inaccuracies import COLUMNS, INACCURATE, inaccuracies
from harness.compare.verdict import SPEC
from harness.present.case_report import shown_path
from harness.present.evidence import group_data
from harness.present.failures_text import markdown, render, render_inaccuracies, render_no_longer_failing
from harness.record import store
from harness.record.json_lines import read_minimal
from harness.record.progress import completeness
from harness.record.store import Selection

#: Distinct failures that people see by default.
_SHOWN = 20


SECTION = "look"


@click.command(
    short_help="List the distinct failures of a run, worst first.",
    epilog=example(
        "conformance failures",
        "conformance failures results/RUN --blame backend --backend ort-cpu",
        "conformance failures --op 'aten.upsample_*' --outcome mismatch --json",
        "conformance failures --markdown > defects.md",
    )
    + statuses(
        "0 if nothing failed, or if the specification leaves it all open; 1 for failures, or if verdicts are missing"
    ),
)
@run_argument
@selecting("overload", "backend", "converter", "blame", "outcome", "stage", "dtype", "family")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Most entries to show; 0: all.  [default: 20; all with --json or --markdown]",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print tables of Markdown, a line each.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, run: Path, selection: Selection, limit: int | None, as_markdown: bool, as_json: bool
) -> None:
    """List the distinct failures of a run, worst first.

    Failures of one defect are one entry. It has the place and the kind of the defect, the
    operators and dtypes that it touches, its smallest case, and the upstream issue if one is known. A result
    that the specification leaves open is not a defect, and is listed apart. So is a result that is as exact as the
    operator's own formula, and less exact than PyTorch's.

    With --json: run, missing, failures (total, left_open, groups), inaccuracies, no_longer_failing. A group has
    outcome, stage, blame, owner, place, cause, cases, ordinary_cases, rule, callers, priority, overloads, dtypes,
    converters, backends, smallest, minimal, known. The callers are the models that make one of its calls. Groups that
    models meet come first, then by priority, from 0 to 1.
    """
    missing = _missing(run)
    known = known_issues.read_known_issues()
    rows = selection.read(run, failures.COLUMNS, failures.FAILED, encoded=True)
    groups = failures.failure_groups(rows, read_minimal(run), known)
    inexact = inaccuracies(selection.read(run, COLUMNS, INACCURATE).to_pylist())
    gone = []
    if selection == Selection():
        gone = known_issues.no_longer_failing(known, known_issues.rows_about(known, run))
    if limit is None:
        limit = 0 if as_json or as_markdown else _SHOWN
    # What a specification leaves open is listed, and not counted.
    defects = sum(group.blame != SPEC for group in groups)
    some = groups if limit == 0 else groups[:limit]
    if as_json:
        print_json(
            "failures",
            {
                "run": str(run),
                "missing": missing,
                "failures": {
                    "total": defects,
                    "left_open": len(groups) - defects,
                    "groups": [group_data(group) for group in some],
                },
                "inaccuracies": [dataclasses.asdict(one) for one in inexact],
                "no_longer_failing": [one.to_data() for one in gone],
            },
        )
    elif as_markdown:
        click.echo(markdown(groups, limit or None), nl=False)
    else:
        if groups:
            emit(render(groups, limit or None), Text())
            emit(line(shlex.join(["conformance", "show", groups[0].case_id, "--run", shown_path(run)])))
        else:
            which = "" if selection == Selection() else " of that kind"
            why = f"; the run is incomplete: {missing}" if missing else ""
            emit(Text(f"No failures{which}{why}."))
        if inexact:
            emit(render_inaccuracies(inexact, limit or None))
        if gone:
            emit(render_no_longer_failing(gone))
    ctx.exit(int(bool(missing) or any(group.blame != SPEC for group in groups)))


def _missing(run: Path) -> str:
    """Return one line about the verdicts that a run lacks; "" if it lacks none."""
    there = completeness(run).summary
    if not store.read(run, ["outcome"], encoded=True).num_rows:
        return f"it has no verdict{there and '; '}{there}"
    return there
