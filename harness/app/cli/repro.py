"""`conformance repro`: a failure as a stand-alone script or a bug report.

A recorded case is shown in its shrunk form. Of a model the smallest call, or the smallest part of its graph, that
fails by itself is looked for first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.app.cli._models import (
    also_option,
    axes_option,
    axis_of,
    dtypes_of,
    given_files,
    inputs_option,
    is_model,
)
from harness.app.cli._shared import (
    example,
    find_run,
    json_option,
    print_json,
    rules_option,
    say_step,
    statuses,
    timeout_option,
)
from harness.core.route import is_onnx_file

if TYPE_CHECKING:
    from harness.causes.known_issues import KnownIssue
    from harness.core.invocation import Invocation
    from harness.models.facts import ModelFacts
    from harness.pipeline.model_task import Axis, GivenFiles
    from harness.plan.unit import Unit
    from harness.reproduce.failure import ReproducibleFailure
    from harness.reproduce.graph_part import GraphPart
    from harness.reproduce.script_text import ScriptResult


SECTION = "dig"


@dataclass(frozen=True)
class Written:
    """The output of the command.

    Attributes:
        text: The script, or the issue that contains it.
        checked: The result of running the script; None if it was not run.
        known: Known defects that explain the failure.
        attachments: Files that the script reads.
    """

    script: str
    text: str
    checked: ScriptResult | None
    known: tuple[KnownIssue, ...] = ()
    attachments: tuple[Path, ...] = field(default=())


@click.command(
    "repro",
    short_help="Write a failure as a script or a bug report.",
    epilog=example(
        "conformance repro 3f9c",
        "conformance repro 3f9c --backend ort-cpu --issue --out report.md",
        "conformance repro my_model.py:make_model",
        "conformance repro model.onnx --issue",
    )
    + statuses("0 if the script fails as recorded, or is not run; 1 if it does not"),
)
@click.argument("case", metavar="CASE_ID|MODEL")
@click.option("--run", metavar="DIR", help="The run that has the case. Default: the newest in results/.")
@click.option("--converter", metavar="NAME", help="The failure with this converter. Default: the first that fails.")
@click.option("--backend", metavar="NAME", help="The same for the backend.")
@click.option("--original", is_flag=True, help="Take the case as it was drawn, even if it was shrunk.")
@rules_option("Conversion functions that took part.")
@axes_option
@also_option
@click.option("--opset", type=int, metavar="N", help="Opset to emit, of a model.")
@inputs_option
@click.option("--preprocess", metavar="FILE.py:FUNCTION", default="", help="Reads the files of --inputs.")
@click.option("--issue", is_flag=True, help="Write a bug report in Markdown, in its tracker's form.")
@click.option("--out", metavar="FILE", help="Write to FILE; - is the terminal. Default: repro_CASE.py or .md.")
@click.option("--check/--no-check", default=True, help="Whether to run the script and see that it fails.")
@timeout_option(120.0, "Seconds per step of a model.")
@json_option
def command(
    case: str,
    run: str | None,
    converter: str | None,
    backend: str | None,
    original: bool,
    rules: tuple[Path, ...],
    axes: tuple[str, ...],
    also: str,
    opset: int | None,
    inputs: Path | None,
    preprocess: str,
    issue: bool,
    out: str | None,
    check: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Write a script that shows a failure without the harness.

    The script needs only PyTorch, ONNX and the runtime. It exits with 1 while the defect is there, and with 0
    once it is gone. With --issue, a runtime's defect is shown by the exported model alone, without PyTorch.

    MODEL is a model for `conformance check`: FILE.py:FUNCTION, FILE.pt2, FILE.onnx or a name. The script shows the
    smallest call of it that fails by itself, or else the smallest part of its exported graph.
    """
    # PyTorch takes seconds to import: help and mistyped ids need not wait for it.
    if not is_model(case):
        for name, value in {"--axis": axes, "--also": also, "--opset": opset, "--inputs": inputs}.items():
            if value:
                raise click.UsageError(f"{name} is for models; {case} is a case")
        from harness.reproduce.drawn_files import recorded_graph

        directory = find_run(run)
        if (drawn := recorded_graph(directory, case)) is not None:
            _write_drawn(drawn, case, backend, issue, out, check, timeout, as_json)
            return
        written = _write_call(directory, _recorded(directory, case, converter, backend, original, rules), issue, check)
        _report(written, _place(out, case[:8], issue), as_json)
        return
    for option, is_given in {"--run": run is not None, "--original": original}.items():
        if is_given:
            raise click.UsageError(f"{option} is for recorded cases; {case} is a model")
    wanted = ModelWanted(
        *(case, converter, backend, rules, tuple(map(axis_of, axes)), dtypes_of(also), opset),
        given_files(inputs, preprocess),
        timeout,
    )
    _write_smallest(wanted, _stem(case), issue, out, check, as_json)


def _write_smallest(wanted: ModelWanted, name: str, issue: bool, out: str | None, check: bool, as_json: bool) -> None:
    """Write the smallest failure of a model or of a file."""
    stem = Path(out).with_suffix("") if out not in (None, "-") else Path(f"repro_{name}")
    with _smallest(wanted) as (found, directory):
        from harness.reproduce.graph_part import GraphPart

        if isinstance(found, GraphPart):
            written = _write_graph_part(found, stem, issue, check)
        else:
            written = _write_call(directory, found, issue, check)
        _report(written, _place(out, name, issue), as_json)


def _write_drawn(
    graph: Invocation,
    case: str,
    backend: str | None,
    issue: bool,
    out: str | None,
    check: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Write the smallest failing part of a drawn graph, in the way of a user's file."""
    from harness.reproduce.drawn_files import save_graph

    with tempfile.TemporaryDirectory() as directory:
        file, inputs = save_graph(graph, Path(directory) / case[:8])
        wanted = ModelWanted(str(file), None, backend, (), (), (), None, given_files(inputs, ""), timeout)
        _write_smallest(wanted, case[:8], issue, out, check, as_json)


def _stem(word: str) -> str:
    """Return the file name, without suffix, for a model's script."""
    from harness.pipeline.model_task import model_name

    return Path(word).stem if is_onnx_file(word) else model_name(word).replace(".", "_")


def _recorded(
    run: Path, case_id: str, converter: str | None, backend: str | None, original: bool, rules: tuple[Path, ...]
) -> ReproducibleFailure:
    from harness.reproduce.failure import find_failure

    failure = find_failure(run, case_id, converter=converter, backend=backend, original=original)
    return replace(failure, rule_files=rules) if rules else failure


@dataclass(frozen=True)
class ModelWanted:
    """A request for a model's failure."""

    word: str
    converter: str | None
    backend: str | None
    rules: tuple[Path, ...]
    axes: tuple[Axis, ...]
    dtypes: tuple[str, ...]
    opset: int | None
    given: GivenFiles
    timeout: float


@contextmanager
def _smallest(wanted: ModelWanted) -> Iterator[tuple[ReproducibleFailure | GraphPart, Path]]:
    """Return the smallest failure of a model, and the directory of a recorded call."""
    from harness.core.plugins import UnknownName
    from harness.models.facts import model_facts
    from harness.pipeline.model_loading import ModelProblem
    from harness.pipeline.model_task import Variant
    from harness.pipeline.supervisor import Supervisor
    from harness.plan.options import UsageProblem
    from harness.present.evidence import invalid_text, node_text
    from harness.reproduce.model_repro import InvalidFile, smallest_of_model

    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        try:
            with Supervisor(timeout=wanted.timeout, memory_limit=8 * 2**30) as supervisor:
                facts = model_facts(wanted.word, Variant(axes=wanted.axes), supervisor, wanted.given)
                found = smallest_of_model(_units(wanted, facts), facts, run, supervisor, say_step)
        except (UsageProblem, UnknownName) as error:
            raise click.UsageError(str(error)) from None
        except InvalidFile as invalid:
            why = f"{node_text(invalid.facts['node'])}: {invalid_text(invalid.facts)}"
            raise click.ClickException(f"{wanted.word} is wrong itself, at {why}") from None
        except ModelProblem as problem:
            raise click.ClickException(str(problem)) from None
        yield found, run


def _units(wanted: ModelWanted, facts: ModelFacts) -> list[Unit]:
    from harness.models.check import check_units
    from harness.plan.options import Options

    options = Options(
        models=(wanted.word,),
        converters=(wanted.converter,) if wanted.converter else (),
        backends=(wanted.backend,) if wanted.backend else (),
        rules=tuple(str(Path(file).absolute()) for file in wanted.rules),
        opset=wanted.opset,
    )
    return check_units(options, facts, wanted.axes, wanted.dtypes, None, given=wanted.given)


def _write_call(run: Path, failure: ReproducibleFailure, issue: bool, check: bool) -> Written:
    """Write the script of one call, or its issue."""
    from harness.compare.verdict import Outcome
    from harness.locate.locate import find_suspects_of_case
    from harness.present.evidence import evidence, fault_in_title
    from harness.reproduce.issue import write_issue, write_report
    from harness.reproduce.script import write_script
    from harness.reproduce.script_text import NoScript, run_text

    if failure.diagnosis is not None:
        failure = replace(failure, evidence=evidence(failure.diagnosis))
    if failure.cause is not None and failure.verdict.outcome is Outcome.MISMATCH:
        failure = replace(failure, wrong=fault_in_title(failure.cause))
    try:
        if issue:
            # Looking for the lines exports the case again, as checking the script does.
            where = run, failure.verdict.case_id, failure.verdict.converter, failure.verdict.backend, failure.invocation
            lines = find_suspects_of_case(*where, opset=failure.opset) if check else ()
            report = write_report(failure, check=check, lines=lines)
            return Written(report.script, write_issue(report), report.checked, failure.known)
        script = write_script(failure)
    except NoScript as error:
        raise click.ClickException(f"case {failure.verdict.case_id}: {error}") from None
    return Written(script, script, run_text(script) if check else None, failure.known)


def _write_graph_part(found: GraphPart, stem: Path, issue: bool, check: bool) -> Written:
    """Write the script of a part of a graph, or its issue."""
    from harness.reproduce.issue import write_issue
    from harness.reproduce.model_repro import PartReport, write_part
    from harness.reproduce.script_text import NoScript, run_text

    try:
        script, attachments = write_part(found, stem)
    except NoScript as error:
        raise click.ClickException(f"{found.name}: {error}") from None
    checked = run_text(script, attached=attachments) if check else None
    text = write_issue(PartReport(found, script, checked.output if checked else "")) if issue else script
    return Written(script, text, checked, attachments=attachments)


def _report(written: Written, path: Path | None, as_json: bool) -> None:
    checked = written.checked
    if path is not None:
        try:
            path.write_text(written.text, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
    if as_json:
        print_json(
            "repro",
            {
                "script": written.script,
                "issue": written.text if written.text != written.script else None,
                "path": None if path is None else str(path),
                "attachments": list(map(str, written.attachments)),
                "reproduces": checked.reproduces if checked else None,
                "exit_status": checked.exit_status if checked else None,
                "output": checked.output + checked.errors if checked else None,
                "known": [known.to_data() for known in written.known],
            },
        )
        return
    click.echo(written.text if path is None else f"wrote {path}", nl=path is not None)
    for file in written.attachments:
        click.echo(f"wrote {file}", err=path is None)
    for known in written.known:
        click.echo(f"known: {known.link} ({known.note})", err=True)
    if checked is not None and not checked.reproduces:
        raise click.ClickException(
            f"the script does not show the failure here (exit status {checked.exit_status}):\n"
            f"{checked.output}{checked.errors}"
        )
    if checked is not None:
        click.echo("the script fails as recorded", err=path is None)


def _place(out: str | None, name: str, issue: bool) -> Path | None:
    if out == "-":
        return None
    return Path(out or f"repro_{name}.{'md' if issue else 'py'}")
