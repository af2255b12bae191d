"""`conformance baseline`: the outcomes of a run, as the expectation of later runs."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import directory_option, emit, example, json_option, print_json, run_argument, statuses

SECTION = "gate"


@click.command(
    short_help="Write the outcomes of a run as a baseline.",
    epilog=example(
        "conformance baseline results/RUN", "conformance baseline results/RUN --out golden/baseline --replace"
    )
    + statuses("0"),
)
@run_argument
@directory_option("--out", "Where to write. An existing baseline keeps what the run does not cover.", "golden/baseline")
@click.option("--replace", is_flag=True, help="Keep nothing of an existing baseline.")
@json_option
def command(run: Path, out: Path, replace: bool, as_json: bool) -> None:
    """Write the outcomes of RUN as a baseline. Nothing is run.

    A baseline is one text file per family of operators, for `pytest harness --baseline DIR` and `conformance
    diff`. Only drawn cases count; the corpus and captured calls do not. `pytest harness --baseline DIR
    --update-baseline` does the same at the end of a run, and also knows which cases are flaky.

    With --json: out, cells, operators, cases, passed, failed, bytes, kept.
    """
    from harness.core.text import count
    from harness.coverage.seen_pairs import SeenPairs, read_seen_pairs
    from harness.gate.baseline.file import baseline_of_run, is_baseline, read_baseline, update, write_baseline
    from harness.record.layout import ResultsError
    from harness.record.progress import completeness

    missing = completeness(run).summary
    if missing:
        # An entry that a baseline lacks can never regress: its loss would stay green.
        raise ResultsError(f"{run} is incomplete: {missing}; a baseline of it would lack cases")
    made = baseline_of_run(run)
    if not made.cells:
        raise ResultsError(f"{run} has no drawn case: run it with --source generated, or with --programs")
    old = read_baseline(out) if is_baseline(out) and not replace else None
    whole = update(old, made)
    write_baseline(out, whole)
    cells = made.cells.values()
    sound = {cell.overload for cell in cells} - {cell.overload for cell in cells if cell.passed < cell.cases}
    seen = SeenPairs.together(read_seen_pairs(run, sound).values())
    summary = {
        "out": str(out),
        "cells": len(made.cells),
        "operators": len({cell.overload for cell in cells}),
        "cases": sum(cell.cases for cell in cells),
        "passed": sum(cell.passed for cell in cells),
        "failed": sum(cell.failed for cell in cells),
        "bytes": sum(file.stat().st_size for file in out.iterdir()),
        "kept": len(whole.cells) - len(made.cells),
    }
    if as_json:
        print_json("baseline", summary)
        return
    emit(
        Text(
            f"{summary['cells']:,} operator/dtype entries of {summary['operators']:,} operators "
            f"({summary['cases']:,} drawn cases, "
            f"{summary['passed']:,} pass, {summary['failed']:,} fail) in {out}: {summary['bytes']:,} bytes"
            + (f"; {summary['kept']:,} entries kept" if summary["kept"] else "")
        )
    )
    if sound:
        cases = count(sum(cell.cases for cell in cells if cell.overload in sound), "drawn case")
        pairs = f", {seen}" if seen.possible else ""
        emit(Text(f"{count(len(sound), 'operator')}: no failure found in {cases}{pairs}"))
