"""A unit of work, run to verdicts: an operator or a model, a converter and its backends; the content of a pytest item.

Units and their results, lists of verdicts, are plain values. A pytest-xdist worker, a CI shard and a notebook run them
in the same way:

    with Supervisor() as supervisor:
        for verdict in run_unit(unit, supervisor):
            ...
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from harness.blame.request import request_blame
from harness.blame.unexamined import not_examined
from harness.compare.case_problems import problems_text
from harness.compare.diagnosis import Diagnosis
from harness.compare.verdict import UNKNOWN, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.case_group import CaseGroup, MemberKey
from harness.core.invocation import GRAPH, PROGRAM, Invocation
from harness.core.route import Route
from harness.generate.call_traits import call_traits
from harness.generate.case_library import find_case
from harness.generate.recorded_use import is_used
from harness.generate.sources.generated import Generated
from harness.generate.sources.onnx_graphs import OnnxGraphs
from harness.generate.sources.programs import Programs
from harness.generate.sources.recorded import FromRecord
from harness.generate.sources.redrawn import Redrawn
from harness.generate.sources.source import Notice, Request, Source, SourceFinding
from harness.pipeline.case_run import CaseRun
from harness.pipeline.model_listing import list_runs
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import AS_MADE, ModelInputs, ModelSource, Variant
from harness.pipeline.supervisor import Death, Supervisor, blame_for_death
from harness.pipeline.task import Settings, Task
from harness.plan.firing_graphs import FiringGraphs
from harness.plan.firing_programs import FiringPrograms
from harness.plan.second_draw import DrawnStructures

#: Columns that are fields of a case run, and those of its comparison.
_RESULT_COLUMNS = (
    *("stage", "outcome", "signature", "blame", "message", "rule", "opset", "onnx_operators"),
    *("exporter_passes", "backend_passes"),
    *("convert_ms", "load_ms", "run_ms"),
)
_COMPARISON_COLUMNS = (
    *("max_abs_error", "max_rel_error", "max_ulp_error", "needed_rtol", "needed_atol"),
    *("mismatched_elements", "total_elements"),
)


def verdict_of(
    result: CaseRun,
    invocation: Invocation,
    exported: Invocation,
    supervisor: Supervisor,
    *,
    route: Route,
    source: str,
    family: str,
    converter_version: str,
) -> Verdict:
    """Return the verdict on one case with one backend, whose version and device the supervisor knows.

    `family` is the operator case's; "" if there is none.
    """
    backend = supervisor.backends.get(result.backend)
    comparison, traits, used = result.comparison, call_traits(invocation), is_used(invocation)
    return Verdict(
        case_id=invocation.case_id,
        overload=invocation.overload,
        family=family,
        dtype=invocation.dtype,
        shape_mode=route.shape_mode,
        source=source,
        converter=route.export,
        converter_version=converter_version,
        backend=result.backend,
        backend_version=backend.version if backend else "",
        device=backend.device if backend else "",
        **{name: getattr(result, name) for name in _RESULT_COLUMNS},
        **{name: getattr(comparison, name) for name in _COMPARISON_COLUMNS if comparison is not None},
        placement=result.placement.text if result.placement else "",
        excused=comparison.excuses if comparison else "",
        problems=problems_text([_problem(run) for run in (result, *result.further)]),
        **_columns(result.diagnosis),
        ordinary=traits.ordinary or used,
        ordinary_by=" ".join(name for name, holds in (("rule", traits.ordinary), ("use", used)) if holds),
        elements=traits.elements,
        conditions=traits.text,
        model_run=result.model_run.text,
        structure_id=invocation.structure_id,
        exported_id=exported.case_id,
        invocation=invocation.json,
        exported_invocation=exported.json if route.dynamic else "",
    )


def _problem(result: CaseRun) -> dict[str, str]:
    columns = {name: str(getattr(result, name)) for name in ("stage", "outcome", "signature", "message", "blame")}
    return {**columns, **_columns(result.diagnosis)}


def _columns(diagnosis: Diagnosis | None) -> dict[str, Any]:
    """Return the columns that describe a diagnosis."""
    if diagnosis is None:
        return {}
    return {
        "blame_rule": diagnosis.rule,
        "component": diagnosis.component,
        "place": diagnosis.place,
        "fault": diagnosis.fault,
        "detail": diagnosis.detail.text,
        "diagnosis": diagnosis.json,
    }


@dataclass(frozen=True, kw_only=True)
class Unit:
    """An operator or a model to run, and the routes to run it on.

    Attributes:
        overload: The operator.
        route: The route without a backend.
        backends: The names of the backends; a single one for an ONNX file, whose reference depends on the runtime.
        seed: The seed of the draws.
        examples: Cases to draw, for each source that draws.
        values: Value draws per exported structure (static), including the first; None means the usual number.
        dtypes: The dtypes; None means all of the operator's.
        sources: The sources of invocations, in the order in which these are run.
        settings: The settings of its tasks.
        model: The model whose runs are the cases; None for an operator.
    """

    overload: str
    route: Route
    backends: tuple[str, ...]
    seed: int = 0
    examples: int = 256
    values: int | None = None
    dtypes: tuple[str, ...] | None = None
    sources: tuple[Source, ...] = (Generated(),)
    settings: Settings = field(default_factory=Settings)
    model: ModelSource | None = None

    @classmethod
    def for_model(cls, source: ModelSource, route: Route, backends: tuple[str, ...], settings: Settings) -> Unit:
        """Return the unit of a whole model."""
        return cls(overload=source.overload, route=route, backends=backends, settings=settings, model=source)

    @property
    def draws(self) -> bool:
        """Whether its cases are drawn, as those of an operator are; the runs of a model are listed."""
        return self.model is None

    @property
    def whole_model(self) -> ModelSource:
        """The model of a unit that runs one; raises `TypeError` for an operator."""
        if self.model is None:
            raise TypeError(f"{self.name} is of an operator")
        return self.model

    @property
    def variant(self) -> Variant:
        """The requested variant of the unit's model."""
        return AS_MADE if self.draws else self.whole_model.variant

    @property
    def word(self) -> str:
        """Distinguishes the units of one operator: ``dynamo``, ``dynamo-dynamic``; ``file-ort-cpu``."""
        if self.overload.startswith(GRAPH) or (not self.draws and self.whole_model.is_graph):
            return f"{self.route.export}-{self.backends[0]}"
        return f"{self.route.export}-{self.route.shape_mode}" if self.route.dynamic else self.route.export

    @property
    def name(self) -> str:
        """Distinguishes the units of a run: ``aten.celu.default dynamo``."""
        return f"{self.overload} {self.word}"


#: The record's source of the runs of a model.
MODEL_SOURCE = "model"
#: Receives provisional verdicts: failures whose blame is still open.
Hold: TypeAlias = Callable[[list[Verdict]], None]


def run_unit(
    unit: Unit,
    supervisor: Supervisor,
    notice: Callable[[Notice], None] = lambda notice: None,
    hold: Hold = lambda verdicts: None,
) -> Iterator[list[Verdict]]:
    """Collect and run the cases of `unit`.

    Args:
        unit: The unit.
        supervisor: Runs its tasks.
        notice: Receives the sources' messages for people.
        hold: Receives each failure as soon as it is known. Its final verdict, with the blame, is yielded later; a
            caller that records the held ones loses nothing if the process ends before that.

    Yields:
        Final verdicts: passes immediately, failures at the end of their source, once they are blamed. There is one per
        case and backend. If blaming fails, the failures are yielded as not examined, and the exception is raised
        afterwards.

    Raises:
        harness.pipeline.supervisor.WorkerFailed: No worker process can be started.
        LookupError: A converter or backend is unknown.
        harness.record.layout.ResultsError: A source's file cannot be read.
    """
    if not unit.draws:
        yield from _run_model(unit, unit.whole_model, supervisor, hold)
        return
    redraws = not unit.route.dynamic and any(source.name == Redrawn.name for source in unit.sources)
    drawn = _drawn_before(unit.overload)
    parts = find_groups(unit, supervisor, notice)
    # One source at a time, so that earlier failures are finished before the rest begins.
    for name, groups in parts:
        for verdicts in run_part(unit, supervisor, name, groups, hold=hold):
            if redraws and name in (Generated.name, Programs.name, OnnxGraphs.name):
                drawn.add(verdicts)
            yield verdicts
    if not redraws:
        return
    start = sum(len(groups) for _, groups in parts)
    again = drawn.draw(unit.seed, unit.overload, unit.examples)
    redrawn = tuple(replace(group, index=index) for index, group in enumerate(again, start))
    if redrawn:
        yield from run_part(unit, supervisor, Redrawn.name, redrawn, hold=hold)


def _drawn_before(overload: str) -> FiringPrograms | FiringGraphs | DrawnStructures:
    """Return what is remembered of the drawn cases of a unit, to draw others."""
    if overload.startswith(PROGRAM):
        return FiringPrograms()
    return FiringGraphs() if overload.startswith(GRAPH) else DrawnStructures.none()


def _run_model(unit: Unit, model: ModelSource, supervisor: Supervisor, hold: Hold) -> Iterator[list[Verdict]]:
    """Execute the runs of a model, which are known once a worker has loaded it."""
    stage = Stage.RUN if model.is_graph else Stage.REFERENCE
    try:
        listed = list_runs(model, supervisor, dynamic=unit.route.dynamic, backend=unit.backends[0])
    except ModelProblem as problem:
        ending = {"outcome": Outcome.ERROR, "blame": UNKNOWN, "message": str(problem)}
    else:
        if not isinstance(listed, Death):
            groups = (CaseGroup.of(listed[0].invocation, [inputs.invocation for inputs in listed]),)
            yield from run_part(unit, supervisor, MODEL_SOURCE, groups, hold=hold, inputs=listed)
            return
        ending = {"outcome": listed.outcome, "blame": blame_for_death(listed, stage), "message": listed.message}
    nothing = Invocation(unit.overload, ())
    version = find_converter(unit.route.converter).version()
    yield [
        verdict_of(
            CaseRun(case=(0, 0), backend=backend, stage=stage, **ending),  # type: ignore[arg-type]
            nothing,
            nothing,
            supervisor,
            route=unit.route,
            source=MODEL_SOURCE,
            family=MODEL_SOURCE,
            converter_version=version,
        )
        for backend in unit.backends
    ]


def _family(unit: Unit) -> str:
    """Return the family that the record lists the unit under."""
    if not unit.draws:
        return MODEL_SOURCE
    operator = find_case(unit.overload)
    composed = {PROGRAM: "programs", GRAPH: "graphs"}
    return operator.family if operator else composed.get(unit.overload.partition(".")[0] + ".", "")


def run_part(
    unit: Unit,
    supervisor: Supervisor,
    source: str,
    groups: tuple[CaseGroup, ...],
    hold: Hold = lambda verdicts: None,
    inputs: Sequence[ModelInputs] = (),
) -> Iterator[list[Verdict]]:
    """Run the cases of one source of a unit; yields as `run_unit` does.

    Args:
        unit: The unit.
        supervisor: Runs its tasks.
        source: The name of the source.
        groups: The cases.
        hold: See `run_unit`.
        inputs: The runs of a model, in order.
    """
    converter_version = find_converter(unit.route.converter).version()
    invocations = {(g.index, case): (g, invocation) for g in groups for case, invocation in g.cases}

    def verdict(result: CaseRun) -> Verdict:
        group, invocation = invocations[result.case]
        if inputs:
            index = result.case[1]
            facts = {"change": inputs[index].change, "fixed": inputs[index].fixed}
            result = replace(result, model_run=replace(result.model_run, index=index, **facts))  # type: ignore[arg-type]
        return verdict_of(
            result,
            invocation,
            group.exported,
            supervisor,
            source=source,
            family=_family(unit),
            route=unit.route,
            converter_version=converter_version,
        )

    def unexamined(result: CaseRun) -> CaseRun:
        return not_examined(result, invocations[result.case][1], unit.route)

    task = Task(groups, unit.route, unit.backends, unit.settings, model=unit.model)
    #: The last result of each failing case and backend, which has the most detail.
    held: dict[tuple[MemberKey, str], CaseRun] = {}
    for results in supervisor.run(task):
        failed = [r for r in results if r.outcome.is_failure] if unit.settings.blame else []
        held |= {(r.case, r.backend): r for r in failed}
        if failed:
            hold([verdict(unexamined(r)) for r in failed])
        if len(failed) < len(results):
            yield [verdict(r) for r in results if not r.outcome.is_failure or not unit.settings.blame]
    if not held:
        return
    try:
        blamed = request_blame(list(held.values()), task, supervisor)
    except Exception:
        yield [verdict(unexamined(r)) for r in held.values()]
        raise
    yield [verdict(r) for r in blamed]


@lru_cache(maxsize=8)
def _find(source: Source, request: Request) -> SourceFinding:
    """Return the cases of a source, cached for the operator's next unit at another opset or with another converter."""
    return source.find(request)


def find_groups(
    unit: Unit, supervisor: Supervisor, notice: Callable[[Notice], None]
) -> list[tuple[str, tuple[CaseGroup, ...]]]:
    """Return the distinct cases of a unit by the names of the sources that have any."""
    request = Request(
        overload=unit.overload,
        dynamic=unit.route.dynamic,
        seed=unit.seed,
        examples=unit.examples,
        values=unit.values,
        dtypes=unit.dtypes,
        resize=supervisor.resize,
    )
    parts: list[tuple[str, tuple[CaseGroup, ...]]] = []
    seen: set[tuple[str, str]] = set()
    index = itertools.count()
    for source in unit.sources:
        # Replayed cases are not requested again, so they need no cache.
        finding = source.find(request) if isinstance(source, FromRecord) else _find(source, request)  # type: ignore[arg-type]
        for message in finding.notices:
            notice(message)
        groups: list[CaseGroup] = []
        for group in finding.groups:
            exported = group.exported.case_id if request.dynamic else ""
            new = [i for i in group.invocations if (i.case_id, exported) not in seen]
            seen.update((i.case_id, exported) for i in new)
            if new:
                groups.append(replace(group, cases=tuple(enumerate(new)), index=next(index)))
        if groups:
            parts.append((source.name, tuple(groups)))
    return parts
