"""`conformance corpus`: a case of every root cause of some runs, in a file for later runs."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import emit, example, file_option, json_option, print_json, statuses

SECTION = "store"


@click.command(
    short_help="Keep a case of every root cause.",
    epilog=example(
        "conformance corpus results/* --out known.jsonl",
        "pytest harness --source generated --source corpus:known.jsonl --seed 8",
    )
    + statuses("0"),
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@file_option("--out", "Write the cases to FILE, one JSON object per line.", required=True)
@json_option
def command(runs: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Write the smallest case of each root cause of the given runs to a file.

    Runs with other seeds find other root causes. With `--source corpus:FILE`, a later run also tries those of earlier
    runs. A case whose cause was mended drops out once none of the given runs shows it any more.

    With --json: out, runs, cases, operators.
    """
    from harness.causes.kept_cases import cases_of_causes
    from harness.core.text import count
    from harness.generate.regressions.corpus_store import write_entries

    kept = cases_of_causes(runs)
    write_entries(out, kept)
    operators = len({entry.overload for entry in kept})
    if as_json:
        print_json("corpus", {"out": str(out), "runs": len(runs), "cases": len(kept), "operators": operators})
        return
    found = f"{count(len(kept), 'case')} of {count(operators, 'operator')}"
    emit(Text(f"{found}, from {count(len(runs), 'run')}, in {out}"))
