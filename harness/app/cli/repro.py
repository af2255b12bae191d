"""`conformance repro`: a failure as a stand-alone script or a bug report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.app.cli._shared import example, json_option, rules_option, run_option, statuses

if TYPE_CHECKING:
    from harness.reproduce.failure import ReproducibleFailure
    from harness.reproduce.script import ScriptResult


SECTION = "dig"


@click.command(
    "repro",
    epilog=example(
        "conformance repro 3f9c",
        "conformance repro 3f9c --backend ort-cpu --issue --out report.md",
    )
    + statuses("0 if the script fails as recorded, or is not run; 1 if it does not"),
)
@click.argument("case_id")
@run_option
@click.option("--converter", metavar="NAME", help="The failure with this converter. Default: the first that fails.")
@click.option("--backend", metavar="NAME", help="The same for the backend.")
@click.option("--original", is_flag=True, help="Take the case as it was drawn, even if it was shrunk.")
@rules_option("Conversion functions that took part.")
@click.option("--issue", is_flag=True, help="Write a bug report in Markdown, as its tracker wants it.")
@click.option("--out", metavar="FILE", help="Write to FILE; - is the terminal. Default: repro_CASE.py or .md.")
@click.option("--check/--no-check", default=True, help="Whether to run the script and see that it fails.")
@json_option
def command(
    case_id: str,
    run: Path,
    converter: str | None,
    backend: str | None,
    original: bool,
    rules: tuple[Path, ...],
    issue: bool,
    out: str | None,
    check: bool,
    as_json: bool,
) -> None:
    """Write a script that shows a failure without the harness.

    The script needs only PyTorch, ONNX and the runtime. It exits with 1 while the defect is there, and with 0
    once it is gone. With --issue, a runtime's defect is shown by the exported model alone, without PyTorch.
    """
    # PyTorch takes seconds to import: help and mistyped ids need not wait for it.
    from harness.present.evidence import evidence
    from harness.reproduce.failure import find_failure

    failure = find_failure(run, case_id, converter=converter, backend=backend, original=original)
    if failure.diagnosis is not None:
        failure = replace(failure, evidence=evidence(failure.diagnosis))
    if rules:
        failure = replace(failure, rule_files=rules)
    script, checked, text = _written(run, failure, issue, check)
    path = _place(out, failure, issue)
    if path is not None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
    if as_json:
        said = {
            "script": script,
            "issue": text if issue else None,
            "path": None if path is None else str(path),
            "reproduces": checked.reproduces if checked else None,
            "exit_status": checked.exit_status if checked else None,
            "output": checked.output + checked.errors if checked else None,
            "known": [known.to_data() for known in failure.known],
        }
        click.echo(json.dumps(said, indent=2))
        return
    click.echo(text if path is None else f"wrote {path}", nl=path is not None)
    for known in failure.known:
        click.echo(f"known: {known.link} ({known.note})", err=True)
    if checked is not None and not checked.reproduces:
        raise click.ClickException(
            f"the script does not show the failure here (exit status {checked.exit_status}):\n"
            f"{checked.output}{checked.errors}"
        )
    if checked is not None:
        click.echo("the script fails as recorded", err=path is None)


def _written(run: Path, failure: ReproducibleFailure, issue: bool, check: bool) -> tuple[str, ScriptResult | None, str]:
    """The script, how it ended, and what is to be written."""
    from harness.locate.locate import places_of_case
    from harness.reproduce.issue import write_issue, write_report
    from harness.reproduce.script import NoScript, run_text, write_script

    try:
        if issue:
            # Looking for the lines exports the case again, as checking the script does.
            where = run, failure.case_id, failure.converter, failure.backend, failure.invocation
            lines = places_of_case(*where, opset=failure.opset) if check else ()
            report = write_report(failure, check=check, lines=lines)
            return report.script, report.checked, write_issue(report)
        script = write_script(failure)
    except NoScript as error:
        raise click.ClickException(f"case {failure.case_id}: {error}") from None
    return script, run_text(script) if check else None, script


def _place(out: str | None, failure: ReproducibleFailure, issue: bool) -> Path | None:
    if out == "-":
        return None
    return Path(out or f"repro_{failure.case_id[:8]}.{'md' if issue else 'py'}")
