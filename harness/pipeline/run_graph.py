"""Run an artefact without comparing its outputs: a part of a graph, or a node by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.compare.repeated import Again
from harness.compare.verdict import Outcome, Stage
from harness.core.dtypes import Array
from harness.pipeline.case_run import CaseRun
from harness.pipeline.stages import StageFailure, load_stage, run_again, run_stage
from harness.run.artefact import AnyModel
from harness.run.backend import Backend, ShapeRange


def run_graph(
    backend: Backend,
    model: AnyModel,
    feeds: Mapping[str, Array],
    shapes: Mapping[str, ShapeRange] | None = None,
    choose: Callable[[Sequence[Array], Again], Sequence[Array]] | None = None,
) -> CaseRun:
    """Load and run an artefact.

    Args:
        backend: The backend.
        model: The artefact.
        feeds: The inputs by name.
        shapes: The sizes that a dynamic artefact is run with.
        choose: Chooses among several runs, given the first one's outputs and a function that runs it again.

    Raises:
        DeviceLost: the backend's device is lost.
    """
    session = load_stage(backend, model, shapes)
    if isinstance(session, StageFailure):
        return CaseRun.ended_by(session, model)
    if not session.runnable:
        failure = StageFailure(Stage.LOAD, Outcome.BUILT, RuntimeError("it cannot run on this machine"))
        return CaseRun.ended_by(failure, model)
    outputs = run_stage(session, feeds)
    if isinstance(outputs, StageFailure):
        return CaseRun.ended_by(outputs, model)
    if choose is not None:
        outputs = tuple(choose(outputs, run_again(session, feeds)))
    return CaseRun(stage=Stage.RUN, outcome=Outcome.PASS, artefact=model, outputs=outputs)
