"""Run the cases of a task in batches, in the worker process.

A batch makes one artefact for many cases, checks, loads and runs it as a whole, and hands each case to the `finish` of
`harness.pipeline.run_case`. If a stage fails, the batch is split until the guilty cases are alone, and the others
continue. Each problem with the outputs of a case is reported as a failure of its own, which witnesses can examine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import onnx

from harness.compare.output_comparison import OutputComparison, OutputProblem
from harness.compare.verdict import SPEC, UNKNOWN, Outcome, Stage
from harness.convert.change import Change
from harness.convert.converter import HasExporterPasses, find_converter
from harness.core.case_group import CaseGroup, MemberKey
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.onnx_arrays import build_array
from harness.core.placement import OnCpu, Placement
from harness.core.program import Program, disjoint_outputs, is_graph, is_program
from harness.core.route import GRAPH
from harness.core.text import describe_error
from harness.pipeline.batch_export import BatchExport, Converted, Member, NotConverted, halves, keys_of
from harness.pipeline.case import Case, CaseOracle, Structure
from harness.pipeline.case_run import CaseRun
from harness.pipeline.definition import raising_part
from harness.pipeline.double_check import DoubleCheck
from harness.pipeline.leeway import TransformedOutputs
from harness.pipeline.placement import placements
from harness.pipeline.run_accuracy import measure_accuracy
from harness.pipeline.run_case import finish, narrowed_run
from harness.pipeline.run_graph import run_graph
from harness.pipeline.stages import (
    StageFailure,
    emitted_opset,
    is_rejected_harmlessly,
    load_stage,
    run_stage,
)
from harness.pipeline.started_route import StartedRoute
from harness.pipeline.submodel import owners
from harness.pipeline.task import Step, Task
from harness.pipeline.worker import WorkerProcess
from harness.run.artefact import CALLABLE, AnyModel, Artefact, as_onnx, output_names
from harness.run.backend import (
    BackendFailure,
    BackendSession,
    HasPassLog,
    InvalidModel,
    ShapeRange,
    UnsupportedModel,
)


def wrong_results(
    result: CaseRun,
    comparison: OutputComparison,
    expected: Sequence[Array],
    got: Sequence[Array],
) -> tuple[CaseRun, ...]:
    """Return a result for each problem that a comparison found, the first one first.

    Args:
        result: The case, its route and its times.
        comparison: Comparison of `got` with `expected`.
        expected: PyTorch's outputs.
        got: The backend's outputs.
    """
    forms = {
        i: e.dtype
        for i, (e, g) in enumerate(zip(expected, got, strict=False))
        if e.dtype != g.dtype and "c" not in (e.dtype.kind, g.dtype.kind)
    }
    first, *others = comparison.problems
    found = [_failure(result, first)]
    for problem in others:
        casts = {} if problem.kind in ("dtype", "shape") else forms
        found.append(replace(_failure(result, problem), wrong_outputs=problem.outputs, casts=casts))
    return tuple(found)


def _failure(result: CaseRun, problem: OutputProblem) -> CaseRun:
    return replace(
        result,
        stage=Stage.COMPARE,
        outcome=Outcome.MISMATCH,
        blame=SPEC if problem.unsettled else UNKNOWN,
        message=problem.message,
        comparison=OutputComparison(problems=(problem,)),
    )


_NODES_NAMED = (UnsupportedModel, InvalidModel, BackendFailure)


def run_batch(task: Task, worker: WorkerProcess) -> None:
    """Run the task's cases in a worker, and send one `CaseRun` per case and backend: those of `run_case`."""
    BatchRunner(task, worker).execute()


#: Nodes of a model that takes long to load.
_LARGE = 500
#: Longest forward pass, in seconds, after which the errors of a passing result are measured.
_QUICK = 0.5
#: Of so many drawn graphs one has its passes recorded.
_GRAPHS_PER_NOTE = 16


@dataclass
class _PartOfBatch:
    """The part of a batch that belongs to one case: a session that has run once already.

    Attributes:
        session: The loaded batch.
        outputs: All outputs of its first run.
        places: The places of the case's outputs among them.
    """

    session: BackendSession
    outputs: Sequence[Array]
    places: Sequence[int]
    runs: int = 0
    runnable: bool = True

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the case's outputs; from the second time on the whole batch is run again."""
        self.runs += 1
        outputs = self.outputs if self.runs == 1 else self.session.run(feeds)
        return [outputs[place] for place in self.places]


class BatchRunner:
    """Runs a task with its converter and backends, and announces each `Step` before it is taken."""

    def __init__(self, task: Task, worker: WorkerProcess) -> None:
        self._task = task
        self._worker = worker
        self._settings = task.settings
        self._route = task.route
        worker.kept.begin(task.serial)
        self._step = Step(Stage.REFERENCE, None, ())
        self._is_whole_model = False
        # A backend that does not start is no case's fault.
        self._backends = {name: worker.start(name) for name in task.backends}
        # The model comes first: a rule may be for an operator that its file defines.
        self._structures = [self._make_structure(group) for group in task.groups]
        self._is_whole_model = any(structure.is_whole_model for structure in self._structures)
        converter, book = worker.converter(task.route)
        changes: list[Change] = []
        self._notes_passes = not self._is_whole_model and any(map(_is_noted, task.groups))
        if self._notes_passes and isinstance(converter, HasExporterPasses):
            converter = converter.stopped_after(None, changes)
        exports = BatchExport(task.route, converter, book, self._begin, task.settings.batch_size, changes)
        self._exports = exports if self._is_whole_model else DoubleCheck(exports)
        #: Seconds that the oracles of a group take for each case, at most.
        self._reference_seconds = 0.0
        #: (backend, group index) → cases that are wrong within a batch and not yet run alone.
        self._doubted: dict[tuple[str, int], list[int]] = {}
        #: (backend, group index) → what of the loaded model ran on the CPU instead.
        self._placed: dict[tuple[str, int], Placement | None] = {}
        #: (backend, group index) → the backend's optimisations that changed the program's graph.
        self._passes: dict[tuple[str, int], str] = {}

    def execute(self) -> None:
        """Run the whole task; every case gets one `CaseRun` per backend unless the process dies."""
        # A plug-in may change PyTorch when it is imported, so it is imported before any reference is computed.
        find_converter(self._route.converter)
        members = map(self._ask_oracles, self._task.groups, self._structures)
        accepted = [member for member in members if member.oracles]
        for found in self._exports.export(accepted):
            for name in self._backends:
                if isinstance(found, NotConverted):
                    self._not_converted(name, found)
                else:
                    self._one_backend(name, found)

    def _make_structure(self, group: CaseGroup) -> Structure:
        """Return the structure of a group: ONNX's inference may not survive a graph that is drawn."""
        if self._task.model is None and self._task.route.converter == GRAPH:
            self._begin(Step(Stage.REFERENCE, None, tuple((group.index, case) for case, _ in group.cases)))
        task = self._task
        return self._worker.structure(
            group, task.model, task.route, task.backends[0], task.settings.tolerance, self._say_alive
        )

    def _begin(self, step: Step) -> None:
        """Announce the next step.

        The time limit after a hang depends on the step, and a step of a model may take long: such steps are sent as
        messages.
        """
        self._step = step
        self._worker.begin(step, send=bool(self._task.shortened_timeouts) or self._is_whole_model)

    def _send(self, results: list[CaseRun]) -> None:
        self._worker.send(results)

    def _say_alive(self) -> None:
        self._worker.begin(self._step, send=True)

    # Stages

    def _ask_oracles(self, group: CaseGroup, structure: Structure) -> Member:
        """Return a group with the answers of its oracles, and report the cases that these reject."""
        member = self._answered(group, structure)
        for case, account in member.rejected.items():
            for name in self._backends:
                is_forbidden = case in member.forbidden
                stage = self._try_forbidden(name, member, case) if is_forbidden else Stage.REFERENCE
                self._report(((group.index, case),), name, stage, Outcome.SKIP, message=account)
        return member

    def _try_forbidden(self, name: str, member: Member, case: int) -> Stage:
        """Return the stage at which a runtime refuses a graph that is forbidden; `COMPARE` if it computes something.

        What matters is that the process survives it.
        """
        structure = member.structure
        self._begin(Step(Stage.RUN, name, ((member.group.index, case),), is_forbidden=True))
        arrays = tuple(map(build_array, dict(member.group.cases)[case].tensors()))
        graph = structure.export(self._started(name))
        if isinstance(graph, StageFailure):
            return graph.stage
        ended = run_graph(self._backends[name], graph, structure.feeds(graph, arrays))
        return Stage.COMPARE if ended.failure is None else ended.failure.stage

    def _answered(self, group: CaseGroup, structure: Structure) -> Member:
        """Return PyTorch's answer to a group; for a requested opset the answer may come from another opset's run."""
        # A plug-in's converter may change PyTorch.
        key = self._route.converter, group.index, group.exported.case_id, tuple((i, c.case_id) for i, c in group.cases)
        keeps = self._route.opset is not None and not self._is_whole_model
        kept = self._worker.answered.get(key) if keeps else None
        if kept is not None:
            return kept
        # The runtime itself gives a file's reference, without optimisations, and may die of it.
        stage = Stage.REFERENCE if structure.answering_backend is None else Stage.RUN
        started = time.perf_counter()
        member = Member.of(structure, group, lambda k: self._begin(Step(stage, structure.answering_backend, (k,))))
        self._reference_seconds = max(self._reference_seconds, (time.perf_counter() - started) / len(group.cases))
        if keeps:
            self._worker.answered.keep(key, member, len(group.cases))
        return member

    def _not_converted(self, name: str, found: NotConverted) -> None:
        failure = found.failure
        more = {"blame": failure.blame, "message": describe_error(failure.error)}
        if failure.transform:
            more |= {"transform": failure.transform, "storage": failure.storage}
        if found.rule:
            more["rule"] = found.rule
        elif failure.stage is Stage.CONVERT and failure.outcome is Outcome.ERROR:
            # All members fail in the same way.
            more["raised_by"] = self._raised_by(found.members[0].group.exported, failure)
        keys = keys_of(found.members)
        known_results = [
            self._result(key, name, failure.stage, failure.outcome, found.converted, **more) for key in keys
        ]
        if is_rejected_harmlessly(failure) and found.converted is not None and len(found.members) == 1:
            known_results = [self._run_rejected(name, found.converted, result) for result in known_results]
        self._send(known_results)

    def _run_rejected(self, name: str, converted: Converted, result: CaseRun) -> CaseRun:
        """Return the result of a model that the checker rejects, with further problems if the backend takes it."""
        (member,) = converted.members
        self._begin(Step(Stage.RUN, name, (result.case,), (result,)))
        case = self._case(member, result.case[1])
        run = finish(case, self._started(name), converted.model)
        further: list[CaseRun] = []
        for wrong in run.further:
            assert wrong.comparison is not None
            kept = replace(result, graph_kind=self._kept_kind(converted, member))
            further += wrong_results(kept, wrong.comparison, case.oracle.expected, wrong.outputs or ())
        return replace(result, further=tuple(further))

    def _one_backend(self, name: str, converted: Converted) -> None:
        rest = []
        for member in converted.members:
            narrowed = narrowed_run(self._backends[name], member.arrays)
            if narrowed is not None:
                ended = narrowed.stage, narrowed.outcome
                self._report(member.keys, name, *ended, converted, message=narrowed.message)
            else:
                rest.append(member)
        pending = {m.group.index: list(m.oracles) for m in rest}
        if rest and converted.graph is None:
            # Leaving the others out would take another conversion.
            self._load(name, converted, pending)
        elif rest:
            self._load_part(name, converted, rest, pending)

    def _load_part(
        self, name: str, converted: Converted, members: Sequence[Member], pending: Mapping[int, list[int]]
    ) -> None:
        """Load and run some groups of a model by themselves."""
        self._load_parts(name, self._exports.again(converted, members), pending)

    def _load_parts(
        self, name: str, parts: Iterable[Converted | NotConverted], pending: Mapping[int, list[int]]
    ) -> None:
        for part in parts:
            if isinstance(part, NotConverted):
                left = (m.left(pending[m.group.index]) for m in part.members)
                self._not_converted(name, replace(part, members=tuple(left)))
            else:
                self._load(name, part, {m.group.index: pending[m.group.index] for m in part.members})

    def _load(self, name: str, converted: Converted, pending: Mapping[int, list[int]]) -> None:
        """Load the model and run every pending case; if loading fails, split and start again."""
        keys = tuple((g, case) for g, cases in pending.items() for case in cases)
        self._begin(Step(Stage.LOAD, name, keys))
        ranges = self._ranges(converted) if self._route.dynamic else None
        started = time.perf_counter()
        session = load_stage(self._backends[name], converted.model, ranges)
        if isinstance(session, StageFailure):
            self._split_or_fail(name, converted, pending, session)
            return
        load_ms = 1e3 * (time.perf_counter() - started) / len(keys)
        if session.runnable:
            found = placements(self._backends[name], session, converted, ranges)
            self._placed.update({(name, group): placement for group, placement in found.items()})
            if self._notes_passes:
                self._note_passes(name, converted)
            self._run(name, converted, pending, session, load_ms)
        else:
            self._report(keys, name, Stage.LOAD, Outcome.BUILT, converted, load_ms=load_ms)

    def _note_passes(self, name: str, converted: Converted) -> None:
        backend = self._backends[name]
        if not isinstance(backend, HasPassLog) or converted.graph is None:
            return
        for member in converted.members:
            key = name, member.group.index
            if key not in self._passes and _is_noted(member.group):
                self._passes[key] = ", ".join(backend.applied_passes(onnx.load_from_string(converted.alone(member))))

    def _run(
        self,
        name: str,
        converted: Converted,
        pending: Mapping[int, list[int]],
        session: BackendSession,
        load_ms: float,
    ) -> None:
        left = {g: list(cases) for g, cases in pending.items()}
        while any(left.values()):
            now = {g: cases[0] for g, cases in left.items() if cases}
            feeds: dict[str, Array] = {}
            for member in converted.members:
                # Every input is always required: a group whose cases are done repeats one of them.
                case = now.get(member.group.index, next(iter(member.oracles)))
                feeds.update(member.structure.feeds(converted.model, member.oracles[case].feeds))
            self._begin(Step(Stage.RUN, name, tuple(now.items())))
            started = time.perf_counter()
            outputs = run_stage(session, feeds)
            if isinstance(outputs, StageFailure):
                self._confirm_alone(name, converted)
                self._split_or_fail(name, converted, left, outputs, case_only=now)
                return
            run_ms = 1e3 * (time.perf_counter() - started) / len(now)
            whole = partial(_PartOfBatch, session, outputs)
            self._compare(name, converted, now, feeds, whole, {"load_ms": load_ms, "run_ms": run_ms})
            for cases in left.values():
                del cases[:1]
        self._confirm_alone(name, converted)

    def _confirm_alone(self, name: str, converted: Converted) -> None:
        """Convert and run the wrong cases of an artefact that was made in one piece by themselves: errors that only the
        batch has do not concern users."""
        for member in converted.members:
            cases = self._doubted.pop((name, member.group.index), [])
            if cases:
                self._load_parts(name, self._exports.alone(member), {member.group.index: cases})

    def _compare(
        self,
        name: str,
        converted: Converted,
        now: Mapping[int, int],
        feeds: Mapping[str, Array],
        part: Callable[[Sequence[int]], BackendSession],
        times: Mapping[str, float],
    ) -> None:
        """Hand each case to `finish`; `part` returns the session of the case whose outputs have such places."""
        place_of = {output: i for i, output in enumerate(output_names(converted.model))}
        self._begin(Step(Stage.COMPARE, name, tuple(now.items())))
        results = []
        for member in converted.members:
            index = member.group.index
            if index not in now:
                continue
            result_of = partial(self._compared, name, converted, member, now[index], times)
            # A case that shares its artefact is converted and run by itself first.
            asks_calls = (lambda wrong: False) if converted.is_shared else partial(self._begin_calls, result_of)
            case = replace(self._case(member, now[index]), asks_calls=asks_calls)
            places = [place_of[output] for output in member.structure.outputs_in(converted.model)]
            run = finish(case, self._started(name), converted.model, part(places), feeds)
            if run.outcome is Outcome.MISMATCH and converted.is_shared:
                self._doubted.setdefault((name, index), []).append(now[index])
                continue
            result = result_of(run)
            if self._is_whole_model:
                result = self._add_accuracy(result, case, run.outputs or (), converted.model)
                result = self._add_model_run(result, case.oracle, run.outputs or ())
            results.append(result)
        self._send(results)

    def _begin_calls(self, result_of: Callable[[CaseRun], CaseRun], wrong: CaseRun) -> bool:
        """Announce that the calls of a wrong program are run one by one; its result stands if that kills the worker."""
        known = result_of(wrong)
        self._begin(Step(Stage.RUN, known.backend, (known.case,), (known,)))
        return True

    def _compared(
        self, name: str, converted: Converted, member: Member, case: int, times: Mapping[str, float], run: CaseRun
    ) -> CaseRun:
        """Return the result of a case after the comparison, each problem of its outputs apart."""
        ends = {"message": run.message, "comparison": run.comparison}
        result = self._result((member.group.index, case), name, run.stage, run.outcome, converted, **ends, **times)
        if run.outcome is not Outcome.MISMATCH or run.comparison is None:
            return result
        kept = replace(result, outcome=Outcome.PASS, message="", graph_kind=self._kept_kind(converted, member))
        apart = self._part_by_part(converted, member, case, run)
        first, *further = wrong_results(kept, apart, member.oracles[case].expected, run.outputs or ())
        if len(apart.problems) > len(run.comparison.problems):
            first = replace(first, wrong_outputs=apart.problems[0].outputs)
        return replace(first, comparison=run.comparison, further=tuple(further))

    def _part_by_part(self, converted: Converted, member: Member, case: int, run: CaseRun) -> OutputComparison:
        """Return a comparison with the problems of a program's disjoint parts apart: each has its own cause."""
        comparison, got = run.comparison, run.outputs or ()
        assert comparison is not None
        if not is_program(member.group.exported):
            return comparison
        wrong = {output for problem in comparison.problems for output in problem.outputs}
        parts = [part for part in disjoint_outputs(Program.of(member.group.exported)) if wrong.intersection(part)]
        if len(parts) < 2:
            return comparison
        of_case, count = self._case(member, case), len(member.oracles[case].expected)
        judge = of_case.judge or of_case.oracle.judge
        feeds = member.structure.feeds(converted.model, of_case.oracle.feeds)
        transformed = TransformedOutputs.along(self._route, of_case, lambda: (as_onnx(converted.model), feeds))
        leeway = None if transformed is None else transformed.leeway
        found: list[OutputProblem] = []
        for part in parts:
            alone = replace(of_case, judge=judge.restricted_to(part, count))
            found += alone.compare(got, leeway).problems
        return replace(comparison, problems=tuple(found)) if len(found) > len(comparison.problems) else comparison

    def _add_accuracy(self, result: CaseRun, case: Case, got: Sequence[Array], model: AnyModel) -> CaseRun:
        """Add to a result how accurate it is, if transforms make it differ or the inputs are a user's."""
        outputs = TransformedOutputs.along(self._route, case, lambda: (as_onnx(model), case.feeds(model)))
        is_given = self._task.model is not None and bool(self._task.model.given.path)
        if outputs is None and not is_given:
            return result
        self._begin(Step(Stage.COMPARE, result.backend, (result.case,), (result,)))
        loss = outputs.find_range_loss() if outputs is not None else None
        accuracy = measure_accuracy(case.oracle.expected, got, loss)
        return replace(result, model_run=replace(result.model_run, accuracy=accuracy))

    def _add_model_run(self, result: CaseRun, oracle: CaseOracle, got: Sequence[Array]) -> CaseRun:
        """Add to a result what only runs of models and files have.

        The growth of errors takes several runs in float64, so among passing runs only the example of a quick model gets
        it.
        """
        is_wrong, comparison = result.outcome is Outcome.MISMATCH, result.comparison
        facts = replace(result.model_run, nodes=oracle.nodes)
        if is_wrong:
            facts = replace(facts, output_errors=tuple(oracle.output_errors(got)))
        result = replace(result, model_run=facts)
        if comparison is None or comparison.max_abs_error is None:
            return result
        if not is_wrong and (result.case[1] != 0 or self._reference_seconds >= _QUICK):
            return result
        self._begin(Step(Stage.COMPARE, result.backend, (result.case,), (result,)))
        return replace(result, model_run=replace(facts, growth=oracle.error_growth(got)))

    # Helpers

    def _ranges(self, converted: Converted) -> dict[str, ShapeRange]:
        ranges: dict[str, ShapeRange] = {}
        for member in converted.members:
            cases = [oracle.invocation for oracle in member.oracles.values()]
            ranges.update(member.structure.shape_ranges(converted.model, cases))
        return ranges

    def _case(self, member: Member, case: int) -> Case:
        return Case(member.structure, member.oracles[case], runs=self._settings.runs)

    def _started(self, backend: str) -> StartedRoute:
        return StartedRoute(self._route, self._exports.converter, self._backends[backend])

    def _split_or_fail(
        self,
        name: str,
        converted: Converted,
        pending: Mapping[int, list[int]],
        failure: StageFailure,
        case_only: Mapping[int, int] | None = None,
    ) -> None:
        """Find the members that fail by themselves, since one failing node fails a whole model."""
        active = [m for m in converted.members if pending.get(m.group.index)]
        if len(converted.members) > 1 and converted.graph is None:
            self._split_artefact(name, converted, active, pending, failure)
            return
        if len(converted.members) > 1:
            nodes = failure.error.nodes if isinstance(failure.error, _NODES_NAMED) else ()
            for part in _suspects_apart(converted, active, nodes):
                self._load_part(name, converted, part, pending)
            return
        (member,) = active
        index = member.group.index
        if converted.is_shared:
            self._load_parts(name, self._exports.alone(member), {index: pending[index]})
            return
        failed = [case_only[index]] if case_only else pending[index]
        more: dict[str, Any] = {}
        captured = isinstance(converted.model, Artefact) and converted.model.kind == CALLABLE
        if captured and failure.stage is Stage.LOAD and failure.outcome is Outcome.ERROR:
            # A callable is captured when it is loaded.
            more["raised_by"] = self._raised_by(member.group.exported, failure)
        self._report(
            [(index, case) for case in failed],
            name,
            failure.stage,
            failure.outcome,
            converted,
            blame=failure.blame,
            message=describe_error(failure.error),
            graph_kind=self._kept_kind(converted, member),
            **more,
        )
        rest = [case for case in pending[index] if case not in failed]
        if rest:
            self._load(name, converted, {index: rest})

    def _split_artefact(
        self,
        name: str,
        converted: Converted,
        active: Sequence[Member],
        pending: Mapping[int, list[int]],
        failure: StageFailure,
    ) -> None:
        """Try again without the groups that lack something, by the runtime's message; else in halves.

        Trying each alone takes a conversion each: among groups that lack the same, only the first is tried.
        """
        reasons = failure.error.reasons if isinstance(failure.error, UnsupportedModel) else {}
        lacking: dict[str, list[Member]] = {}
        for member in active:
            lacked = dict.fromkeys(reasons[n] for n in member.structure.output_names if n in reasons)
            lacking.setdefault(" ".join(lacked), []).append(member)
        rest = lacking.pop("", [])
        for reason, (first, *others) in lacking.items():
            self._load_part(name, converted, [first], pending)
            keys = [(m.group.index, case) for m in others for case in pending[m.group.index]]
            self._report(keys, name, failure.stage, failure.outcome, converted, blame=failure.blame, message=reason)
        whole = not lacking and len(active) == len(converted.members)
        for part in halves(rest) if whole else [rest]:
            if part:
                self._load_part(name, converted, part, pending)

    def _raised_by(self, exported: Invocation, failure: StageFailure) -> str:
        """See `CaseRun.raised_by`."""
        is_call = not (self._is_whole_model or is_program(exported))
        return raising_part(exported, failure.error) if self._settings.blame and is_call else ""

    def _kept_kind(self, converted: Converted, member: Member) -> str:
        """Keep the model of a failing structure for the witnesses, and return the kind of its graph."""
        if not self._settings.blame or converted.graph is None or self._is_whole_model:
            return ""
        self._worker.kept.keep(converted, member)
        return converted.kind(member)

    def _report(self, keys: Iterable[MemberKey], *same: Any, **more: Any) -> None:
        """Send the same result for some cases; see `_result`."""
        self._send([self._result(key, *same, **more) for key in keys])

    def _result(
        self,
        key: MemberKey,
        backend: str,
        stage: Stage,
        outcome: Outcome,
        converted: Converted | None = None,
        **more: Any,
    ) -> CaseRun:
        if stage in (Stage.RUN, Stage.COMPARE):
            placement = more["placement"] = self._placed.get((backend, key[0]))
            strict = self._settings.strict_device and not outcome.is_failure
            if strict and placement is not None and placement.on_cpu is not OnCpu.FOLDED:
                outcome, more["message"] = Outcome.UNSUPPORTED, f"not on the backend's device: {placement.text}"
        if converted is not None:
            opset = emitted_opset(converted.model)
            more = {"rule": converted.rule, "opset": opset, "convert_ms": converted.convert_ms, **more}
            more["onnx_operators"] = converted.onnx_operators.get(key[0], "")
            if self._notes_passes:
                (member,) = (m for m in converted.members if m.group.index == key[0])
                more["exporter_passes"] = ", ".join(converted.rewrites(member))
                more["backend_passes"] = self._passes.get((backend, key[0]), "")
        return CaseRun(case=key, backend=backend, stage=stage, outcome=outcome, **more)


def _is_noted(group: CaseGroup) -> bool:
    """Whether the passes that change a group's graph are recorded: those of programs, and of a share of graphs.

    Asking for them costs more than a graph's whole run.
    """
    if is_graph(group.exported):
        return group.index % _GRAPHS_PER_NOTE == 0
    return is_program(group.exported)


def _suspects_apart(converted: Converted, active: Sequence[Member], nodes: Sequence[str]) -> list[Sequence[Member]]:
    """Return parts to try separately: each member that owns a named node alone, similar members together, and the
    others, grouped by similarity in a large model; halves if no node is named."""
    if len(active) < len(converted.members):
        return [active]
    model = converted.graph
    assert model is not None
    named = {output for outputs in owners(model, nodes).values() for output in outputs}
    suspects = [m for m in active if named.intersection(m.structure.output_names)]
    if not suspects:
        return list(halves(active))
    # A runtime usually lacks a kernel for a dtype.
    kinds = {_kind(m) for m in suspects}
    others = [m for m in active if m not in suspects]
    alike = [m for m in others if _kind(m) in kinds]
    rest = [m for m in others if _kind(m) not in kinds]
    by_kind: dict[tuple[object, ...], list[Member]] = {}
    if len(model.graph.node) > _LARGE:
        # Loading the rest again for each kind that fails takes longer than loading each kind by itself.
        for member in rest:
            by_kind.setdefault(_kind(member), []).append(member)
        rest = []
    others_apart = (part for part in (alike, rest, *by_kind.values()) if part)
    parts: list[Sequence[Member]] = [*([m] for m in suspects), *others_apart]
    return parts if len(parts) > 1 else list(halves(active))


def _kind(member: Member) -> tuple[object, ...]:
    """Return an operator and the dtypes that it is called with."""
    exported = member.group.exported
    return exported.overload, *(spec.dtype for spec in exported.tensors())
