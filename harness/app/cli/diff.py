"""`conformance diff`: the changes between two runs or baselines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.app.cli._shared import (
    emit,
    example,
    json_option,
    print_json,
    statuses,
    waivers_option,
    warn_if_incomplete,
)

if TYPE_CHECKING:
    from harness.gate.diff_inputs import Found


SECTION = "gate"


@click.command(
    short_help="Show what changed between two runs or baselines.",
    epilog=example(
        "conformance diff",
        "conformance diff results/MONDAY results/TUESDAY",
        "conformance diff golden/baseline results/RUN --fail-on regression",
        "conformance diff golden/baseline results/RUN --fail-on regression --waivers waivers.toml",
        "conformance diff HEAD~1 golden/baseline --markdown",
        "conformance diff v1.0:golden/baseline results/RUN --json",
    )
    + statuses(
        "0; with --fail-on, 1 if something is worse, or if anything changed, or if AFTER did not run "
        "everything that it planned, or if the two have nothing in common"
    ),
)
@click.argument("before", required=False)
@click.argument("after", required=False)
@click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "change"]),
    help="Exit with status 1 if something is worse, or if anything changed.",
)
@waivers_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    before: str | None,
    after: str | None,
    markdown: bool,
    fail_on: str | None,
    waivers: Path | None,
    as_json: bool,
) -> None:
    """Show the changes from BEFORE to AFTER, in which versions, and why, as far as that is known.

    Each is a run, a directory with a baseline, REVISION:PATH for a baseline in a git revision, or REVISION
    for the golden/baseline in it. By default AFTER is the newest run in results/ that ran every operator, and
    BEFORE is the newest earlier run of the same kind: with the same operators, converters, backends and
    options.

    Two runs with the same cases are compared case by case, also if each has one converter and one backend and these
    differ: a case that passes with the first alone has regressed, with the second alone it has improved. Baselines
    and runs with different cases are compared by operator, dtype, converter and backend, as `pytest harness
    --baseline` does.

    Cases that AFTER planned and did not run (a lost shard, a killed session) are reported as not checked, not as a
    change. Cases that one of two runs was not asked for (another operator, converter or backend) are counted apart.

    With --json: counts, not_requested, compared, missing, versions, options, waivers, and overloads (case by case)
    or differences.
    """
    from harness.gate.case_changes import ChangeKind
    from harness.gate.diff_inputs import compare_as_fits, find_sides
    from harness.gate.run_diff import Diff
    from harness.gate.waivers import Waivers
    from harness.present import gate_report as gate, report as reports, run_changes as changes

    first, second = find_sides(before, after)
    for side in (first, second):
        if side.run is not None:
            warn_if_incomplete(side.run)
    found = compare_as_fits(first, second, Waivers.read(waivers))
    if isinstance(found, Diff):
        if as_json:
            print_json("diff", changes.diff_data(found))
        elif markdown:
            click.echo(reports.markdown(changes.report(found, f"Conformance: {first.name} → {second.name}")), nl=False)
        else:
            emit(reports.render(changes.report(found, f"{first.name} → {second.name}")))
        changed = any(n for change, n in found.counts.items() if change is not ChangeKind.UNCHANGED)
        ctx.exit(_status(fail_on, found, worse=found.regressed, changed=changed))
    if as_json:
        print_json("diff", gate.comparison_data(found))
    elif markdown:
        click.echo(reports.markdown(gate.report(found, f"Conformance: {first.name} → {second.name}")), nl=False)
    else:
        emit(reports.render(gate.report(found, f"{first.name} → {second.name}")))
    ctx.exit(_status(fail_on, found, worse=found.worse > 0, changed=bool(found.differences)))


def _status(fail_on: str | None, found: Found, *, worse: bool, changed: bool) -> int:
    # A gate stays closed if nothing was compared.
    if fail_on is not None and (found.missing or not found.compared):
        return 1
    return int((fail_on == "regression" and worse) or (fail_on == "change" and changed))
