"""Whether a model survives the trip, and if not, where it breaks, whose fault that is, and what helps.

1. Load the model in a worker and call it twice: what it keeps between calls, a graph forgets.
2. Each way is a converter, static or dynamic shapes, and a dtype; the backends share its export. Run each way: the
   example, other values, other sizes. The results are judged as whole models are.
3. Of a way that fails, run each distinct call of the model by itself, on the values that it has there, through the same
   converter and backends: a call that ends as the way does is a cause, and the witnesses of single calls say whose
   fault it is. Where other sizes fail, each call is exported at the example's sizes and run at the others.
4. Where the result is wrong, find the first value that differs by more than the largest of its tensor explains.
5. Where no call fails alone, the witnesses look at the model as they look at a program: an optimiser and its guilty
   pass, the nodes one by one, other runtimes.
6. Try what could help: another example, converter, opset, backend, dtype.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.compare.diagnosis import CALL_ALONE, DIVERGENCE, Diagnosis, Finding
from harness.compare.tolerances import Tolerance
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.invocation import Invocation
from harness.core.route import FILE, Route, is_onnx_file
from harness.generate.sources.recorded import FromRecord, Replayed
from harness.models.capture import ResizedCalls
from harness.models.facts import CallsTask, ModelFacts, model_calls
from harness.models.remedies import Remedy, tried_remedies
from harness.models.state import StateChange
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_reference import largest_element
from harness.pipeline.model_task import Axis, FixedSize, ModelRun, ModelSource, NodesJudged, Variant
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
        owner: ``exporter`` or ``runtime``; "" where no optimiser is guilty.
        passes: The fewest of its passes that have to be left out; none where they cannot be left out one by one.
    """

    owner: str = ""
    passes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of a model or an ONNX file to a backend, and what became of it.

    Attributes:
        dtype: "" for the model's own.
        outcomes: Of its runs, the example first.
        calls: Verdicts on calls of the model that fail by themselves, one for each overload and kind of failure.
        calls_made: How many distinct calls were run by themselves.
        foreign: Operators of other libraries that the model calls.
        captures: Whether the converter begins with `torch.export`.
        is_uncaptured: Whether `torch.export` fails on the model.
        remedies: What was tried to make it right.
        notes: What else is known, and why something could not be found out.
    """

    route: Route
    dtype: str
    outcomes: tuple[Verdict, ...]
    calls: tuple[Verdict, ...] = ()
    calls_made: int = 0
    foreign: tuple[str, ...] = ()
    captures: bool = False
    is_uncaptured: bool = False
    remedies: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failure(self) -> Verdict | None:
        """The first run that fails."""
        return next((o for o in self.outcomes if o.outcome.is_failure), None)

    @property
    def is_compared(self) -> bool:
        """Whether a result of a run was compared with PyTorch's."""
        return any(o.outcome in (Outcome.PASS, Outcome.MISMATCH) for o in self.outcomes)

    @property
    def survives(self) -> bool:
        """Whether no run fails, and at least one was compared."""
        return self.failure is None and self.is_compared

    @property
    def guilty_calls(self) -> tuple[Verdict, ...]:
        """The calls that end by themselves as the way does; of wrong results those first that are off by most."""
        failure = self.failure
        if failure is None:
            return ()
        ends = failure.stage, failure.outcome
        alike = [call for call in self.calls if (call.stage, call.outcome) == ends]
        if not alike and failure.outcome is Outcome.MISMATCH:
            alike = [call for call in self.calls if call.outcome is Outcome.INACCURATE]
        return tuple(sorted(alike, key=_error_share, reverse=True))

    @property
    def owner(self) -> str:
        """Whose the failure of the model as a whole is: ``pytorch``, ``converter`` or ``backend``; "" for unknown.

        Where the witnesses do not say, the stage decides.
        """
        if self.failure is None:
            return ""
        verdict = self.failure
        if self.captures and self.is_uncaptured and verdict.stage is Stage.CONVERT:
            return PYTORCH
        return verdict.blame if verdict.blame in (PYTORCH, CONVERTER, BACKEND) else _OWNERS.get(verdict.stage, "")

    @property
    def optimiser(self) -> GuiltyOptimiser:
        """The optimiser that the witnesses of the first failing run found guilty."""
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
        """How many nodes of a file were compared with their definitions; None where none was."""
        found = (ModelRun.from_text(o.model_run).nodes for o in self.outcomes)
        return next((nodes for nodes in found if nodes is not None), None)

    @property
    def fixed_sizes(self) -> tuple[FixedSize, ...]:
        """Sizes that a file declares open and that its constants fix."""
        return ModelRun.from_text(self.outcomes[0].model_run).fixed if self.outcomes else ()

    @property
    def invalid_node(self) -> Mapping[str, Any] | None:
        """The node that ONNX rejects, by the witnesses of the first failing run, and why; None for none."""
        diagnosis = Diagnosis.from_row(vars(self.failure)) if self.failure is not None else None
        testimony = diagnosis.testimony if diagnosis is not None else ()
        return next((t.facts for t in testimony if t.statement == "invalid-node"), None)

    @property
    def divergence(self) -> Mapping[str, Any] | None:
        """Where the first wrong result begins, as `harness.blame.first_divergence.Divergence.to_data` has it."""
        diagnoses = (Diagnosis.from_row(vars(o)) for o in self.outcomes)
        facts = (d.facts for d in diagnoses if d is not None and not d.inherited_from)
        return next((f[DIVERGENCE] for f in facts if DIVERGENCE in f), None)


#: Whose a failure at a stage is, as long as nothing else is known.
_OWNERS = {Stage.CONVERT: "converter", Stage.CHECK: "converter", Stage.LOAD: "backend", Stage.RUN: "backend"}


def _error_share(call: Verdict) -> float:
    """The largest error of a wrong call as a share of PyTorch's largest number; the most for a wrong form."""
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
    """What became of a model.

    Attributes:
        word: As the user named it.
        left_out: Why some of its calls cannot be run alone.
        state: What it changes as it runs.
    """

    word: str
    name: str
    ways: tuple[Way, ...]
    left_out: tuple[str, ...]
    state: StateChange

    @property
    def survives(self) -> bool:
        """Whether every way gives PyTorch's results, and a second call does, too."""
        return not self.state and all(way.survives for way in self.ways)


#: Arguments that follow from sizes that are named.
_MOST_COMPUTED = 3
#: Told what is done next, for a person who waits.
Progress = Callable[[str], None]


def check_model(units: Sequence[Unit], facts: ModelFacts, supervisor: Supervisor, progress: Progress) -> ModelCheck:
    """Check one model in some ways.

    Args:
        units: At least one, all of one model: each a converter, a kind of shapes and a variant.
        facts: What is known of the model.
        supervisor: Runs everything that the user's code takes part in.
        progress: Called before each step.

    Raises:
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    ways, left_out, model = list[Way](), dict[str, None](), units[0].model
    assert model is not None
    for unit in units:
        for way, not_run in _ways(unit, supervisor, progress):
            left_out.update(dict.fromkeys(not_run))
            is_first = way.failure is not None and all(known.failure is None for known in ways)
            if is_first and unit.settings.blame:
                progress("try what could help")
                assert way.failure is not None
                remedies = tried_remedies(unit, way.route.backend, way.failure, facts, supervisor)
                way = replace(way, remedies=remedies)
            ways.append(way)
    return ModelCheck(word=model.word, name=facts.name, ways=tuple(ways), left_out=tuple(left_out), state=facts.state)


def _ways(unit: Unit, supervisor: Supervisor, progress: Progress) -> Iterator[tuple[Way, tuple[str, ...]]]:
    """The ways of one export, each with why some calls of the model could not be run alone."""
    dtype = unit.variant.dtype
    what = f"{unit.route}, {unit.route.shape_mode}" + (f", {dtype}" if dtype else "")
    progress(f"run it: {what}")
    outcomes = [verdict for verdicts in run_unit(unit, supervisor) for verdict in verdicts]
    outcomes.sort(key=lambda verdict: ModelRun.from_text(verdict.model_run).index)
    failing = tuple(b for b in unit.backends if any(o.outcome.is_failure for o in _of(outcomes, b)))
    alone = _CallsAlone()
    if failing and unit.model is not None and not unit.model.is_file:
        progress(f"run its calls alone: {what}")
        alone = _alone(replace(unit, backends=failing), outcomes, supervisor)
    for backend in unit.backends:
        way = Way(
            route=replace(unit.route, backend=backend),
            dtype=dtype,
            outcomes=tuple(_of(outcomes, backend)),
            calls=tuple(alone.failing.get(backend, ())),
            calls_made=alone.number,
            foreign=alone.foreign,
            captures=find_converter(unit.route.converter).captures,
            is_uncaptured=alone.is_uncaptured,
            notes=alone.notes if backend in failing else (),
        )
        yield way, alone.left_out


def _is_resized(run: Invocation, example: Invocation) -> bool:
    """Whether a run of a model has other sizes than the exported example."""
    return [spec.shape for spec in run.tensors()] != [spec.shape for spec in example.tensors()]


@dataclass(frozen=True)
class _CallsAlone:
    """What became of a model's calls by themselves.

    Attributes:
        failing: Backend → verdicts on those that fail.
        number: How many were run.
        notes: What follows from sizes, where none fails.
        left_out: Why some could not be run.
        foreign: Operators of other libraries among them.
        is_uncaptured: Whether `torch.export` fails on the model, so that they are the calls of eager mode.
    """

    failing: Mapping[str, list[Verdict]] = field(default_factory=dict)
    number: int = 0
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    is_uncaptured: bool = False


def _alone(unit: Unit, outcomes: Sequence[Verdict], supervisor: Supervisor) -> _CallsAlone:
    failed = (Invocation.from_json(o.invocation) for o in outcomes if o.outcome.is_failure)
    example = Invocation.from_json(outcomes[0].exported_invocation) if unit.route.dynamic else None
    other_run = next((run for run in failed if example is not None and _is_resized(run, example)), None)
    assert unit.model is not None
    found = model_calls(CallsTask(source=unit.model, other_run=other_run), supervisor)
    if found.capture is None:
        return _CallsAlone(left_out=(found.problem,))
    # What eager mode calls is nothing that an exporter met.
    captured = () if found.capture.eager else found.capture.calls
    failing = _calls_alone([Replayed(call.invocation, None) for call in captured], unit, supervisor)
    pairs = [Replayed(invocation, exported) for invocation, exported in found.resized.pairs]
    for backend, verdicts in _calls_alone(pairs, unit, supervisor, dynamic=True).items():
        failing.setdefault(backend, []).extend(verdicts)
    notes = () if failing else tuple(_computed(found.resized))
    return _CallsAlone(
        failing=failing,
        number=len(captured),
        notes=notes,
        left_out=tuple(found.capture.left_out),
        foreign=found.capture.foreign,
        is_uncaptured=found.capture.eager,
    )


def _of(outcomes: Sequence[Verdict], backend: str) -> Iterator[Verdict]:
    return (outcome for outcome in outcomes if outcome.backend == backend)


def _calls_alone(
    calls: Sequence[Replayed], unit: Unit, supervisor: Supervisor, *, dynamic: bool = False
) -> dict[str, list[Verdict]]:
    """Backend → verdicts on calls that fail alone: of an overload the first of each signature."""
    by_overload: defaultdict[str, list[Replayed]] = defaultdict(list)
    for call in calls:
        by_overload[call.invocation.overload].append(call)
    found: dict[str, dict[tuple[str, str], Verdict]] = {}
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
                    kept = found.setdefault(verdict.backend, {})
                    kept.setdefault((overload, verdict.signature), verdict)
    return {backend: list(verdicts.values()) for backend, verdicts in found.items()}


def _computed(resized: ResizedCalls) -> Iterator[str]:
    for overload, name, example, here in resized.computed[:_MOST_COMPUTED]:
        yield f"{name} of {overload} follows from sizes: {example} in the example, {here} here"


def units_of(
    options: Options,
    facts: ModelFacts,
    axes: tuple[Axis, ...],
    dtypes: Sequence[str],
    shapes: str | None,
    tolerance: Tolerance | None = None,
    inputs: str = "",
) -> list[Unit]:
    """The units of a check.

    Args:
        options: Of one model. Where they name no backend, each converter has one; where they name no converter,
            it is dynamo, or what makes the artefacts that the backends take.
        facts: What is known of the model with these axes.
        axes: Open sizes in addition to the model's own.
        dtypes: To try in addition to the model's own.
        shapes: ``static``, ``dynamic`` or ``both``; None for both where sizes are open.
        tolerance: What is allowed in place of what roundings explain.
        inputs: The file with the inputs of an ONNX file; "" draws them.

    Raises:
        UsageProblem: a name is unknown, or what is asked for cannot run here.
        ModelProblem: the model has no open size and is to be run with some.
    """
    asked = [options]
    if not options.backends:
        usual = FILE if is_onnx_file(options.models[0]) else "dynamo"
        names = options.converters or (usual,)
        asked = [replace(options, converters=(name,), backends=(first_backend(name),)) for name in names]
    planned = [unit for each in asked for unit in make_plan(replace(each, shapes="both")).units]
    if shapes in ("dynamic", "both") and not facts.axes:
        raise ModelProblem(f"{options.models[0]} names no open size: name one with --axis INPUT:DIM=SIZES")
    # An exported program is as open as it was exported, and has no other form.
    every = ("dynamic",) if facts.is_exported else ("static", "dynamic")
    modes = {None: every if facts.axes else ("static",), "both": ("static", "dynamic")}
    chosen = modes.get(shapes, (shapes,))
    return [
        replace(
            unit,
            model=ModelSource(options.models[0], Variant(dtype=dtype, axes=axes), inputs),
            settings=replace(unit.settings, tolerance=tolerance),
        )
        for dtype in ("", *dtypes)
        for unit in planned
        if unit.route.shape_mode in chosen
    ]
