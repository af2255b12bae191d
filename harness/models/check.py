"""Check whether a model survives: where it breaks, which component is at fault, and what helps.

1. Load the model in a worker and call it twice, since a graph loses what the model stores between calls.
2. A route has a converter, static or dynamic shapes, and a dtype; its backends share the export. Run each route with
   the example, other values and other sizes, and judge the results as those of whole models.
3. On a failing route, run each distinct call of the model alone, with the values that it has in the model: a call that
   ends as the route does is a cause, and the witnesses of single calls find the component at fault. If other sizes
   fail, export each call at the example's sizes and run it at the others.
4. If the result is wrong, find the first value whose error exceeds what the largest of its tensor explains.
5. If no call fails alone, the witnesses examine the model as a program: optimisers and their guilty passes, single
   nodes, other runtimes.
6. Try what may help: another example, converter, opset, backend, dtype.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.compare.diagnosis import CALL_ALONE, DIVERGENCE, Diagnosis, Finding
from harness.compare.tolerances import Tolerance
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, RUNS_AT, TRANSFORM, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.invocation import Invocation
from harness.core.route import FILE, Route, is_onnx_file
from harness.generate.sources.recorded import FromRecord, Replayed
from harness.models.capture import ResizedCalls
from harness.models.facts import CallsTask, ModelFacts, model_calls
from harness.models.remedies import Remedy, tried_remedies
from harness.models.state import StateChange
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_oracle import largest_element
from harness.pipeline.model_task import (
    NO_FILES,
    Axis,
    FixedSize,
    GivenFiles,
    GraphChange,
    ModelRun,
    ModelSource,
    NodesJudged,
    RunAccuracy,
    Variant,
)
from harness.pipeline.reference import run_reference
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.torch_call import CallRejected
from harness.plan.options import Options
from harness.plan.plan import first_backend, make_plan
from harness.plan.unit import Unit, run_unit


@dataclass(frozen=True)
class GuiltyOptimiser:
    """An optimiser without which a model is right.

    Attributes:
        owner: ``exporter`` or ``runtime``; "" if no optimiser is guilty.
        passes: A minimal set of its passes to leave out; empty if they cannot be left out separately.
    """

    owner: str = ""
    passes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RouteCheck:
    """The results of a model or an ONNX file on one route.

    Attributes:
        route: The route.
        dtype: The dtype; "" means the model's own.
        noise: Whether what the model draws at random is an input.
        outcomes: The verdicts on its runs, the example first.
        calls: Verdicts on calls of the model that fail alone, one for each overload and kind of failure.
        calls_made: Number of distinct calls that were run alone.
        foreign: Operators of other libraries that the model calls.
        captures: Whether the converter begins with `torch.export`.
        is_uncaptured: Whether `torch.export` fails on the model.
        obstacle: See `harness.models.capture.Capture`.
        remedies: The changes that were tried.
        notes: Further facts, and reasons why something is unknown.
    """

    route: Route
    dtype: str
    outcomes: tuple[Verdict, ...]
    noise: bool = False
    calls: tuple[Verdict, ...] = ()
    calls_made: int = 0
    foreign: tuple[str, ...] = ()
    captures: bool = False
    is_uncaptured: bool = False
    obstacle: str = ""
    remedies: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failure(self) -> Verdict | None:
        """The first run that fails; None if there is none.

        A wrong result counts whose numbers do not fit into the dtype that the backend silently computes in: what the
        model answers there is of no use, though the backend makes no secret of its dtypes.
        """
        return next((o for o in self.outcomes if o.outcome.is_failure or _is_wrong_by_narrowing(o)), None)

    @property
    def is_compared(self) -> bool:
        """Whether the result of some run was compared with PyTorch's."""
        return any(o.outcome in (Outcome.PASS, Outcome.MISMATCH, Outcome.INACCURATE) for o in self.outcomes)

    @property
    def survives(self) -> bool:
        """Whether no run fails and some run was compared."""
        return self.failure is None and self.is_compared

    @property
    def guilty_calls(self) -> tuple[Verdict, ...]:
        """The calls that end alone as the route does, those with the largest errors first.

        Of calls that are refused, those with the model's own error: an export ends at the first of several.
        """
        failure = self.failure
        if failure is None:
            return ()
        ends = failure.stage, failure.outcome
        alike = [call for call in self.calls if (call.stage, call.outcome) == ends]
        if failure.outcome is not Outcome.MISMATCH:
            named = [call for call in alike if call.overload in failure.message]
            alike = [call for call in alike if call.signature == failure.signature] or named or alike
        elif not alike:
            alike = [call for call in self.calls if call.outcome is Outcome.INACCURATE]
        return tuple(sorted(alike, key=_error_share, reverse=True))

    @property
    def owner(self) -> str:
        """The component at fault for the whole model: ``pytorch``, ``converter``, ``transform`` or ``backend``; "" if
        unknown.

        If the witnesses do not determine it, the stage does.
        """
        if self.failure is None:
            return ""
        verdict = self.failure
        if _is_wrong_by_narrowing(verdict):
            return BACKEND
        if self.captures and self.is_uncaptured and verdict.stage is Stage.CONVERT:
            return PYTORCH
        return verdict.blame if verdict.blame in _COMPONENTS else _OWNERS.get(verdict.stage, "")

    @property
    def optimiser(self) -> GuiltyOptimiser:
        """The optimiser that the witnesses of the first failing run identified."""
        diagnosis = Diagnosis.from_row(vars(self.failure)) if self.failure is not None else None
        if diagnosis is None or CALL_ALONE in diagnosis.facts:
            return GuiltyOptimiser()
        right = {t.statement: t.facts for t in diagnosis.testimony if t.finding is Finding.RIGHT}
        if "without-optimisations" in right:
            return GuiltyOptimiser("runtime", tuple(right.get("runtime-passes", {}).get("passes", ())))
        if "unoptimised-export" in right or "unoptimised-model" in right:
            return GuiltyOptimiser("exporter", tuple(right.get("exporter-passes", {}).get("passes", ())))
        return GuiltyOptimiser()

    @property
    def nodes(self) -> NodesJudged | None:
        """Numbers of a file's nodes that were compared with their definitions; None if none was."""
        judged = (ModelRun.from_text(o.model_run).nodes for o in self.outcomes)
        return next((nodes for nodes in judged if nodes is not None), None)

    @property
    def accuracies(self) -> tuple[tuple[str, RunAccuracy], ...]:
        """The inputs of its runs, as the file's name, and how accurate they are: of a transformed model or a user's
        inputs."""
        runs = (ModelRun.from_text(o.model_run) for o in self.outcomes)
        return tuple((run.change, run.accuracy) for run in runs if run.accuracy is not None)

    @property
    def range_loss(self) -> GraphChange | None:
        """The first node that leaves the range of its dtype if all runs as the graph asks; None if none does.

        A backend that computes in more bits may be right nevertheless.
        """
        return next((a.range_loss for _, a in self.accuracies if a.range_loss is not None), None)

    @property
    def fixed_sizes(self) -> tuple[FixedSize, ...]:
        """Sizes that a file declares dynamic although its constants fix them."""
        return ModelRun.from_text(self.outcomes[0].model_run).fixed if self.outcomes else ()

    @property
    def invalid_node(self) -> Mapping[str, Any] | None:
        """The node that ONNX rejects, according to the witnesses of the first failing run, and why; None if none."""
        diagnosis = Diagnosis.from_row(vars(self.failure)) if self.failure is not None else None
        testimony = diagnosis.testimony if diagnosis is not None else ()
        return next((t.facts for t in testimony if t.statement == "invalid-node"), None)

    @property
    def divergence(self) -> Mapping[str, Any] | None:
        """The place where the first wrong result begins, as from `first_divergence.Divergence.to_data`."""
        diagnoses = (Diagnosis.from_row(vars(o)) for o in self.outcomes)
        facts = (d.facts for d in diagnoses if d is not None and not d.inherited_from)
        return next((f[DIVERGENCE] for f in facts if DIVERGENCE in f), None)


def _is_wrong_by_narrowing(verdict: Verdict) -> bool:
    """Whether a backend gave a wrong result because it computes in a narrower dtype than the model's."""
    return verdict.outcome is Outcome.NARROWED and verdict.stage is Stage.COMPARE


#: Stage → the component at fault if nothing else is known.
_OWNERS: Mapping[Stage, str] = {
    stage: owner for stage, owner in RUNS_AT.items() if stage not in (Stage.REFERENCE, Stage.COMPARE)
}
_COMPONENTS = frozenset({PYTORCH, CONVERTER, TRANSFORM, BACKEND})


def _error_share(call: Verdict) -> float:
    """Return a wrong call's largest error relative to PyTorch's largest number; infinity for a wrong shape or dtype."""
    if call.outcome not in (Outcome.MISMATCH, Outcome.INACCURATE):
        return 0.0
    if call.max_abs_error is None:
        return math.inf
    try:
        expected = run_reference(Invocation.from_json(call.invocation)).expected
    except CallRejected:
        return call.max_abs_error
    return call.max_abs_error / max(largest_element(expected), call.max_abs_error)


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """The results of a model.

    Attributes:
        word: The model as the user named it.
        name: The model's name.
        ways: The results on each route.
        left_out: Reasons why some of its calls could not run alone.
        state: The state that it changes when it runs.
        trains: Whether it was given in training mode, where it gives another result; it was checked in evaluation mode.
        notes: Messages of the converters about their exports.
    """

    word: str
    name: str
    ways: tuple[RouteCheck, ...]
    left_out: tuple[str, ...]
    state: StateChange
    notes: tuple[str, ...]
    trains: bool = False

    @property
    def survives(self) -> bool:
        """Whether every route gives PyTorch's results and the model keeps no state."""
        return not self.state and all(way.survives for way in self.ways)


#: Number of arguments depending on sizes that are reported.
_MOST_COMPUTED = 3
#: Receives a description of the next step.
Progress = Callable[[str], None]


def check_model(units: Sequence[Unit], facts: ModelFacts, supervisor: Supervisor, progress: Progress) -> ModelCheck:
    """Check one model on some routes.

    Args:
        units: At least one unit, all of one model: a converter, a shape mode and a variant each.
        facts: The facts about the model.
        supervisor: Runs everything that involves the user's code.
        progress: Called before each step.

    Raises:
        harness.pipeline.supervisor.WorkerFailed: No worker process can be started.
    """
    checks, left_out, model = list[RouteCheck](), dict[str, None](), units[0].whole_model
    for unit in units:
        for check, not_run in _check_routes(unit, supervisor, progress):
            left_out.update(dict.fromkeys(not_run))
            is_first = check.failure is not None and all(earlier.failure is None for earlier in checks)
            if is_first and unit.settings.blame:
                progress("try what could help")
                assert check.failure is not None
                remedies = tried_remedies(unit, check.route.backend, check.failure, facts, supervisor)
                check = replace(check, remedies=remedies)
            checks.append(check)
    return ModelCheck(
        word=model.word,
        name=facts.name,
        ways=tuple(checks),
        left_out=tuple(left_out),
        state=facts.state,
        notes=tuple(supervisor.notes),
        trains=facts.trains,
    )


def _check_routes(
    unit: Unit, supervisor: Supervisor, progress: Progress
) -> Iterator[tuple[RouteCheck, tuple[str, ...]]]:
    """Yield the results on the routes of one export, each with reasons why calls of the model could not run alone."""
    dtype = unit.variant.dtype
    noise = ", noise as an input" if unit.variant.noise else ""
    description = f"{unit.route}, {unit.route.shape_mode}" + (f", {dtype}" if dtype else "") + noise
    progress(f"run it: {description}")
    outcomes = [verdict for verdicts in run_unit(unit, supervisor) for verdict in verdicts]
    outcomes.sort(key=lambda verdict: ModelRun.from_text(verdict.model_run).index)
    failing = tuple(b for b in unit.backends if any(o.outcome.is_failure for o in _on_backend(outcomes, b)))
    alone = _CallsAlone()
    if failing and not unit.whole_model.is_graph:
        progress(f"run its calls alone: {description}")
        alone = _run_calls_alone(replace(unit, backends=failing), outcomes, supervisor)
    for backend in unit.backends:
        check = RouteCheck(
            route=replace(unit.route, backend=backend),
            dtype=dtype,
            noise=unit.variant.noise,
            outcomes=tuple(_on_backend(outcomes, backend)),
            calls=tuple(alone.failing.get(backend, ())),
            calls_made=alone.number,
            foreign=alone.foreign,
            captures=find_converter(unit.route.converter).captures,
            is_uncaptured=alone.is_uncaptured,
            obstacle=alone.obstacle if backend in failing else "",
            notes=alone.notes if backend in failing else (),
        )
        yield check, alone.left_out


def _is_resized(run: Invocation, example: Invocation) -> bool:
    """Whether a run of a model has sizes other than the exported example's."""
    return [spec.shape for spec in run.tensors()] != [spec.shape for spec in example.tensors()]


@dataclass(frozen=True)
class _CallsAlone:
    """The results of a model's calls when they run alone.

    Attributes:
        failing: Backend → verdicts on calls that fail.
        number: Number of calls that were run.
        notes: Arguments that depend on sizes, if no call fails.
        left_out: Reasons why some could not be run.
        foreign: Operators of other libraries among them.
        is_uncaptured: Whether `torch.export` fails on the model, so that these are the calls of eager mode.
        obstacle: See `harness.models.capture.Capture`.
    """

    failing: Mapping[str, list[Verdict]] = field(default_factory=dict)
    number: int = 0
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    is_uncaptured: bool = False
    obstacle: str = ""


def _run_calls_alone(unit: Unit, outcomes: Sequence[Verdict], supervisor: Supervisor) -> _CallsAlone:
    failed = (Invocation.from_json(o.invocation) for o in outcomes if o.outcome.is_failure)
    example = Invocation.from_json(outcomes[0].exported_invocation) if unit.route.dynamic else None
    other_run = next((run for run in failed if example is not None and _is_resized(run, example)), None)
    answer = model_calls(CallsTask(source=unit.whole_model, other_run=other_run), supervisor)
    if answer.capture is None:
        return _CallsAlone(left_out=(answer.problem,))
    # The exporter never saw the calls of eager mode.
    captured = () if answer.capture.eager else answer.capture.calls
    failing = _failing_calls([Replayed(call.invocation, None) for call in captured], unit, supervisor)
    pairs = [Replayed(invocation, exported) for invocation, exported in answer.resized.pairs]
    for backend, verdicts in _failing_calls(pairs, unit, supervisor, dynamic=True).items():
        failing.setdefault(backend, []).extend(verdicts)
    notes = () if failing else tuple(_describe_computed(answer.resized))
    return _CallsAlone(
        failing=failing,
        number=len(captured),
        notes=notes,
        left_out=tuple(answer.capture.left_out),
        foreign=answer.capture.foreign,
        is_uncaptured=answer.capture.eager,
        obstacle=answer.capture.obstacle,
    )


def _on_backend(outcomes: Sequence[Verdict], backend: str) -> Iterator[Verdict]:
    return (outcome for outcome in outcomes if outcome.backend == backend)


def _failing_calls(
    calls: Sequence[Replayed], unit: Unit, supervisor: Supervisor, *, dynamic: bool = False
) -> dict[str, list[Verdict]]:
    """Return verdicts on calls that fail alone by backend, one for each overload and signature."""
    by_overload: defaultdict[str, list[Replayed]] = defaultdict(list)
    for call in calls:
        by_overload[call.invocation.overload].append(call)
    failing: dict[str, dict[tuple[str, str], Verdict]] = {}
    for overload, replayed in by_overload.items():
        alone = Unit(
            overload=overload,
            route=replace(unit.route, dynamic=dynamic),
            backends=unit.backends,
            sources=(FromRecord(tuple(replayed)),),
            settings=unit.settings,
        )
        for verdicts in run_unit(alone, supervisor):
            for verdict in verdicts:
                if verdict.outcome.is_failure or verdict.outcome is Outcome.INACCURATE:
                    by_kind = failing.setdefault(verdict.backend, {})
                    by_kind.setdefault((overload, verdict.signature), verdict)
    return {backend: list(verdicts.values()) for backend, verdicts in failing.items()}


def _describe_computed(resized: ResizedCalls) -> Iterator[str]:
    for overload, name, example, here in resized.computed[:_MOST_COMPUTED]:
        yield f"{name} of {overload} depends on sizes: {example} in the example, {here} here"


def check_units(
    options: Options,
    facts: ModelFacts,
    axes: tuple[Axis, ...],
    dtypes: Sequence[str],
    shapes: str | None,
    tolerance: Tolerance | None = None,
    given: GivenFiles = NO_FILES,
) -> list[Unit]:
    """Return the units of a check.

    Args:
        options: Options for one model. If they name no backend, each converter gets one; if they name no converter, it
            is dynamo, or one that makes the artefacts of the backends.
        facts: The facts about the model with these axes.
        axes: Dynamic sizes in addition to the model's own.
        dtypes: Dtypes to try in addition to the model's own.
        shapes: ``static``, ``dynamic`` or ``both``; None means both if the model has dynamic sizes.
        tolerance: A tolerance that replaces the error explained by rounding.
        given: The user's inputs.

    Raises:
        UsageProblem: A name is unknown, or what is asked for cannot run here.
        ModelProblem: Dynamic shapes are asked for, but the model has no dynamic size.
    """
    asked = [options]
    if not options.backends:
        usual = FILE if is_onnx_file(options.models[0]) else "dynamo"
        names = options.converters or (usual,)
        asked = [replace(options, converters=(name,), backends=(first_backend(name),)) for name in names]
    planned = [unit for each in asked for unit in make_plan(replace(each, shapes="both")).units]
    if shapes in ("dynamic", "both") and not facts.axes:
        raise ModelProblem(f"{options.models[0]} names no open size: name one with --axis INPUT:DIM=SIZES")
    # An exported program is static or dynamic as it was exported.
    every = ("dynamic",) if facts.is_exported else ("static", "dynamic")
    modes = {None: every if facts.axes else ("static",), "both": ("static", "dynamic")}
    chosen = modes.get(shapes, (shapes,))
    variants = [Variant(dtype=dtype, axes=axes) for dtype in ("", *dtypes)]
    # The sizes of what it draws depend on its own.
    noisy = [replace(variant, noise=True) for variant in variants] if facts.takes_noise else []
    return [
        replace(
            unit,
            model=ModelSource(options.models[0], variant, given),
            settings=replace(unit.settings, tolerance=tolerance),
        )
        for variant in (*variants, *noisy)
        for unit in planned
        if unit.route.shape_mode in chosen and not (variant.noise and unit.route.dynamic)
    ]
