"""`conformance check`: whether a model survives the trip, and if not, where it breaks."""

from __future__ import annotations

import contextlib
import datetime
import shlex
import sys
from collections.abc import Mapping, Sequence
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
    resolved,
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
    from harness.models.kernels import KernelReport
    from harness.models.preprocessing import PreprocessingFound
    from harness.pipeline.model_task import Axis, GivenFiles
    from harness.pipeline.supervisor import Supervisor
    from harness.plan.unit import Unit
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
def command(
    ctx: click.Context,
    word: str,
    converters: tuple[str, ...],
    transforms: tuple[str, ...],
    backends: tuple[str, ...],
    shapes: str | None,
    axes: tuple[str, ...],
    also: str,
    rules: tuple[str, ...],
    opset: int | None,
    inputs: Path | None,
    preprocessing: tuple[str, ...],
    headroom: str | None,
    where: bool,
    require_device: str | None,
    require_dtype: str | None,
    timeout: float,
    memory_limit: float,
    rtol: float | None,
    atol: float | None,
    page: Path | None,
    as_json: bool,
) -> None:
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
    limits = Limits(timeout, int(memory_limit * 2**30))
    if page is not None:
        require_writable(page)
    if atol is not None and rtol is None:
        raise click.UsageError("--atol needs --rtol: an error of both parts is allowed")
    options = {"--axis": axes, "--also": also, "--rtol": rtol, "--transform": transforms, "--shapes": shapes}
    _refuse_unfit(word, headroom, options)
    exports = _exports(word, converters, transforms)
    variant_axes, dtypes = tuple(map(axis_of, axes)), dtypes_of(also)
    wanted = _Wanted(
        *(word, exports, backends, opset, rules, variant_axes, dtypes, shapes, rtol, atol or 0.0, axes),
        *_given(inputs, preprocessing),
        Required(where, require_device, require_dtype),
    )
    # A model's own output is not part of the answer.
    with contextlib.redirect_stdout(sys.stderr):
        found = _check_model(wanted, limits) if headroom is None else _measure_headroom(wanted, limits)
    _show(found, page, as_json)
    ctx.exit(int(not found.survives))


def _refuse_unfit(word: str, headroom: str | None, options: Mapping[str, object]) -> None:
    """Raise a usage error if an option is given that has no effect on a file, or with ``--headroom``."""
    for name, value in options.items():
        if value and is_onnx_file(word) and name in ("--axis", "--also", "--rtol"):
            raise click.UsageError(f"{name} has no effect on an .onnx file, which is exported already")
        if value and headroom is not None:
            raise click.UsageError(f"{name} has no effect with --headroom")


def _exports(word: str, converters: tuple[str, ...], transforms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the exports to check: each converter with each transform."""
    if not transforms:
        return converters
    usual = FILE if is_onnx_file(word) else "dynamo"
    return tuple(f"{name}+{transform}" for name in converters or (usual,) for transform in transforms)


def _given(inputs: Path | None, preprocessing: tuple[str, ...]) -> tuple[GivenFiles, str]:
    """Return a user's inputs, and the deployed preprocessing function ("" for none)."""
    if preprocessing and inputs is None:
        raise click.UsageError("--preprocess reads the files of --inputs, which is missing")
    if len(preprocessing) > 2:
        raise click.UsageError("--preprocess is given at most twice: PyTorch's function, and the deployed one")
    first, *second = preprocessing or ("",)
    return given_files(inputs, first), resolved(second[0]) if second else ""


@dataclass(frozen=True)
class Checked:
    """The verdict on a model, as a report and as JSON data."""

    survives: bool
    report: Report
    data: Mapping[str, Any]


def _show(found: Checked, page: Path | None, as_json: bool) -> None:
    from harness.present import report
    from harness.record.run_info import installed_versions
    from harness.run.backend import runtime_distributions

    if page is not None:
        try:
            today = datetime.date.today().isoformat()
            versions = installed_versions(runtime_distributions())
            page.write_text(report.page(found.report, today, versions), encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"cannot write {page}: {error.strerror}") from None
    if as_json:
        print_json(found.data)
    else:
        emit(report.render(found.report))


@dataclass(frozen=True)
class Required:
    """The options about nodes: show where they ran, and require a device or a dtype."""

    is_shown: bool = False
    device: str | None = None
    dtype: str | None = None

    @property
    def is_asked(self) -> bool:
        """Whether the runtimes are asked."""
        return self.is_shown or self.device is not None or self.dtype is not None


@dataclass(frozen=True)
class _Wanted:
    """The request for one model: the options of the command."""

    word: str
    converters: tuple[str, ...]
    backends: tuple[str, ...]
    opset: int | None
    rules: tuple[str, ...]
    axes: tuple[Axis, ...]
    dtypes: tuple[str, ...]
    shapes: str | None
    rtol: float | None
    atol: float
    given_axes: tuple[str, ...]
    given: GivenFiles
    deployed: str
    required: Required

    @property
    def options(self) -> str:
        """The options that `conformance repro` needs to find the same failure; the route is named apart."""
        words = [word for axis in self.given_axes for word in ("--axis", axis)]
        words += [word for file in self.rules for word in ("--rules", file)]
        words += ["--opset", str(self.opset)] if self.opset is not None else []
        words += ["--inputs", self.given.path] if self.given.path else []
        words += ["--preprocess", self.given.function] if self.given.function else []
        return "".join(f" {shlex.quote(word)}" for word in words)


def _check_model(wanted: _Wanted, limits: Limits) -> Checked:
    from harness.compare.tolerances import Tolerance
    from harness.core.plugins import UnknownName
    from harness.models.check import check_model, check_units
    from harness.models.facts import model_facts
    from harness.pipeline.model_loading import ModelProblem
    from harness.pipeline.model_task import Variant
    from harness.pipeline.supervisor import Supervisor
    from harness.plan.options import Options, UsageProblem
    from harness.present.check_report import check_data, check_report
    from harness.present.kernel_rows import kernel_complaints, kernel_data, kernel_rows
    from harness.present.report import Section

    options = Options(
        models=(wanted.word,),
        converters=wanted.converters,
        backends=wanted.backends,
        opset=wanted.opset,
        rules=tuple(str(Path(file).absolute()) for file in wanted.rules),
    )
    tolerance = None if wanted.rtol is None else Tolerance(wanted.rtol, wanted.atol)
    try:
        with Supervisor(timeout=limits.timeout, memory_limit=limits.memory) as supervisor:
            if not is_onnx_file(wanted.word):
                say_step("load the model and call it twice")
            facts = model_facts(wanted.word, Variant(axes=wanted.axes), supervisor, wanted.given)
            units = check_units(options, facts, wanted.axes, wanted.dtypes, wanted.shapes, tolerance, wanted.given)
            prepared = _compared_inputs(wanted, supervisor)
            found = check_model(units, facts, supervisor, say_step)
            reports = _reports(units, wanted.required, supervisor)
    except (UsageProblem, UnknownName, ModelProblem) as error:
        raise click.UsageError(str(error)) from None
    complaints = list(kernel_complaints(reports, wanted.required.device, wanted.required.dtype))
    survives = found.survives and (prepared is None or not prepared.differences) and not complaints
    report = check_report(found, wanted.options, prepared)
    sections = [Section(title="What ran where", rows=tuple(kernel_rows(reports)), noun="group")] if reports else []
    if complaints:
        sections.append(Section(title="Not as required", rows=tuple(complaints), noun="route"))
    data = {**check_data(found, prepared), "survives": survives, "kernels": kernel_data(reports)}
    return Checked(survives, replace(report, sections=(*report.sections, *sections)), data)


def _reports(units: Sequence[Unit], required: Required, supervisor: Supervisor) -> list[KernelReport]:
    """Return what the runtimes of some routes say about the nodes, if they are asked."""
    from harness.models.kernels import report_kernels

    reports = []
    for unit in units if required.is_asked else ():
        for backend in unit.backends:
            say_step(f"ask {backend} what ran where")
            reports.append(report_kernels(unit.whole_model, replace(unit.route, backend=backend), supervisor))
    return reports


def _measure_headroom(wanted: _Wanted, limits: Limits) -> Checked:
    from harness.core.plugins import UnknownName
    from harness.core.route import Route
    from harness.models.headroom import find_headroom
    from harness.pipeline.model_loading import ModelProblem, check_word
    from harness.pipeline.model_task import AS_MADE, ModelSource, model_name
    from harness.pipeline.supervisor import Supervisor
    from harness.present.headroom_report import headroom_data, headroom_report

    usual = FILE if is_onnx_file(wanted.word) else "dynamo"
    backend = (wanted.backends or ("ort-cpu",))[0]
    route = replace(Route.parse((wanted.converters or (usual,))[0]), backend=backend, opset=wanted.opset)
    try:
        with Supervisor(timeout=limits.timeout, memory_limit=limits.memory) as supervisor:
            say_step("measure the headroom")
            check_word(wanted.word)
            found = find_headroom(ModelSource(wanted.word, AS_MADE, wanted.given), route, supervisor)
    except (UnknownName, ModelProblem) as error:
        raise click.UsageError(str(error)) from None
    return Checked(not found.problem, headroom_report(found, model_name(wanted.word), backend), headroom_data(found))


def _compared_inputs(wanted: _Wanted, supervisor: Supervisor) -> PreprocessingFound | None:
    """Return how the deployed preprocessing differs; None if only one function is given."""
    from harness.models.preprocessing import compare_preprocessing

    if not wanted.deployed:
        return None
    say_step("compare the two preprocessing functions")
    return compare_preprocessing(wanted.given, wanted.deployed, supervisor)
