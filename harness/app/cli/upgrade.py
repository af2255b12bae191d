"""`conformance upgrade`: the changes with the installed versions, and their acceptance."""

from __future__ import annotations

from pathlib import Path

import click

from harness.app.cli._shared import (
    directory_option,
    emit,
    example,
    json_option,
    op_option,
    operators_matching,
    print_json,
    statuses,
)

SECTION = "gate"
#: Where releases are kept, as `conformance bisect` keeps them.
_RELEASES = Path(".conformance") / "releases"


@click.command(
    short_help="Say what an upgrade of packages changed.",
    context_settings={"ignore_unknown_options": True},
    epilog=example(
        "pip install --upgrade onnxruntime && conformance upgrade -n 2",
        "conformance upgrade --measure my_model.py:make_model",
        "conformance upgrade --accept",
        "conformance upgrade --op celu --markdown",
    )
    + statuses("0 if nothing is worse, or if you accept the changes; 1 if something is worse"),
)
@op_option("Only these operators.")
@directory_option("--baseline", "The baseline to compare with.", "golden/baseline")
@click.option("--results-dir", type=click.Path(path_type=Path), help="Where to write the run.")
@click.option(
    "--measure",
    "models",
    multiple=True,
    metavar="MODEL",
    help="Also compare the time, memory and accuracy of this model's calls with the earlier releases. Repeatable.",
)
@click.option("--accept", is_flag=True, help="Accept the changes: record the baseline again.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
@json_option
@click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST OPTIONS]...")
@click.pass_context
def command(
    ctx: click.Context,
    ops: tuple[str, ...],
    baseline: Path,
    results_dir: Path | None,
    models: tuple[str, ...],
    accept: bool,
    markdown: bool,
    as_json: bool,
    more: tuple[str, ...],
) -> None:
    """Show the changes since the baseline was recorded, and the versions that changed.

    Call it after you upgraded a dependency. It runs the cases of the baseline, as `pytest harness --baseline` does.
    The progress goes to stderr. `conformance golden check --backend pytorch --backend all` asks the goldens.

    Worse results are run once more with the earlier releases, which uv installs into .conformance/releases. A result
    that these give on this machine, too, is called "this machine", and does not count as worse.

    With --json: counts, worse, missing, compared, versions, options, differences, waivers, figures, run,
    accepted.
    """
    from harness.gate.after_upgrade import attribute_to_machine, measure_upgrade, sweep
    from harness.gate.baseline.file import baseline_of_run, read_baseline, update, write_baseline
    from harness.plan.pytest_session import pytest_main
    from harness.present import gate_report as gate, report as reports
    from harness.present.figures_text import add_figures, figures_data
    from harness.record import layout
    from harness.record.run_info import RunInfo

    expected = read_baseline(baseline)
    known = sorted({key[0] for key in expected.cells})
    names = operators_matching(ops, known, "in the baseline") if ops else None
    run = results_dir or layout.default_directory(RunInfo.begin(seed=0, options={}).run_id)
    compared = sweep(baseline, run, pytest_main, names, more)
    compared = attribute_to_machine(compared, baseline, run.with_name(f"{run.name}-earlier"), _RELEASES, more)
    figures = measure_upgrade(models, compared.versions, _RELEASES)
    title = "What the upgrade changed" if compared.versions else "No version differs from the baseline's"
    if as_json:
        about = {"run": str(run), "accepted": accept, "figures": figures_data(figures)}
        print_json("upgrade", {**gate.comparison_data(compared), **about})
    else:
        report = add_figures(gate.report(compared, title), figures)
        if markdown:
            click.echo(reports.markdown(report), nl=False)
        else:
            emit(reports.render(report))
    if not accept:
        slower = any(change.is_worse for model in figures for change in model.changes)
        ctx.exit(int(compared.worse > 0 or slower))
    write_baseline(baseline, update(expected, baseline_of_run(run)))
    click.echo(f"wrote {baseline}", err=True)
