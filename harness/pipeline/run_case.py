"""The way of a case: export it, transform and check the artefact, load it, run it, and compare the outputs with
PyTorch's.

`run_case` is the whole path. All code that runs a single case uses it, or uses the same stages from
`harness.pipeline.stages` where it runs many cases at once (`harness.pipeline.run_batch`) or a graph in parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from harness.compare.output_comparison import OutputComparison
from harness.compare.repeated import Again
from harness.compare.tolerances import Tolerance
from harness.compare.verdict import Outcome, Stage
from harness.convert.transform import tolerance_along
from harness.core.dtypes import Array
from harness.core.route import Route
from harness.core.text import describe_error
from harness.pipeline.case_run import CaseRun
from harness.pipeline.stages import (
    StageFailure,
    check_stage,
    excuse_for_problems,
    find_narrowing,
    is_rejected_for_dtype,
    load_stage,
    opset_to_check,
    run_again,
    run_stage,
)
from harness.pipeline.transforming import transform_stage
from harness.run.artefact import AnyModel, output_names
from harness.run.backend import Backend, ShapeRange

if TYPE_CHECKING:
    # Goldens are run without PyTorch.
    from harness.convert.converter import Converter


@dataclass(frozen=True, eq=False)
class StartedRoute:
    """A route whose converter and backend have been started.

    Attributes:
        route: The route.
        converter: None for cases that are graphs already.
        backend: None for a route that ends with the artefact.
    """

    route: Route
    converter: Converter | None = None
    backend: Backend | None = None

    @cached_property
    def tolerance(self) -> Tolerance | None:
        """Return the tolerance of the dtype that the route's transforms compute in; None if they change none."""
        return tolerance_along(self.route)


class Case(Protocol):
    """An object that is sent along a route: a call, a program, a model, or a graph."""

    @property
    def arrays(self) -> Sequence[Array]:
        """All inputs and outputs, which a backend may narrow."""

    @property
    def output_names(self) -> Sequence[str] | int:
        """The names that the artefact's outputs must have; their number if the converter names them."""

    @property
    def is_checked(self) -> bool:
        """Whether ONNX's checker decides about the case's own graph; of a user's file the runtime does."""

    @property
    def unknown(self) -> str:
        """Why the right outputs are not known, so that no result can be judged; "" if they are."""

    def export(self, route: StartedRoute) -> AnyModel | StageFailure:
        """Return the artefact; a graph returns itself."""

    def feeds(self, artefact: AnyModel) -> Mapping[str, Array]:
        """Return the inputs by name, without those that the export left out."""

    def shape_ranges(self, artefact: AnyModel) -> Mapping[str, ShapeRange]:
        """Return the sizes that a dynamic artefact is run with."""

    def choose(self, outputs: tuple[Array, ...], again: Again) -> tuple[Array, ...]:
        """Return the outputs to judge: the first run's, or those of a later one if the case draws at random."""

    def compare(self, outputs: Sequence[Array], tolerance: Tolerance | None) -> OutputComparison:
        """Compare a backend's outputs with PyTorch's; `tolerance` takes the place of those of the dtypes."""


def run_case(case: Case, started: StartedRoute, until: Stage = Stage.COMPARE) -> CaseRun:
    """Take a case along a route, up to a stage.

    Raises:
        DeviceLost: the backend's device is lost.
    """
    artefact = case.export(started)
    if isinstance(artefact, StageFailure):
        return _ended(artefact)
    if until is Stage.CONVERT:
        return CaseRun(stage=until, outcome=Outcome.PASS, artefact=artefact)
    exported, artefact = artefact, transform_stage(artefact, started.route)
    if isinstance(artefact, StageFailure):
        return _ended(artefact, exported)
    if case.is_checked or started.route.transforms:
        invalid = check_stage(artefact, opset_to_check(started.route), case.output_names)
        if invalid is not None:
            return _rejected(case, started, artefact, invalid, until)
    backend = started.backend
    if backend is None or until is Stage.CHECK:
        return CaseRun(stage=Stage.CHECK, outcome=Outcome.PASS, artefact=artefact)
    narrowing = find_narrowing(backend, case.arrays)
    if narrowing and not narrowing.is_of_integers:
        return CaseRun(stage=Stage.LOAD, outcome=Outcome.NARROWED, artefact=artefact, message=narrowing.text)
    session = load_stage(backend, artefact, case.shape_ranges(artefact) if started.route.dynamic else None)
    if isinstance(session, StageFailure):
        return _ended(session, artefact)
    if not session.runnable or until is Stage.LOAD:
        outcome = Outcome.PASS if session.runnable else Outcome.BUILT
        return CaseRun(stage=Stage.LOAD, outcome=outcome, artefact=artefact)
    feeds = case.feeds(artefact)
    outputs = run_stage(session, feeds)
    if isinstance(outputs, StageFailure):
        return _ended(outputs, artefact)
    return replace(conclude(case, started, outputs, run_again(session, feeds)), artefact=artefact)


def conclude(case: Case, started: StartedRoute, outputs: tuple[Array, ...], again: Again) -> CaseRun:
    """Choose the outputs to judge, compare them, and return how the case ends.

    Numbers that are wrong because a backend computes in a narrower dtype answer another question: they are not kept.
    """
    backend = started.backend
    assert backend is not None
    if case.unknown:
        return CaseRun(stage=Stage.COMPARE, outcome=Outcome.SKIP, message=case.unknown, outputs=outputs)
    outputs = case.choose(outputs, again)
    comparison = case.compare(outputs, started.tolerance)
    excuse = excuse_for_problems(backend, case.arrays, comparison.problems)
    if excuse:
        return CaseRun(stage=Stage.COMPARE, outcome=Outcome.NARROWED, message=excuse, outputs=outputs)
    outcome = Outcome.MISMATCH if comparison.problems else Outcome.PASS
    message = comparison.message
    return CaseRun(stage=Stage.COMPARE, outcome=outcome, message=message, comparison=comparison, outputs=outputs)


def _rejected(case: Case, started: StartedRoute, artefact: AnyModel, invalid: StageFailure, until: Stage) -> CaseRun:
    """Return the result of a model that the checker rejects, with the wrong result of a backend that takes it anyway.

    The backend's own objections to it are dropped.
    """
    ended, backend, names = _ended(invalid, artefact), started.backend, case.output_names
    if backend is None or until is not Stage.COMPARE or not is_rejected_for_dtype(invalid):
        return ended
    has_outputs = isinstance(names, int) or tuple(output_names(artefact)) == tuple(names)
    if not has_outputs or find_narrowing(backend, case.arrays):
        return ended
    session = load_stage(backend, artefact, case.shape_ranges(artefact) if started.route.dynamic else None)
    if isinstance(session, StageFailure) or not session.runnable:
        return ended
    feeds = case.feeds(artefact)
    outputs = run_stage(session, feeds)
    if isinstance(outputs, StageFailure):
        return ended
    run = conclude(case, started, outputs, run_again(session, feeds))
    return replace(ended, further=(run,)) if run.outcome is Outcome.MISMATCH else ended


def _ended(failure: StageFailure, artefact: AnyModel | None = None) -> CaseRun:
    return CaseRun(
        stage=failure.stage,
        outcome=failure.outcome,
        artefact=artefact,
        failure=failure,
        message=describe_error(failure.error),
        transform=failure.transform,
    )
