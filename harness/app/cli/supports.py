"""`conformance supports`: whether operators or a model survive the trip, from a record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.app.cli._shared import example, json_option, operators_matching, print_json, statuses

if TYPE_CHECKING:
    from harness.support.answer import Support


SECTION = "look"


@click.command(
    short_help="Say whether operators or models are supported.",
    epilog=example(
        "conformance supports aten::celu",
        "conformance supports 'aten.upsample_*' --dtype bfloat16 --backend ort-cpu",
        "conformance supports model.onnx --converter torchscript --json",
        "conformance supports celu --record results/RUN",
        "conformance supports --dtype bfloat16 --table > bfloat16.md",
        "conformance supports --page support/",
        "conformance supports --record results/RUN --write support.parquet",
    )
    + statuses(
        "0 if all is supported; 1 if something is unsupported, or only partly supported; 3 if nothing "
        "is, but the record does not tell of everything"
    ),
)
@click.argument("asked", nargs=-1, metavar="[OPERATOR|MODEL]...")
@click.option("--converter", default="dynamo", show_default=True, metavar="NAME", help="Converter to ask about.")
@click.option("--backend", default="ort-cpu", show_default=True, metavar="NAME", help="Backend to ask about.")
@click.option("--dtype", metavar="NAME", help="Of the operators' tensors: float16. Default: any.")
@click.option("--opset", type=int, metavar="N", help="Of the model. Default: whichever was recorded.")
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    help="A run, or a file that --write made. Default: the record that the package ships.",
)
@click.option(
    "--write",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Make a small record of a run, in this file.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write all answers of the record to this directory: HTML, with JSON beside it.",
)
@click.option(
    "--table",
    is_flag=True,
    help="Print the answers for --dtype as a Markdown table; of all operators by default.",
)
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
    write: Path | None,
    page: Path | None,
    table: bool,
    as_json: bool,
) -> None:
    """Say whether operators, or all operators of a model, are supported.

    Nothing is run; an ONNX file is loaded in the installed backend.

    OPERATOR is a name or a glob: celu, aten::add.Tensor, 'aten.upsample_*'. MODEL is an ONNX file, or an
    exported program (.pt2). The model's dtypes and attributes are taken from the file.

    The answer comes from recorded cases with the same dtypes, attributes, opset, converter and backend.
    Supported: all of them pass. Partly: some pass. Unsupported: none passes. Unknown: there are no such
        cases; the nearest ones are counted. Ordinary cases decide where there are any, or else everyday
        values in a rarer dtype; edge cases are counted separately. The last lines say which versions the
        record is of.

    With --json: a list of answers, each with asked, converter, backend, opset, standing, calls, unmapped,
    loading (loads, words) and record (run, recorded, versions).
    """
    from harness.core.overloads import UnknownOperator
    from harness.support.is_supported import is_supported
    from harness.support.model_calls import ModelError

    if as_json and (table or page is not None):
        raise click.UsageError("--json prints answers; --table prints Markdown and --page writes its own JSON")
    if page is not None and (asked or write is not None or table):
        raise click.UsageError("--page shows all answers of a record: leave everything but --record out")
    if page is not None:
        return _write_page(page, record)
    if table:
        return _print_table(asked, converter, backend, dtype, opset, record)
    if write is not None:
        return _write_record(asked, record, write)
    if not asked:
        raise click.UsageError("name an operator or a model file: conformance supports aten::celu")
    try:
        answers = [
            is_supported(one, converter=converter, backend=backend, dtype=dtype, opset=opset, record=record)
            for one in asked
        ]
    except (ModelError, UnknownOperator, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        print_json([answer.to_data() for answer in answers])
    else:
        for answer in answers:
            _print(answer)
        _print_provenance(answers[0])
    ctx.exit(_status(answers))


def _write_record(asked: tuple[str, ...], record: Path | None, file: Path) -> None:
    from harness.support.record import read_support, write_support

    if record is None or asked:
        raise click.UsageError("--write makes a file of a run: name the run with --record, and nothing else")
    click.echo(f"{write_support(read_support(record), file):,} kinds of calls written to {file}", err=True)


def _write_page(page: Path, record: Path | None) -> None:
    from harness.present.support_page.write_page import write_support_page
    from harness.support.record import SHIPPED, read_support

    files = write_support_page(read_support(record or SHIPPED), page)
    click.echo(f"{files:,} files written to {page}; begin with {page / 'index.html'}", err=True)


def _print_table(
    asked: tuple[str, ...],
    converter: str,
    backend: str,
    dtype: str | None,
    opset: int | None,
    record: Path | None,
) -> None:
    from harness.present.support_page.write_page import support_catalog, support_table
    from harness.support.record import SHIPPED, read_support

    if dtype is None:
        raise click.UsageError("--table is of one dtype: add --dtype bfloat16")
    catalog = support_catalog(read_support(record or SHIPPED))
    if (converter, backend) not in catalog.columns:
        there = ", ".join(f"{c} → {b}" for c, b in catalog.columns) or "none"
        raise click.UsageError(f"the record has no results for {converter} → {backend}; it has {there}")
    if dtype not in {cell.dtype for cells in catalog.aten.values() for cell in cells}:
        raise click.UsageError(f"the record has no case of {dtype}")
    overloads = operators_matching(asked, list(catalog.aten), "the record") if asked else None
    click.echo(
        support_table(catalog, converter=converter, backend=backend, dtype=dtype, opset=opset, overloads=overloads)
    )


def _status(answers: list[Support]) -> int:
    if all(answers):
        return 0
    return 1 if any(answer.standing in ("unsupported", "partly") for answer in answers) else 3


def _print(answer: Support) -> None:
    from harness.core.documents import plain

    for call in answer.calls:
        click.echo(call.said)
    for part in answer.unmapped:
        click.echo(f"{part}: unknown: it is not a known ATen operator")
    loading = answer.loading
    if loading is not None and loading.loads is None:
        click.echo(f"{answer.asked}: not loaded, {loading.words}; the answers are about its operators only")
    elif loading is not None and not loading.loads:
        click.echo(f"{answer.asked}: {answer.backend} cannot load it: {plain(loading.words, 300)}")
    if len(answer.calls) + len(answer.unmapped) > 1 or loading is not None:
        click.echo(f"{answer.asked}: {answer.standing} with {answer.converter} → {answer.backend}")


def _print_provenance(answer: Support) -> None:
    """Which versions were recorded, and which are installed where these differ: an answer is of a version."""
    from importlib.metadata import PackageNotFoundError, version

    found = answer.provenance
    names = [name for name in ("torch", "onnx", "onnxscript", "onnxruntime") if name in found.versions]
    words = ", ".join(f"{name} {found.versions[name]}" for name in names)
    click.echo(f"recorded {found.recorded[:10]} with {words}")
    for name in names:
        try:
            here = version(name)
        except PackageNotFoundError:
            continue
        if here != found.versions[name]:
            click.echo(f"warning: {name} {here} is installed here; the record is of another version", err=True)
