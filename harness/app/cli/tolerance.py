"""`conformance tolerance`: the numerical error of passing cases."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import (
    directory_option,
    emit,
    example,
    json_option,
    line,
    print_json,
    run_argument,
    selecting,
    statuses,
)
from harness.core.text import plain
from harness.present import tolerance_report as tolerance
from harness.present.case_report import shown_path
from harness.record.run_info import read_run_info
from harness.record.store import Selection

SECTION = "look"


@click.command(
    short_help="Print the numerical errors of a run, largest first.",
    epilog=example(
        "conformance tolerance",
        "conformance tolerance results/RUN --op 'aten.*softmax*' --dtype float16",
        "conformance tolerance results/RUN --out tables/",
    )
    + statuses("0"),
)
@run_argument
@selecting("overload", "backend", "converter", "dtype", "family")
@directory_option(
    "--out",
    "Where to write tolerance.csv, .json and .parquet. Default: the run's directory, unless an option "
    "selects some rows.",
    metavar="DIR",
)
@click.option("--limit", type=click.IntRange(min=0), default=40, show_default=True, help="Most rows to print; 0: all.")
@json_option
def command(
    run: Path,
    selection: Selection,
    out: Path | None,
    limit: int,
    as_json: bool,
) -> None:
    """Print the tolerance matrix of a run, largest errors first, and write it as CSV, JSON and Parquet.

    A row is an operator, dtype, converter and backend. It has the ULP errors of the cases that passed, and
    the smallest (rtol, atol) that accepts them all. Errors are differences from PyTorch in the case's dtype.
    A case that needs more than the default tolerance passed because it is close to the float64 result.

    A second table has the rules that excuse elements which differ by more than the last places from
    PyTorch's: in how many cases, how many elements and which operators, and a case as an example.

    With --json: run, run_id, versions, rows, excused. A row's keys are the columns of the files. `conformance diff`
    says where numbers moved between two runs.
    """
    info = read_run_info(run)
    rows = tolerance.distributions(selection.read(run, tolerance.COLUMNS, tolerance.COMPARED, encoded=True))
    # Paths of a machine do not go into files.
    about = {"run_id": info.run_id, "versions": dict(info.versions)}
    directory = out or (run if selection == Selection() else None)
    files = tolerance.write(rows, directory, about) if directory is not None else []
    excused = tolerance.excuse_counts(selection.read(run, tolerance.EXCUSED_COLUMNS, tolerance.EXCUSED, encoded=True))
    if as_json:
        data = {
            "rows": [dataclasses.asdict(row) for row in rows],
            "excused": [one.to_data() for one in excused],
        }
        print_json("tolerance", {"run": str(run), **about, **data})
        return
    emit(tolerance.render(rows, limit or None))
    if excused:
        emit(Text(), tolerance.render_excuses(excused))
    if files:
        emit(Text(), line(f"written to {plain(shown_path(files[0]))}, .json and .parquet"))
