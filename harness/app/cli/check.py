"""`conformance check`: whether a model survives the trip, and if not, where it breaks."""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.app.cli._models import (
    Limits,
    also_option,
    axes_option,
    axis_of,
    dtypes_of,
    given_files,
    inputs_option,
)
from harness.app.cli._shared import (
    emit,
    example,
    json_option,
    print_json,
    require_writable,
    say_step,
    statuses,
    timeout_option,
)
from harness.core.route import FILE, is_onnx_file

if TYPE_CHECKING:
    from harness.app.checking import CheckRequest
    from harness.pipeline.model_task import GivenFiles
    from harness.pipeline.supervisor import Supervisor
    from harness.present.report import Report

SECTION = "run"


@click.command(
    short_help="Say whether a model survives, and where it breaks.",
    epilog=example(
        "conformance check my_model.py:make_model",
        "conformance check my_model.py:make_model --axis x:0=1..8 --also float16",
        "conformance check exported.pt2 --converter torchscript --backend openvino",
        "conformance check my_model.py:make_model --converter torch-compile --converter executorch",
        "conformance check model.onnx --inputs inputs.npz --page check.html",
        "conformance check my_model.py:make_model --transform float16 --transform quantize-static",
        "conformance check my_model.py:make_model --headroom float16 --inputs folder",
    )
    + statuses("0 if the model passes on every route; 1 if it fails, or if nothing could be compared"),
)
@click.argument("word", metavar="MODEL")
@click.option(
    "--converter",
    "converters",
    multiple=True,
    metavar="NAME",
    help="Converter. Repeatable. Default: dynamo, or a converter of the backends' artefacts.",
)
@click.option(
    "--transform",
    "transforms",
    multiple=True,
    metavar="NAME",
    help="Transform between export and runtime, as float16 or quantize-static; several joined by +. Repeatable.",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Backend. Repeatable. Default: ort-cpu, or a backend for the converters' artefacts.",
)
@click.option(
    "--shapes",
    type=click.Choice(["static", "dynamic", "both"]),
    help="Default: both if the model or --axis has a dynamic dimension, else static.",
)
@axes_option
@also_option
@click.option("--rules", multiple=True, metavar="FILE", help="Use these conversion functions. Repeatable.")
@click.option("--opset", type=int, metavar="N", help="Opset to emit.")
@inputs_option
@click.option(
    "--preprocess",
    "preprocessing",
    multiple=True,
    metavar="FILE.py:FUNCTION",
    help="Reads a file of --inputs: takes a path, returns an array or a dict. A second one, the deployed one, is "
    "compared with the first.",
)
@click.option(
    "--headroom",
    type=click.Choice(["float16"]),
    help="Say instead how near values come to a dtype's limits, and which nodes must stay in float32.",
)
@click.option("--where", is_flag=True, help="Show the device, dtypes and kernel of each node, as the runtime says.")
@click.option("--require-device", metavar="NAME", help="Fail unless every node runs there: cpu, cuda, CUDAExecution.")
@click.option("--require-dtype", metavar="DTYPE", help="Fail unless every node computes in this floating dtype.")
@timeout_option(120.0, "Seconds per step.")
@click.option("--memory-limit", type=float, default=8.0, show_default=True, metavar="GIB", help="Memory of the worker.")
@click.option("--rtol", type=float, metavar="R", help="Allowed relative error, instead of the effect of rounding.")
@click.option("--atol", type=float, metavar="A", help="Allowed absolute error. Default with --rtol: 0.")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE", help="Write a page of HTML, too.")
@json_option
@click.pass_context
def command(ctx: click.Context, /, word: str, page: Path | None, as_json: bool, **given: Any) -> None:
    """Export a model, run it, and say whether it survives; if not, where it first departs and which component failed.

    MODEL is FILE.py:FUNCTION, where the function returns (module, example inputs) or (module, example inputs,
    dynamic_shapes); a FILE.pt2 that torch.export.save wrote; or the name of a model in cases/models. It is run with
    its example inputs, with other values and, for dynamic dimensions, with other sizes.

    Or MODEL is a FILE.onnx, which is loaded and run with inputs drawn from its signature. It is compared with the
    runtime's own result without optimisations, and each node with its definition. --inputs replaces drawn values.

    With --json: model, word, survives, left_out, notes, state, preprocessing, kernels, ways. A way has converter,
    backend, shapes, dtype, survives, compared, runs, first_wrong_value, calls, owner, cause, optimiser, remedies,
    notes, accuracy, range_loss; of a file fixed_sizes and nodes.
    """
    # Invalid options are reported before PyTorch is imported.
    if page is not None:
        require_writable(page)
    _refuse_unfit(word, given)
    files = _given_files(given["inputs"], given["preprocessing"])
    # A model's own output is not part of the answer.
    with contextlib.redirect_stdout(sys.stderr), _reported_problems():
        limits = Limits(given["timeout"], int(given["memory_limit"] * 2**30))
        shown = _answer(_make_request(word, given, *files), limits, given["headroom"] is not None)
    _show(shown, page, as_json)
    ctx.exit(int(not shown.survives))


def _make_request(word: str, given: Mapping[str, Any], files: GivenFiles, deployed: str) -> CheckRequest:
    """Return the request that the options make.

    Args:
        word: The model.
        given: The options by their names.
        files: The user's inputs.
        deployed: The deployed preprocessing function; "" for none.
    """
    # PyTorch takes seconds to import.
    from harness.app.checking import CheckRequest, Required
    from harness.compare.tolerances import Tolerance
    from harness.plan.options import Options

    options = Options(
        models=(word,),
        converters=_exports(word, given["converters"], given["transforms"]),
        backends=given["backends"],
        opset=given["opset"],
        rules=tuple(str(Path(file).absolute()) for file in given["rules"]),
    )
    return CheckRequest(
        word=word,
        options=(options,),
        axes=given["axes"],
        dtypes=dtypes_of(given["also"]),
        shapes=given["shapes"],
        tolerance=None if given["rtol"] is None else Tolerance(given["rtol"], given["atol"] or 0.0),
        given=files,
        deployed=deployed,
        required=Required(given["where"], given["require_device"], given["require_dtype"]),
    )


def _answer(request: CheckRequest, limits: Limits, measures_headroom: bool) -> Shown:
    from harness.app.checking import answer_check
    from harness.pipeline.supervisor import Supervisor

    with Supervisor(timeout=limits.timeout, memory_limit=limits.memory) as supervisor:
        if measures_headroom:
            return _measure_headroom(request, supervisor)
        answer = answer_check(request, supervisor, say_step)
        return Shown(answer.survives, answer.report, answer.data)


@contextlib.contextmanager
def _reported_problems() -> Iterator[None]:
    """Report what is wrong with the request as a usage error."""
    from harness.core.plugins import UnknownName
    from harness.pipeline.model_loading import ModelProblem
    from harness.plan.options import UsageProblem

    try:
        yield
    except (UsageProblem, UnknownName, ModelProblem) as error:
        raise click.UsageError(str(error)) from None


#: Option → the parameter, for options that have no effect on a file or with ``--headroom``.
_UNFIT = {"--axis": "axes", "--also": "also", "--rtol": "rtol", "--transform": "transforms", "--shapes": "shapes"}


def _refuse_unfit(word: str, given: Mapping[str, Any]) -> None:
    """Raise a usage error if an option is invalid, or has no effect on a file or with ``--headroom``."""
    for text in given["axes"]:
        axis_of(text)
    dtypes_of(given["also"])
    if given["atol"] is not None and given["rtol"] is None:
        raise click.UsageError("--atol needs --rtol: an error of both parts is allowed")
    for name, parameter in _UNFIT.items():
        if given[parameter] and is_onnx_file(word) and name in ("--axis", "--also", "--rtol"):
            raise click.UsageError(f"{name} has no effect on an .onnx file, which is exported already")
        if given[parameter] and given["headroom"] is not None:
            raise click.UsageError(f"{name} has no effect with --headroom")


def _exports(word: str, converters: tuple[str, ...], transforms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the exports to check: each converter with each transform."""
    if not transforms:
        return converters
    usual = FILE if is_onnx_file(word) else "dynamo"
    return tuple(f"{name}+{transform}" for name in converters or (usual,) for transform in transforms)


def _given_files(inputs: Path | None, preprocessing: tuple[str, ...]) -> tuple[GivenFiles, str]:
    """Return a user's inputs, and the deployed preprocessing function ("" for none)."""
    if preprocessing and inputs is None:
        raise click.UsageError("--preprocess reads the files of --inputs, which is missing")
    if len(preprocessing) > 2:
        raise click.UsageError("--preprocess is given at most twice: PyTorch's function, and the deployed one")
    first, *second = preprocessing or ("",)
    from harness.pipeline.model_task import absolute_word

    return given_files(inputs, first), absolute_word(second[0]) if second else ""


@dataclass(frozen=True)
class Shown:
    """An answer, as a report and as JSON data, and whether the model survives."""

    survives: bool
    report: Report
    data: Mapping[str, Any]
    document: str = "check"


def _show(shown: Shown, page: Path | None, as_json: bool) -> None:
    from harness.present import report
    from harness.record.run_info import installed_versions
    from harness.run.backend import runtime_distributions

    if page is not None:
        try:
            today = datetime.date.today().isoformat()
            versions = installed_versions(runtime_distributions())
            page.write_text(report.page(shown.report, today, versions), encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"cannot write {page}: {error.strerror}") from None
    if as_json:
        print_json(shown.document, shown.data)
    else:
        emit(report.render(shown.report))


def _measure_headroom(request: CheckRequest, supervisor: Supervisor) -> Shown:
    from harness.core.route import Route
    from harness.models.headroom import find_headroom
    from harness.pipeline.model_loading import check_word
    from harness.pipeline.model_task import AS_MADE, ModelSource, model_name
    from harness.present.headroom_report import headroom_data, headroom_report

    word, options = request.word, request.options[0]
    usual = FILE if is_onnx_file(word) else "dynamo"
    backend = (*options.backends, "ort-cpu")[0]
    route = replace(Route.parse((*options.converters, usual)[0]), backend=backend, opset=options.opset)
    say_step("measure the headroom")
    check_word(word)
    measured = find_headroom(ModelSource(word, AS_MADE, request.given), route, supervisor)
    report = headroom_report(measured, model_name(word), backend)
    return Shown(not measured.problem, report, headroom_data(measured), "headroom")
