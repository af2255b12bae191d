"""The check of a model, from a request to an answer: what `conformance check` and `harness.check` both call."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.compare.tolerances import Tolerance
from harness.core.route import is_onnx_file
from harness.models.check import ModelCheck, check_model, check_units
from harness.models.facts import model_facts
from harness.models.kernels import KernelReport, report_kernels
from harness.models.preprocessing import PreprocessingFound, compare_preprocessing
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import NO_FILES, Axis, GivenFiles, Variant
from harness.pipeline.supervisor import Supervisor
from harness.plan.options import Options
from harness.plan.unit import Unit
from harness.present.check_report import check_data, check_report
from harness.present.kernel_rows import kernel_complaints, kernel_data, kernel_rows
from harness.present.report import Report, Section


@dataclass(frozen=True)
class Required:
    """The questions about the nodes of a model: where they ran, and whether on a device or in a dtype.

    Attributes:
        is_shown: Show where each node ran.
        device: The device that every node must run on; None for any.
        dtype: The floating dtype that every node must compute in; None for any.
    """

    is_shown: bool = False
    device: str | None = None
    dtype: str | None = None

    @property
    def is_asked(self) -> bool:
        """Whether the runtimes are asked."""
        return self.is_shown or self.device is not None or self.dtype is not None


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The request for a check of one model.

    Attributes:
        word: The model: a registered name, ``FILE.py:FUNCTION``, ``FILE.pt2`` or ``FILE.onnx``.
        options: The routes: at least one set of options, all for this model.
        axes: Dynamic sizes in addition to the model's own, as ``x:0=1..8``.
        dtypes: Dtypes to try in addition to the model's own.
        shapes: ``static``, ``dynamic`` or ``both``; None means both if there is a dynamic size.
        tolerance: A tolerance that replaces the effect of rounding; None for that effect.
        given: The user's inputs.
        deployed: ``FILE.py:FUNCTION`` of the deployed preprocessing, to compare with that of `given`; "" for none.
        required: The questions about the nodes.
        name: The model's name in the answer; "" for that of `word`.
        shown_word: The word that the answer names; "" for `word` itself.
    """

    word: str
    options: tuple[Options, ...]
    axes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    shapes: str | None = None
    tolerance: Tolerance | None = None
    given: GivenFiles = NO_FILES
    deployed: str = ""
    required: Required = Required()
    name: str = ""
    shown_word: str = ""

    def parse_axes(self) -> tuple[Axis, ...]:
        """Return the dynamic sizes.

        Raises:
            ModelProblem: One is not written as it should be.
        """
        try:
            return tuple(map(Axis.parse, self.axes))
        except ValueError as error:
            raise ModelProblem(str(error)) from None

    @property
    def repro_options(self) -> str:
        """The options that `conformance repro` needs to find the same failure; the route is named apart."""
        first = self.options[0]
        words = [word for axis in self.axes for word in ("--axis", axis)]
        words += [word for file in first.rules for word in ("--rules", file)]
        words += ["--opset", str(first.opset)] if first.opset is not None else []
        words += ["--inputs", self.given.path] if self.given.path else []
        words += ["--preprocess", self.given.function] if self.given.function else []
        return "".join(f" {shlex.quote(word)}" for word in words)


@dataclass(frozen=True)
class CheckAnswer:
    """The answer to a request.

    Attributes:
        model: The results of the model on each route.
        survives: Whether every route gives PyTorch's results, inputs are prepared alike, and nodes run as required.
        report: The answer for people.
        data: The answer as JSON data.
    """

    model: ModelCheck
    survives: bool
    report: Report
    data: Mapping[str, Any]


def answer_check(request: CheckRequest, supervisor: Supervisor, progress: Callable[[str], None]) -> CheckAnswer:
    """Check a model.

    Args:
        request: The model, its routes and its inputs.
        supervisor: Runs everything that involves the user's code.
        progress: Called before each step.

    Raises:
        UsageProblem: A converter or backend cannot run here.
        UnknownName: No model, converter or backend has the name.
        ModelProblem: The model cannot be loaded, or does not fit the request.
    """
    word, given, axes = request.word, request.given, request.parse_axes()
    if not is_onnx_file(word):
        progress("load the model and call it twice")
    facts = model_facts(word, Variant(axes=axes), supervisor, given)
    units = [
        unit
        for options in request.options
        for unit in check_units(options, facts, axes, request.dtypes, request.shapes, request.tolerance, given)
    ]
    prepared = None
    if request.deployed:
        progress("compare the two preprocessing functions")
        prepared = compare_preprocessing(given, request.deployed, supervisor)
    checked = check_model(units, facts, supervisor, progress)
    checked = replace(checked, name=request.name or checked.name, word=request.shown_word or checked.word)
    return _make_answer(request, checked, prepared, _kernel_reports(units, request.required, supervisor, progress))


def _kernel_reports(
    units: Sequence[Unit], required: Required, supervisor: Supervisor, progress: Callable[[str], None]
) -> list[KernelReport]:
    """Return what the runtimes of some routes say about the nodes, if they are asked."""
    reports = []
    for unit in units if required.is_asked else ():
        for backend in unit.backends:
            progress(f"ask {backend} what ran where")
            reports.append(report_kernels(unit.whole_model, replace(unit.route, backend=backend), supervisor))
    return reports


def _make_answer(
    request: CheckRequest,
    checked: ModelCheck,
    prepared: PreprocessingFound | None,
    kernels: Sequence[KernelReport],
) -> CheckAnswer:
    complaints = tuple(kernel_complaints(kernels, request.required.device, request.required.dtype))
    survives = checked.survives and (prepared is None or not prepared.differences) and not complaints
    report = check_report(checked, request.repro_options, prepared)
    sections = [Section(title="What ran where", rows=tuple(kernel_rows(kernels)), noun="group")] if kernels else []
    if complaints:
        sections.append(Section(title="Not as required", rows=complaints, noun="route"))
    data = {**check_data(checked, prepared), "survives": survives, "kernels": kernel_data(kernels)}
    return CheckAnswer(checked, survives, replace(report, sections=(*report.sections, *sections)), data)
