"""``conformance shrink``: find the smallest invocations that still fail in the same way."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
from rich.console import Console

from harness.app.cli._shared import (
    example,
    json_option,
    op_option,
    operators_matching,
    rules_option,
    run_argument,
    statuses,
    timeout_option,
)
from harness.compare.verdict import Verdict
from harness.core.text import count
from harness.generate.regressions.corpus_store import Corpus
from harness.present import minimal_report as report
from harness.present.json_documents import label_document
from harness.record.run_info import read_run_info, rule_files
from harness.record.store import resolve_case
from harness.reproduce.shrink_session import PER_FAILURE, failures, shrink_run

SECTION = "dig"


@click.command(
    short_help="Shrink the failures of a run, worst first.",
    epilog=example("conformance shrink results/RUN --budget 300", "conformance shrink --case 82129e6a") + statuses("0"),
)
@run_argument
@click.option("--case", metavar="ID", help="Only failures of this case. The beginning of an id is enough.")
@op_option("Only these operators: aten::celu.")
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds for all failures.",
)
@click.option(
    "--per-failure",
    type=click.FloatRange(min=0),
    default=PER_FAILURE,
    show_default=True,
    metavar="S",
    help="Seconds for each failure.",
)
@timeout_option(60.0, "Seconds per step of an evaluation.")
@rules_option("Conversion functions that RUN tried.")
@click.option("--again", is_flag=True, help="Shrink again what is shrunk already.")
@json_option
def command(
    run: Path,
    case: str | None,
    ops: tuple[str, ...],
    budget: float,
    per_failure: float,
    timeout: float,
    rules: tuple[Path, ...],
    again: bool,
    as_json: bool,
) -> None:
    """Shrink the failures of RUN, worst first, to the smallest calls that fail in the same way.

    The command writes RUN/minimal.jsonl while it works, and does not repeat finished failures.
    """
    wanted = _chosen(run, case, ops)
    console = Console(stderr=as_json)

    def skipped(failure: Verdict, why: str) -> None:
        console.print(f"{failure.overload} {failure.case_id}: {why}", style="yellow", markup=False)

    done = 0
    for minimal in shrink_run(
        run,
        seconds=budget,
        per_failure=per_failure,
        chosen=wanted,
        # A case that is named is wanted, shrunk already or not.
        again=again or case is not None,
        timeout=timeout,
        rules=[str(file.absolute()) for file in rules or rule_files(run, read_run_info(run))],
        corpus=_corpus(run),
        on_skipped=skipped,
    ):
        done += 1
        if as_json:
            click.echo(json.dumps(label_document("shrink", dataclasses.asdict(minimal))))
        else:
            console.print(report.render(minimal))
    console.print(f"{count(done, 'failure')} shrunk of {len(wanted)} in {run}", markup=False, highlight=False)


def _corpus(run: Path) -> Corpus | None:
    """Return the corpus, if it was a source of the run."""
    asked = read_run_info(run).options.get("source")
    return Corpus.default() if isinstance(asked, list) and (not asked or "corpus" in asked) else None


def _chosen(run: Path, case: str | None, ops: tuple[str, ...]) -> list[Verdict]:
    found = failures(run, case_id=None if case is None else resolve_case(run, case))
    if case is not None and not found:
        raise click.ClickException(f"case {case} did not fail in {run}")
    if not ops:
        return found
    known = sorted({failure.overload for failure in found})
    try:
        names = set(operators_matching(ops, known, f"among the failures of {run}"))
    except click.UsageError as error:
        raise click.ClickException(error.message) from None
    return [failure for failure in found if failure.overload in names]
