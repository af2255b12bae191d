"""Whether a model survives the trip, and if not, where it breaks and whose fault that is.

1. Load the model. Each way is a converter, static or dynamic shapes, and a dtype; the backends share its export.
2. Run each way: the example, other values, other sizes. The results are judged as whole models are.
3. Of a way that fails, run each distinct call of the model by itself through the same converter and backends: a call
   that fails alone is the cause, and the witnesses of single calls say whose fault it is. Where other sizes fail, each
   call is exported at the example's sizes and run at the others.
4. Where the result is wrong, find the first value that differs.
5. Where no call fails alone, leave out optimisations of the runtime and of the exporter, and find the guilty pass.
6. Call the model twice: what it keeps between calls, a graph forgets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.tensors import build_tensors
from harness.execute.models.model_loading import LoadedModel, ModelProblem, load_model
from harness.execute.models.model_task import Axis, Variant
from harness.execute.supervisor import Supervisor
from harness.generate.sources.recorded import Replayed
from harness.models.capture import ResizedCalls, capture_calls, resized_calls
from harness.models.divergence import Divergence, find_divergence
from harness.models.divergence_task import DivergeTask
from harness.models.optimisers import GuiltyOptimiser, OptimiserTask, guilty_optimiser
from harness.models.state import StateChange, state_change
from harness.plan.model_unit import FoundDivergence, ModelOutcome, ModelUnit, run_model_unit
from harness.plan.options import Options
from harness.plan.plan import first_backend, make_plan
from harness.plan.unit import Unit, run_unit


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of a model to a backend, and what became of it.

    Attributes:
        dtype: "" for the model's own.
        outcomes: Of its runs, the example first.
        calls: Verdicts on calls of the model that fail by themselves, one for each overload and kind of failure.
        optimiser: Without which all is right.
        notes: What else is known, and why something could not be found out.
    """

    converter: str
    backend: str
    shape_mode: str
    dtype: str
    outcomes: tuple[ModelOutcome, ...]
    calls: tuple[Verdict, ...] = ()
    optimiser: GuiltyOptimiser = field(default_factory=GuiltyOptimiser)
    notes: tuple[str, ...] = ()

    @property
    def failure(self) -> ModelOutcome | None:
        """The first run that fails."""
        return next((o for o in self.outcomes if o.verdict.outcome.is_failure), None)

    @property
    def divergence(self) -> Divergence | None:
        """Where the first wrong result begins."""
        found = next((o.divergence for o in self.outcomes if o.divergence is not None), None)
        return found if isinstance(found, Divergence) else None


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """What became of a model.

    Attributes:
        word: As the user named it.
        calls: How many distinct calls it makes, and `left_out` why some of its calls cannot be run alone.
        state: What it changes as it runs.
    """

    word: str
    name: str
    ways: tuple[Way, ...]
    calls: int
    left_out: tuple[str, ...]
    state: StateChange

    @property
    def survives(self) -> bool:
        """Whether every way gives PyTorch's results, and a second call does, too."""
        return not self.state and all(way.failure is None for way in self.ways)


#: Arguments that follow from sizes that are named.
_MOST_COMPUTED = 3
#: Told what is done next, for a person who waits.
Progress = Callable[[str], None]


def check_model(units: Sequence[ModelUnit], supervisor: Supervisor, progress: Progress) -> ModelCheck:
    """Check one model in some ways.

    Args:
        units: At least one, all of one model: each a converter, a kind of shapes and a variant.
        supervisor: Runs everything but the capture of calls.
        progress: Called before each step.

    Raises:
        ModelProblem: the model cannot be had.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    word = units[0].word
    progress("load the model")
    model = load_model(word, replace(units[0].variant, dtype=""))
    progress("call it twice")
    # To capture its calls runs the model, which changes its state.
    state = _state(model)
    ways = [way for unit in units for way in _ways(unit, supervisor, progress)]
    captured = capture_calls(model)
    return ModelCheck(
        word=word,
        name=model.name,
        ways=tuple(ways),
        calls=len(captured.calls),
        left_out=tuple(captured.left_out),
        state=state,
    )


def _ways(unit: ModelUnit, supervisor: Supervisor, progress: Progress) -> Iterator[Way]:
    """The ways of one export."""
    what = f"{unit.converter}, {unit.shape_mode}" + (f", {unit.variant.dtype}" if unit.variant.dtype else "")
    progress(f"run it: {what}")
    outcomes = list(run_model_unit(unit, supervisor, _locate))
    failing = tuple(b for b in unit.backends if any(o.verdict.outcome.is_failure for o in _of(outcomes, b)))
    failed_alone, notes = dict[str, list[Verdict]](), tuple[str, ...]()
    if failing:
        progress(f"run its calls alone: {what}")
        failed_alone, notes = _alone(replace(unit, backends=failing), outcomes, supervisor)
    for backend in unit.backends:
        way = Way(
            converter=unit.converter,
            backend=backend,
            shape_mode=unit.shape_mode,
            dtype=unit.variant.dtype,
            outcomes=tuple(_of(outcomes, backend)),
            calls=tuple(failed_alone.get(backend, ())),
            notes=notes if backend in failing else (),
        )
        if _is_of_the_whole(way):
            progress(f"leave out optimisations: {what}, {backend}")
            way = _with_optimiser(way, unit, supervisor)
        yield way


def _alone(
    unit: ModelUnit, outcomes: Sequence[ModelOutcome], supervisor: Supervisor
) -> tuple[dict[str, list[Verdict]], tuple[str, ...]]:
    """Backend → verdicts on calls of the model that fail alone; and what follows from sizes, where none does."""
    model = load_model(unit.word, unit.variant)
    captured = capture_calls(model)
    # What eager mode calls is nothing that an exporter met.
    calls = [] if captured.eager else [Replayed(call.invocation, None) for call in captured.calls]
    found = _calls_alone(calls, unit, supervisor)
    if unit.shape_mode != "dynamic":
        return found, ()
    resized = _resized(model, outcomes)
    pairs = [Replayed(invocation, exported) for invocation, exported in resized.pairs]
    for backend, verdicts in _calls_alone(pairs, unit, supervisor, "dynamic").items():
        found.setdefault(backend, []).extend(verdicts)
    return found, () if found else tuple(_computed(resized))


def _of(outcomes: Sequence[ModelOutcome], backend: str) -> Iterator[ModelOutcome]:
    return (outcome for outcome in outcomes if outcome.verdict.backend == backend)


def _locate(unit: ModelUnit, backend: str, case: int, supervisor: Supervisor) -> FoundDivergence:
    task = DivergeTask(
        word=unit.word,
        converter=unit.converter,
        backend=backend,
        settings=unit.settings,
        case=case,
        variant=unit.variant,
    )
    return find_divergence(task, supervisor)


def _state(model: LoadedModel) -> StateChange:
    try:
        return state_change(model)
    except Exception:
        # That it does not run is said as the outcome of each way.
        return StateChange()


def _calls_alone(
    calls: Sequence[Replayed], unit: ModelUnit, supervisor: Supervisor, shape_mode: str = "static"
) -> dict[str, list[Verdict]]:
    """Backend → verdicts on calls that fail alone: of an overload the first of each signature."""
    by_overload: defaultdict[str, list[Replayed]] = defaultdict(list)
    for call in calls:
        by_overload[call.invocation.overload].append(call)
    found: dict[str, dict[tuple[str, str], Verdict]] = {}
    for overload, replayed in by_overload.items():
        alone = Unit(
            overload=overload,
            converter=unit.converter,
            backends=unit.backends,
            shape_mode=shape_mode,
            replay=tuple(replayed),
            settings=replace(unit.settings, dynamic=shape_mode == "dynamic"),
        )
        for verdicts in run_unit(alone, supervisor):
            for verdict in verdicts:
                if verdict.outcome.is_failure:
                    kept = found.setdefault(verdict.backend, {})
                    kept.setdefault((overload, verdict.signature), verdict)
    return {backend: list(verdicts.values()) for backend, verdicts in found.items()}


def _resized(model: LoadedModel, outcomes: Sequence[ModelOutcome]) -> ResizedCalls:
    """The calls that the first failing run at other sizes makes, beside those of the example."""
    failing = (o for o in outcomes if o.verdict.outcome.is_failure and o.case.resized)
    first = next(failing, None)
    return ResizedCalls() if first is None else resized_calls(model, tuple(build_tensors(first.case.invocation)))


def _computed(resized: ResizedCalls) -> Iterator[str]:
    for overload, name, example, here in resized.computed[:_MOST_COMPUTED]:
        yield f"{name} of {overload} follows from sizes: {example} in the example, {here} here"


def _is_of_the_whole(way: Way) -> bool:
    """Whether a way fails behind the export, and no call of the model explains that."""
    failure = way.failure
    if failure is None or failure.verdict.stage in (Stage.REFERENCE, Stage.CONVERT):
        return False
    if failure.verdict.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        return False
    divergence = way.divergence
    departs_alone = divergence is not None and any(alone.outcome == "mismatch" for alone in divergence.alone)
    return not departs_alone and not any(call.stage is failure.verdict.stage for call in way.calls)


def _with_optimiser(way: Way, unit: ModelUnit, supervisor: Supervisor) -> Way:
    assert way.failure is not None
    task = OptimiserTask(
        word=unit.word,
        converter=unit.converter,
        backend=way.backend,
        settings=unit.settings,
        case=way.outcomes.index(way.failure),
        variant=unit.variant,
    )
    try:
        return replace(way, optimiser=guilty_optimiser(task, supervisor))
    except ModelProblem as problem:
        return replace(way, notes=(*way.notes, str(problem)))


@dataclass(frozen=True)
class ModelRun:
    """One run of a model, for a command that runs it and nothing more.

    Attributes:
        case_id: Of its inputs; "" for a file.
        call: What it was run with, for people.
        invocation: The inputs as JSON; "" for a file.
        verdict: Some fields of a verdict, ``signature`` among them.
    """

    case_id: str
    call: str
    invocation: str
    verdict: Mapping[str, Any]


def runs_of_model(options: Options, timeout: float) -> list[ModelRun]:
    """Run a model with its example inputs, other values and, where sizes are open, other sizes.

    Args:
        options: Of one model.
        timeout: Seconds of a step.

    Raises: see `units_of`.
    """
    found = []
    with Supervisor(timeout=timeout, memory_limit=MEMORY) as supervisor:
        for unit in units_of(options, (), (), None):
            for outcome in run_model_unit(replace(unit, settings=replace(unit.settings, blame=False)), supervisor):
                verdict = outcome.verdict
                fields = {name: getattr(verdict, name) for name in _OF_VERDICT}
                call = outcome.case.change or "the example inputs"
                found.append(ModelRun(verdict.case_id, call, verdict.invocation, fields))
    return found


#: Bytes of a worker that runs a model.
MEMORY = 8 * 2**30
_OF_VERDICT = ("converter", "backend", "shape_mode", "stage", "outcome", "signature", "message")


def units_of(options: Options, axes: tuple[Axis, ...], dtypes: Sequence[str], shapes: str | None) -> list[ModelUnit]:
    """The units of a check.

    Args:
        options: Of one model. Where they name no backend, each converter has one; where they name no converter,
            it is dynamo, or what makes the artefacts that the backends take.
        axes: Open sizes in addition to the model's own.
        dtypes: To try in addition to the model's own.
        shapes: ``static``, ``dynamic`` or ``both``; None for both where sizes are open.

    Raises:
        UsageProblem: a name is unknown, or what is asked for cannot run here.
        ModelProblem: the model cannot be had, or has no open size and is to be run with some.
    """
    asked = [options]
    if not options.backends:
        names = options.converters or ("dynamo",)
        asked = [replace(options, converters=(name,), backends=(first_backend(name),)) for name in names]
    planned = [unit for each in asked for unit in make_plan(replace(each, shapes="both")).models]
    has_axes = bool(load_model(options.models[0], Variant(axes=axes)).axes)
    if shapes in ("dynamic", "both") and not has_axes:
        raise ModelProblem(f"{options.models[0]} names no open size: name one with --axis INPUT:DIM=SIZES")
    modes = {None: ("static", "dynamic") if has_axes else ("static",), "both": ("static", "dynamic")}
    chosen = modes.get(shapes, (shapes,))
    return [
        replace(unit, variant=Variant(dtype=dtype, axes=axes))
        for dtype in ("", *dtypes)
        for unit in planned
        if unit.shape_mode in chosen
    ]
