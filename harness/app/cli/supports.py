"""`conformance supports`: whether operators or a model survive the trip, by running them or from a run."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.app.cli._shared import (
    emit,
    example,
    json_option,
    operators_matching,
    print_json,
    require_writable,
    statuses,
)
from harness.core.route import is_onnx_file, route_label

if TYPE_CHECKING:
    from harness.present.report import Report
    from harness.support.answer import Support


SECTION = "look"


@click.command(
    short_help="Say whether operators or models are supported.",
    epilog=example(
        "conformance supports aten::celu",
        "conformance supports 'aten.upsample_*' --dtype bfloat16 --backend ort-cpu",
        "conformance supports my_model.py:make_model --converter torchscript --json",
        "conformance supports --record results/RUN --dtype bfloat16 --table > bfloat16.md",
        "conformance supports celu mean --record results/RUN --page support.html",
    )
    + statuses("0 if all is supported; 1 if something fails; 3 if nothing fails, but not everything could be run"),
)
@click.argument("asked", nargs=-1, metavar="[OPERATOR|MODEL]...")
@click.option("--converter", default="dynamo", show_default=True, metavar="NAME", help="Converter to ask about.")
@click.option("--backend", default="ort-cpu", show_default=True, metavar="NAME", help="Backend to ask about.")
@click.option(
    "--dtype", metavar="NAME", help="Dtype of the operators' tensors, or of the model: float16. Default: any."
)
@click.option("--opset", type=int, metavar="N", help="Opset to emit. Default: the converter's.")
@click.option("--record", type=click.Path(path_type=Path), metavar="RUN", help="Take the answers from a run.")
@click.option("--table", is_flag=True, help="With --record: print the answers as a Markdown table.")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE", help="With --record: write them as a page.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    asked: tuple[str, ...],
    converter: str,
    backend: str,
    dtype: str | None,
    opset: int | None,
    record: Path | None,
    table: bool,
    page: Path | None,
    as_json: bool,
) -> None:
    """Run operators, or all calls of a model, on this machine, and say how many pass and when others fail.

    OPERATOR is a name or a glob: celu, aten::add.Tensor, 'aten.upsample_*'. Its ordinary calls are run, or everyday
    values in a rarer dtype. MODEL is FILE.py:FUNCTION, an exported program (.pt2) or a model of cases/models. Each
    distinct call that it makes is run. An .onnx file is for `conformance check`.

    Supported: all pass. Partly: some do. Unsupported: none does. Unknown: PyTorch takes no such call.

    With --json: answers, each with asked, converter, backend, level, problem and calls.
    """
    if page is not None:
        require_writable(page)
    if record is not None:
        _answer_by_record(asked, converter, backend, dtype, record, table, page)
        return
    if table or page is not None:
        raise click.UsageError("--table and --page show a run: name it with --record")
    if not asked:
        raise click.UsageError("name an operator or a model: conformance supports aten::celu")
    with contextlib.redirect_stdout(sys.stderr):
        answers = [_answer(word, converter, backend, dtype, opset) for word in asked]
    if as_json:
        print_json("supports", {"answers": [answer.to_data() for answer in answers]})
    else:
        from harness.present import report
        from harness.present.support_report import support_report

        for answer in answers:
            emit(report.render(support_report(answer)))
    ctx.exit(_status(answers))


def _answer(word: str, converter: str, backend: str, dtype: str | None, opset: int | None) -> Support:
    from harness.core.overloads import UnknownOperator
    from harness.core.plugins import UnknownName
    from harness.pipeline.model_loading import ModelProblem
    from harness.plan.options import UsageProblem
    from harness.support.running import is_supported

    if is_onnx_file(word):
        raise click.UsageError(f"{word} is exported already: `conformance check {word}` runs it node by node")
    try:
        return is_supported(word, converter=converter, backend=backend, dtype=dtype, opset=opset)
    except (UnknownOperator, UnknownName, UsageProblem, ModelProblem, ValueError) as error:
        raise click.UsageError(str(error)) from None


def _answer_by_record(
    asked: tuple[str, ...],
    converter: str,
    backend: str,
    dtype: str | None,
    record: Path,
    table: bool,
    page: Path | None,
) -> None:
    from harness.present import report
    from harness.present.support_report import support_table
    from harness.record import store
    from harness.record.run_info import read_run_info
    from harness.support.recorded import recorded_support

    known = store.distinct_values(record, "overload")
    overloads = operators_matching(asked, known, str(record)) if asked else None
    found = recorded_support(record, converter=converter, backend=backend, dtype=dtype, overloads=overloads)
    shown: Report = support_table(found, route_label(converter, backend) + (f", {dtype}" if dtype else ""))
    if page is not None:
        info = read_run_info(record)
        page.write_text(report.page(shown, info.started, info.versions), encoding="utf-8")
    elif table:
        click.echo(report.markdown_table(shown), nl=False)
    else:
        emit(report.render(shown, limit=len(found)))


def _status(answers: list[Support]) -> int:
    if all(answers):
        return 0
    return 1 if any(answer.level in ("unsupported", "partly") for answer in answers) else 3
