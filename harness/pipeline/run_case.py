"""The way of a case: export it, transform and check the artefact, load it, run it, and compare the outputs with
PyTorch's.

`run_case` is the whole path, and `finish` its part after the artefact has been made. A batch makes one artefact for
many cases and hands each of them to the same `finish` (`harness.pipeline.run_batch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from harness.compare.repeated import Again
from harness.compare.verdict import Outcome, Stage
from harness.core.dtypes import Array
from harness.pipeline.case import Case
from harness.pipeline.case_run import CaseRun
from harness.pipeline.leeway import TransformedOutputs
from harness.pipeline.stages import (
    StageFailure,
    check_stage,
    excuse_for_problems,
    find_narrowing,
    is_rejected_harmlessly,
    load_stage,
    opset_to_check,
    run_again,
    run_stage,
)
from harness.pipeline.started_route import StartedRoute
from harness.pipeline.transforming import gather_samples, transform_stage
from harness.run.artefact import AnyModel, as_onnx, output_names
from harness.run.backend import Backend, BackendSession


def run_case(case: Case, started: StartedRoute) -> CaseRun:
    """Take a case along a route: export, transform, finish. A route without a backend ends with the check.

    Raises:
        DeviceLost: the backend's device is lost.
    """
    made = make_artefact(case, started)
    return made if made.artefact is None or made.failure is not None else finish(case, started, made.artefact)


def make_artefact(case: Case, started: StartedRoute) -> CaseRun:
    """Export a case and apply the route's transforms; return the artefact, or how the case ends before there is one."""
    exported = case.export(started)
    if isinstance(exported, StageFailure):
        return CaseRun.ended_by(exported)
    samples = gather_samples(started.route, [case.structure], exported)
    artefact = transform_stage(exported, started.route, samples=samples)
    if isinstance(artefact, StageFailure):
        return CaseRun.ended_by(artefact, exported)
    return CaseRun(stage=Stage.TRANSFORM, outcome=Outcome.PASS, artefact=artefact)


def finish(
    case: Case,
    started: StartedRoute,
    artefact: AnyModel,
    session: BackendSession | None = None,
    feeds: Mapping[str, Array] | None = None,
) -> CaseRun:
    """Check an artefact, load it, run it, choose the outputs to judge, compare them, and return how the case ends.

    Args:
        case: The case.
        started: Its route.
        artefact: The artefact after the route's transforms.
        session: The artefact as loaded, if it has been checked and loaded for many cases; None does both here.
        feeds: The inputs by name, if they are those of many cases; None for the case's own.

    Raises:
        DeviceLost: the backend's device is lost.
    """
    if session is None:
        if case.structure.is_checked or started.route.transforms:
            invalid = check_stage(artefact, opset_to_check(started.route), case.structure.promised_outputs)
            if invalid is not None:
                return _rejected(case, started, artefact, invalid)
        if started.backend is None:
            return CaseRun(stage=Stage.CHECK, outcome=Outcome.PASS, artefact=artefact)
        narrowed = narrowed_run(started.backend, case.oracle.arrays)
        if narrowed is not None:
            return replace(narrowed, artefact=artefact)
        loaded = load_stage(started.backend, artefact, case.shape_ranges(artefact) if started.route.dynamic else None)
        if isinstance(loaded, StageFailure):
            return CaseRun.ended_by(loaded, artefact)
        session = loaded
    if not session.runnable:
        return CaseRun(stage=Stage.LOAD, outcome=Outcome.BUILT, artefact=artefact)
    feeds = case.feeds(artefact) if feeds is None else feeds
    outputs = run_stage(session, feeds)
    if isinstance(outputs, StageFailure):
        return CaseRun.ended_by(outputs, artefact)
    again = run_again(session, feeds)
    return replace(_compared(case, started, artefact, feeds, outputs, again), artefact=artefact)


def narrowed_run(backend: Backend, arrays: Iterable[Array]) -> CaseRun | None:
    """Return the end of cases that a backend need not be asked about, as it computes them in a narrower dtype; else
    None. Narrowed integers may be right, so that these cases are run."""
    narrowing = find_narrowing(backend, arrays)
    if narrowing is None or narrowing.is_of_integers:
        return None
    return CaseRun(stage=Stage.LOAD, outcome=Outcome.NARROWED, message=narrowing.text)


def _compared(
    case: Case,
    started: StartedRoute,
    artefact: AnyModel,
    feeds: Mapping[str, Array],
    outputs: tuple[Array, ...],
    again: Again,
) -> CaseRun:
    """Choose the outputs to judge, compare them, and return how the case ends.

    Numbers that are wrong because a backend computes in a narrower dtype answer another question: they are not kept.
    """
    backend = started.backend
    assert backend is not None
    unknown = case.oracle.unknown
    if unknown:
        return CaseRun(stage=Stage.COMPARE, outcome=Outcome.SKIP, message=unknown, outputs=outputs)
    outputs = case.choose(outputs, again)
    transformed = TransformedOutputs.along(started.route, case, lambda: (as_onnx(artefact), feeds))
    comparison = case.compare(outputs, None if transformed is None else transformed.leeway)
    excuse = excuse_for_problems(backend, case.oracle.arrays, comparison.problems)
    if comparison.problems and not excuse and transformed is not None:
        excuse = transformed.text_of_unheld_numbers()
    if excuse:
        return CaseRun(stage=Stage.COMPARE, outcome=Outcome.NARROWED, message=excuse, outputs=outputs)
    outcome = Outcome.MISMATCH if comparison.problems else Outcome.PASS
    message = comparison.message
    run = CaseRun(stage=Stage.COMPARE, outcome=outcome, message=message, comparison=comparison, outputs=outputs)
    if run.passes or not case.structure.is_right_by_calls(case, run, started, run_case):
        return run
    excused = comparison.excused_as("a chain of right calls")
    return replace(run, outcome=Outcome.PASS, message="", comparison=excused)


def _rejected(case: Case, started: StartedRoute, artefact: AnyModel, invalid: StageFailure) -> CaseRun:
    """Return the result of a model that the checker rejects, with the wrong result of a backend that takes it anyway.

    The backend's own objections to it are dropped.
    """
    ended, backend = CaseRun.ended_by(invalid, artefact), started.backend
    if backend is None or not is_rejected_harmlessly(invalid):
        return ended
    names = case.structure.promised_outputs
    has_outputs = isinstance(names, int) or tuple(output_names(artefact)) == tuple(names)
    if not has_outputs or find_narrowing(backend, case.oracle.arrays):
        return ended
    session = load_stage(backend, artefact, case.shape_ranges(artefact) if started.route.dynamic else None)
    if isinstance(session, StageFailure) or not session.runnable:
        return ended
    run = finish(case, started, artefact, session)
    return replace(ended, further=(run,)) if run.outcome is Outcome.MISMATCH else ended
