"""Run the cases of a task in batches, in the worker process.

A batch takes the path of `harness.pipeline.run_case` as one model, stage by stage. If a stage fails, the batch is
split until the guilty cases are alone, and the others continue. Each problem with the outputs of a case is reported
as a failure of its own, which witnesses can examine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from harness.compare.output_comparison import OutputComparison, OutputProblem
from harness.compare.repeated import Again
from harness.compare.verdict import SPEC, UNKNOWN, Outcome, Stage
from harness.convert.converter import Change, HasExporterPasses, find_converter
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.program import is_program
from harness.core.text import describe_error
from harness.pipeline.batch_export import Accepted, Answered, BatchExport, Converted, NotConverted, halves, keys_of
from harness.pipeline.case_kinds import case_kind
from harness.pipeline.case_run import CaseRun, MemberKey
from harness.pipeline.chain import CallRunner, is_chain_of_right_calls
from harness.pipeline.definition import raising_part
from harness.pipeline.double_check import DoubleCheck
from harness.pipeline.graph_runs import GraphReference, GraphRuns
from harness.pipeline.model_cases import ModelRuns
from harness.pipeline.model_reference import ModelReference
from harness.pipeline.placement import placements
from harness.pipeline.reference import Reference
from harness.pipeline.run_case import StartedRoute, conclude
from harness.pipeline.stages import (
    StageFailure,
    emitted_opset,
    find_narrowing,
    is_rejected_for_dtype,
    load_stage,
    run_again,
    run_stage,
)
from harness.pipeline.submodel import owners
from harness.pipeline.task import Group, Step, Task
from harness.pipeline.torch_call import CallRejected
from harness.pipeline.torch_case import TorchCase
from harness.pipeline.traced import ModelFailures, explain_by_tracing
from harness.pipeline.worker import WorkerProcess
from harness.run.artefact import CALLABLE, ONNX, AnyModel, Artefact, output_names
from harness.run.backend import (
    REFERENCE,
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


class BatchRunner:
    """Runs a task with its converter and backends, and announces each `Step` before it is taken."""

    def __init__(self, task: Task, worker: WorkerProcess) -> None:
        self._task = task
        self._worker = worker
        self._settings = task.settings
        self._route = task.route
        worker.kept.begin(task.serial)
        self._step = Step(Stage.REFERENCE, None, ())
        # The model comes first: a rule may be for an operator that its file defines.
        self._kind = case_kind(
            worker, task.model, task.backends[0], task.groups[0].exported, task.settings.tolerance, self._say_alive
        )
        converter, book = worker.converter(task.route)
        self._backends = {name: worker.start(name) for name in task.backends}
        #: All results of a model, for the explanation by tracing.
        self._sent: list[CaseRun] = []
        changes: list[Change] = []
        self._notes_passes = task.model is None and any(is_program(group.exported) for group in task.groups)
        if self._notes_passes and isinstance(converter, HasExporterPasses):
            converter = converter.stopped_after(None, changes)
        exports = BatchExport(task.route, converter, book, self._begin, task.settings.batch_size, changes)
        self._exports = exports if task.model is not None else DoubleCheck(exports)
        #: Seconds of PyTorch's slowest call.
        self._slowest = 0.0
        #: (backend, group index) → cases that are wrong within a batch and not yet run alone.
        self._doubted: dict[tuple[str, int], list[int]] = {}
        #: (backend, group index) → the nodes of the loaded model that ran on the CPU instead, in words.
        self._placed: dict[tuple[str, int], str] = {}
        #: (backend, group index) → the backend's optimisations that changed the program's graph.
        self._passes: dict[tuple[str, int], str] = {}

    def execute(self) -> None:
        """Run the whole task; every case gets one `CaseRun` per backend unless the process dies."""
        # A plug-in may change PyTorch when it is imported, so it is imported before any reference is computed.
        find_converter(self._route.converter)
        accepted = [a for a in map(self._reference, self._task.groups) if a is not None]
        exported: AnyModel | None = None
        for found in self._exports.export(accepted):
            exported = found.model if isinstance(found, Converted) else None
            for name in self._backends:
                if isinstance(found, NotConverted):
                    self._not_converted(name, found)
                else:
                    self._one_backend(name, found)
        if isinstance(self._kind, ModelRuns) and accepted and self._settings.blame:
            self._explain_by_tracing(self._kind, accepted[0], exported)

    def _begin(self, step: Step) -> None:
        """Announce the next step.

        The time limit after a hang depends on the step, and a step of a model may take long: such steps are sent as
        messages.
        """
        self._step = step
        self._worker.begin(step, send=bool(self._task.shortened_timeouts) or self._task.model is not None)

    def _send(self, results: list[CaseRun]) -> None:
        if self._task.model is not None:
            self._sent += results
        self._worker.send(results)

    def _say_alive(self) -> None:
        self._worker.begin(self._step, send=True)

    # Stages

    def _reference(self, group: Group) -> Accepted | None:
        answered = self._answered(group)
        for case, account in answered.rejected.items():
            for name in self._backends:
                self._report(((group.index, case),), name, Stage.REFERENCE, Outcome.SKIP, message=account)
        return answered.accepted

    def _answered(self, group: Group) -> Answered:
        """Return PyTorch's answer to a group; for a requested opset the answer may come from another opset's run."""
        # A plug-in's converter may change PyTorch.
        key = self._route.converter, group.index, group.exported.case_id, tuple((i, c.case_id) for i, c in group.cases)
        keeps = self._route.opset is not None and self._task.model is None
        kept = self._worker.answered.get(key) if keeps else None
        if kept is not None:
            return kept
        references: dict[int, Reference] = {}
        rejected: dict[int, str] = {}
        for case, invocation in group.cases:
            self._begin(self._reference_step((group.index, case)))
            started = time.perf_counter()
            try:
                references[case] = self._kind.reference(invocation)
            except CallRejected as rejection:
                rejected[case] = rejection.account
            self._slowest = max(self._slowest, time.perf_counter() - started)
        found = Answered(Accepted.of(group, references, self._kind) if references else None, rejected)
        if keeps:
            self._worker.answered.keep(key, found, len(group.cases))
        return found

    def _reference_step(self, key: MemberKey) -> Step:
        if isinstance(self._kind, GraphRuns):
            # The runtime itself gives a file's reference, without optimisations, and may die of it.
            return Step(Stage.RUN, self._task.backends[0], (key,))
        return Step(Stage.REFERENCE, None, (key,))

    def _not_converted(self, name: str, found: NotConverted) -> None:
        failure = found.failure
        more = {"blame": failure.blame, "message": describe_error(failure.error)}
        if failure.transform:
            more["transform"] = failure.transform
        if found.rule:
            more["rule"] = found.rule
        elif failure.stage is Stage.CONVERT and failure.outcome is Outcome.ERROR:
            # All members fail in the same way.
            more["raised_by"] = self._raised_by(found.members[0].group.exported, failure)
        keys = keys_of(found.members)
        known_results = [
            self._result(key, name, failure.stage, failure.outcome, found.converted, **more) for key in keys
        ]
        if is_rejected_for_dtype(failure) and found.converted is not None and len(found.members) == 1:
            known_results = self._run_rejected(name, found.converted, known_results)
        self._send(known_results)

    def _run_rejected(self, name: str, converted: Converted, known_results: Sequence[CaseRun]) -> list[CaseRun]:
        """Return the results of a model that the checker rejects, with further problems if the backend takes it; the
        backend's own objections to it are dropped."""
        (member,) = converted.members
        places = {output: i for i, output in enumerate(output_names(converted.model))}
        arrays = [array for r in member.references.values() for array in r.arrays]
        names = member.structure.outputs_in(converted.model)
        named = places.keys() >= set(names)
        if not named or find_narrowing(self._backends[name], arrays):
            return list(known_results)
        self._begin(Step(Stage.LOAD, name, member.keys, tuple(known_results)))
        ranges = self._ranges(converted) if self._route.dynamic else None
        session = load_stage(self._backends[name], converted.model, ranges)
        if isinstance(session, StageFailure) or not session.runnable:
            return list(known_results)
        wanted = [places[n] for n in names]
        found = []
        for result in known_results:
            self._begin(Step(Stage.RUN, name, (result.case,), (result,)))
            reference = member.references[result.case[1]]
            feeds = member.structure.feeds(converted.model, reference.feeds)
            outputs = run_stage(session, feeds)
            if not isinstance(outputs, StageFailure):
                run = self._conclude(name, member, reference, wanted, outputs, run_again(session, feeds))
                if run.comparison is not None and run.comparison.problems:
                    kept = replace(result, graph_kind=self._kept_kind(converted, member))
                    more = wrong_results(kept, run.comparison, reference.expected, run.outputs or ())
                    result = replace(result, further=more)
            found.append(result)
        return found

    def _one_backend(self, name: str, converted: Converted) -> None:
        rest = []
        for member in converted.members:
            arrays = [array for r in member.references.values() for array in r.arrays]
            narrowing = find_narrowing(self._backends[name], arrays)
            if narrowing and not narrowing.is_of_integers:
                self._report(member.keys, name, Stage.LOAD, Outcome.NARROWED, converted, message=narrowing.text)
            else:
                rest.append(member)
        pending = {m.group.index: list(m.references) for m in rest}
        if rest and converted.graph is None:
            # Leaving the others out would take another conversion.
            self._load(name, converted, pending)
        elif rest:
            self._load_part(name, converted, rest, pending)

    def _load_part(
        self, name: str, converted: Converted, members: Sequence[Accepted], pending: Mapping[int, list[int]]
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
            self._placed.update({(name, group): words for group, words in found.items()})
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
            if key not in self._passes:
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
                case = now.get(member.group.index, next(iter(member.references)))
                feeds.update(member.structure.feeds(converted.model, member.references[case].feeds))
            self._begin(Step(Stage.RUN, name, tuple(now.items())))
            started = time.perf_counter()
            outputs = run_stage(session, feeds)
            if isinstance(outputs, StageFailure):
                self._confirm_alone(name, converted)
                self._split_or_fail(name, converted, left, outputs, case_only=now)
                return
            run_ms = 1e3 * (time.perf_counter() - started) / len(now)
            again = run_again(session, feeds)
            self._compare(name, converted, now, outputs, again, {"load_ms": load_ms, "run_ms": run_ms})
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
        outputs: Sequence[Array],
        again: Again,
        times: Mapping[str, float],
    ) -> None:
        place_of = {output: i for i, output in enumerate(output_names(converted.model))}
        self._begin(Step(Stage.COMPARE, name, tuple(now.items())))
        results = []
        for member in converted.members:
            index = member.group.index
            if index not in now:
                continue
            reference = member.references[now[index]]
            places = [place_of[n] for n in member.structure.outputs_in(converted.model)]
            run = self._conclude(name, member, reference, places, outputs, again)
            if run.outcome is Outcome.MISMATCH and converted.is_shared:
                self._doubted.setdefault((name, index), []).append(now[index])
                continue
            key, got = (index, now[index]), run.outputs or ()
            ends = {"message": run.message, "comparison": run.comparison}
            result = self._result(key, name, run.stage, run.outcome, converted, **ends, **times)
            if run.outcome is Outcome.MISMATCH and run.comparison is not None:
                right = replace(result, outcome=Outcome.PASS, message="")
                kept = replace(right, graph_kind=self._kept_kind(converted, member))
                first, *further = wrong_results(kept, run.comparison, reference.expected, got)
                wrong = replace(first, comparison=run.comparison, further=tuple(further))
                result = self._unless_as_its_calls(right, wrong, reference, got, member.group.exported)
            if isinstance(reference, ModelReference):
                result = self._add_errors(result, reference, got)
            if isinstance(reference, GraphReference):
                result = replace(result, model_run=replace(result.model_run, nodes=reference.nodes))
            results.append(result)
        self._send(results)

    def _explain_by_tracing(self, runs: ModelRuns, member: Accepted, exported: AnyModel | None) -> None:
        """Send the failures of a model that tracing causes once more, with the explanation."""
        # Every verdict has been sent, since the explanation may kill the worker.
        self._begin(Step(Stage.COMPARE, None, ()))
        cases = dict(member.group.cases)
        failures = ModelFailures(
            runs.model, self._route, self._exports.converter, self._backends, cases, member.references, self._sent
        )
        for result in explain_by_tracing(failures, exported):
            self._send([result])

    def _add_errors(self, result: CaseRun, reference: ModelReference, got: Sequence[Array]) -> CaseRun:
        """Add the errors to a model's result. Their growth takes several runs in float64, so among passing runs only
        the example of a quick model gets it."""
        is_wrong = result.outcome is Outcome.MISMATCH
        if is_wrong:
            errors = tuple(reference.output_errors(got))
            result = replace(result, model_run=replace(result.model_run, output_errors=errors))
        comparison = result.comparison
        if comparison is None or comparison.max_abs_error is None:
            return result
        if not is_wrong and (result.case[1] != 0 or self._slowest >= _QUICK):
            return result
        self._begin(Step(Stage.COMPARE, result.backend, (result.case,), (result,)))
        return replace(result, model_run=replace(result.model_run, growth=reference.error_growth(got)))

    def _unless_as_its_calls(
        self, right: CaseRun, wrong: CaseRun, reference: Reference, got: Sequence[Array], exported: Invocation
    ) -> CaseRun:
        """Return `wrong`, or `right` for a program whose result is that of its calls, all of them right."""
        if not is_program(reference.invocation):
            return wrong
        assert wrong.comparison is not None
        self._begin(Step(Stage.RUN, wrong.backend, (wrong.case,), (wrong,)))
        backends = [self._backends[wrong.backend]]
        if find_converter(self._route.converter).makes == ONNX:
            backends.append(self._worker.backend(REFERENCE))
        caller = CallRunner(self._exports.converter, backends, self._route)
        if not is_chain_of_right_calls(caller, reference, got, exported if self._route.dynamic else None):
            return wrong
        return replace(right, comparison=wrong.comparison.excused_as("a chain of right calls"))

    # Helpers

    def _ranges(self, converted: Converted) -> dict[str, ShapeRange]:
        ranges: dict[str, ShapeRange] = {}
        for member in converted.members:
            cases = [r.invocation for r in member.references.values()]
            ranges.update(member.structure.shape_ranges(converted.model, cases))
        return ranges

    def _conclude(
        self,
        name: str,
        member: Accepted,
        reference: Reference,
        places: Sequence[int],
        outputs: Sequence[Array],
        again: Again,
    ) -> CaseRun:
        """Return how a case ends whose outputs are at `places` among all."""

        def once_more() -> Sequence[Array] | None:
            found = again()
            return None if found is None else [found[i] for i in places]

        case = TorchCase(member.structure, reference, runs=self._settings.runs)
        started = StartedRoute(self._route, self._exports.converter, self._backends[name])
        return conclude(case, started, tuple(outputs[i] for i in places), once_more)

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
        active: Sequence[Accepted],
        pending: Mapping[int, list[int]],
        failure: StageFailure,
    ) -> None:
        """Try again without the groups that lack something, by the runtime's message; else in halves.

        Trying each alone takes a conversion each: among groups that lack the same, only the first is tried.
        """
        reasons = failure.error.reasons if isinstance(failure.error, UnsupportedModel) else {}
        lacking: dict[str, list[Accepted]] = {}
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
        is_call = self._task.model is None and not is_program(exported)
        return raising_part(exported, failure.error) if self._settings.blame and is_call else ""

    def _kept_kind(self, converted: Converted, member: Accepted) -> str:
        """Keep the model of a failing structure for the witnesses, and return the kind of its graph."""
        if not self._settings.blame or converted.graph is None or self._task.model is not None:
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
            more["placement"] = self._placed.get((backend, key[0]), "")
        if converted is not None:
            opset = emitted_opset(converted.model)
            more = {"rule": converted.rule, "opset": opset, "convert_ms": converted.convert_ms, **more}
            more["onnx_operators"] = converted.onnx_operators.get(key[0], "")
            if self._notes_passes:
                (member,) = (m for m in converted.members if m.group.index == key[0])
                more["exporter_passes"] = ", ".join(converted.rewrites(member))
                more["backend_passes"] = self._passes.get((backend, key[0]), "")
        return CaseRun(case=key, backend=backend, stage=stage, outcome=outcome, **more)


def _suspects_apart(converted: Converted, active: Sequence[Accepted], nodes: Sequence[str]) -> list[Sequence[Accepted]]:
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
    by_kind: dict[tuple[object, ...], list[Accepted]] = {}
    if len(model.graph.node) > _LARGE:
        # Loading the rest again for each kind that fails takes longer than loading each kind by itself.
        for member in rest:
            by_kind.setdefault(_kind(member), []).append(member)
        rest = []
    others_apart = (part for part in (alike, rest, *by_kind.values()) if part)
    parts: list[Sequence[Accepted]] = [*([m] for m in suspects), *others_apart]
    return parts if len(parts) > 1 else list(halves(active))


def _kind(member: Accepted) -> tuple[object, ...]:
    """Return an operator and the dtypes that it is called with."""
    exported = member.group.exported
    return exported.overload, *(spec.dtype for spec in exported.tensors())
