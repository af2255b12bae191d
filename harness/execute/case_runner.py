"""Carry out one task: reference, convert, check, load, run, compare. Runs in the worker process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harness.compare import Outcome, Stage, compare
from harness.convert import Converter, RuleBook
from harness.core import Array, bind, build_tensors, describe_error, fed_shape
from harness.execute.batch_export import Exporting
from harness.execute.member import Accepted, Converted, halves
from harness.execute.program import Exportable, emitted_opset, varying_dims
from harness.execute.reference import Reference, run_reference
from harness.execute.submodel import owners
from harness.execute.task import Group, MemberKey, Result, Step, Task
from harness.execute.worker import WorkerProcess
from harness.generate import judge_of
from harness.run import (
    Backend,
    BackendFailure,
    BackendSession,
    DeviceLost,
    InvalidModel,
    ShapeRange,
    UnsupportedModel,
)

_NODES_NAMED = (UnsupportedModel, InvalidModel, BackendFailure)


def carry_out(task: Task, worker: WorkerProcess) -> None:
    """Run the task's cases in a worker; one `Result` per case and backend is sent."""
    converter, book = worker.converter(task.converter, task.settings)
    started = {name: worker.start(name) for name in task.backends}
    Executor(task, converter, started, worker.send, book).execute()


class Executor:
    """Carries out tasks with one converter and some started backends.

    Args:
        task: What to do.
        converter: The task's converter, started.
        backends: The task's backends, started.
        send: Takes messages as they come; each `Step` before the step is taken.
        book: The user's rules that the converter was started with.
    """

    def __init__(
        self,
        task: Task,
        converter: Converter,
        backends: Mapping[str, Backend],
        send: Callable[[object], None],
        book: RuleBook | None = None,
    ) -> None:
        self._task = task
        self._settings = task.settings
        self._backends = {name: backends[name] for name in task.backends}
        self._send = send
        self._exporting = Exporting(task.settings, converter, book, send, self._fail)

    def execute(self) -> None:
        """Do the whole task; every case gets one `Result` per backend unless the process dies."""
        accepted = [a for a in map(self._reference, self._task.groups) if a is not None]
        size = self._settings.batch_size
        together = [a for a in accepted if not _holds_negative_zero(a.group.exported.arguments)]
        batches = [together[start : start + size] for start in range(0, len(together), size)]
        # Exporters keep the constants of a model by value, and −0.0 equals 0.0: whichever comes first is
        # taken for both. In a model of its own a case meets no other case's zero.
        batches += [[a] for a in accepted if _holds_negative_zero(a.group.exported.arguments)]
        for batch in batches:
            for converted in self._exporting.convert(batch):
                for name in self._backends:
                    self._one_backend(name, converted)

    # Stages

    def _reference(self, group: Group) -> Accepted | None:
        references: dict[int, Reference] = {}
        for case, invocation in group.cases:
            key = (group.index, case)
            self._send(Step(Stage.REFERENCE, None, (key,)))
            try:
                references[case] = run_reference(invocation)
            except Exception as error:
                self._fail((key,), Stage.REFERENCE, Outcome.SKIP, error, blame="")
        if not references:
            return None
        dims = varying_dims(group.exported, [invocation for _, invocation in group.cases])
        structure = Exportable(
            index=group.index,
            call=bind(group.exported),
            tensors=build_tensors(group.exported),
            outputs=len(next(iter(references.values())).expected),
            dynamic_dims=dims,
        )
        return Accepted(group, structure, references)

    def _one_backend(self, name: str, converted: Converted) -> None:
        narrowed = [m for m in converted.members if self._narrowing(name, m)]
        for member in narrowed:
            self._results(
                [self._result(key, name, Stage.LOAD, Outcome.NARROWED, converted) for key in member.keys],
                self._narrowing(name, member),
            )
        rest = [m for m in converted.members if m not in narrowed]
        if rest:
            pending = {m.group.index: list(m.references) for m in rest}
            self._load(name, converted.part(rest), pending)

    def _load(self, name: str, converted: Converted, pending: Mapping[int, list[int]]) -> None:
        """Load the model and run every pending case; split and start again where that fails."""
        keys = tuple((g, case) for g, cases in pending.items() for case in cases)
        self._send(Step(Stage.LOAD, name, keys))
        started = time.perf_counter()
        try:
            session = self._backends[name].load(converted.model, self._shape_ranges(converted))
        except DeviceLost:
            raise
        except Exception as error:
            self._split_or_fail(name, converted, pending, Stage.LOAD, error)
            return
        load_ms = 1e3 * (time.perf_counter() - started) / len(keys)
        if not session.runnable:
            self._results(
                [
                    self._result(key, name, Stage.LOAD, Outcome.BUILT, converted, load_ms=load_ms)
                    for key in keys
                ]
            )
            return
        self._run(name, converted, pending, session, load_ms)

    def _run(
        self,
        name: str,
        converted: Converted,
        pending: Mapping[int, list[int]],
        session: BackendSession,
        load_ms: float,
    ) -> None:
        left = {g: list(cases) for g, cases in pending.items()}
        inputs = {value.name for value in converted.model.graph.input}
        while any(left.values()):
            now = {g: cases[0] for g, cases in left.items() if cases}
            feeds: dict[str, Array] = {}
            for member in converted.members:
                # Every input is always required: a group whose cases are done repeats one of them.
                case = now.get(member.group.index, next(iter(member.references)))
                values = member.references[case].feeds
                feeds.update(zip(member.structure.input_names, values, strict=True))
            self._send(Step(Stage.RUN, name, tuple(now.items())))
            started = time.perf_counter()
            try:
                outputs = session.run({n: v for n, v in feeds.items() if n in inputs})
            except DeviceLost:
                raise
            except Exception as error:
                self._split_or_fail(name, converted, left, Stage.RUN, error, case_only=now)
                return
            run_ms = 1e3 * (time.perf_counter() - started) / len(now)
            self._compare(name, converted, now, outputs, load_ms, run_ms)
            for cases in left.values():
                del cases[:1]

    def _compare(
        self,
        name: str,
        converted: Converted,
        now: Mapping[int, int],
        outputs: Sequence[Array],
        load_ms: float,
        run_ms: float,
    ) -> None:
        by_name = dict(zip((o.name for o in converted.model.graph.output), outputs, strict=True))
        self._send(Step(Stage.COMPARE, name, tuple(now.items())))
        results = []
        for member in converted.members:
            index = member.group.index
            if index not in now:
                continue
            reference = member.references[now[index]]
            judge = judge_of(reference.invocation)
            got = [by_name[n] for n in member.structure.output_names]
            comparison = compare(judge, reference, got)
            wrong = comparison.problem is not None
            results.append(
                replace(
                    self._result((index, now[index]), name, Stage.COMPARE, Outcome.PASS, converted),
                    outcome=Outcome.MISMATCH if wrong else Outcome.PASS,
                    blame="unknown" if wrong else "",
                    message=f"{comparison.problem}: {comparison.detail}" if wrong else "",
                    model=self._kept_model(converted, member) if wrong else b"",
                    comparison=comparison,
                    load_ms=load_ms,
                    run_ms=run_ms,
                )
            )
        self._results(results)

    # Helpers

    def _split_or_fail(
        self,
        name: str,
        converted: Converted,
        pending: Mapping[int, list[int]],
        stage: Stage,
        error: Exception,
        case_only: Mapping[int, int] | None = None,
    ) -> None:
        """One failing node fails a whole model: find the members that fail by themselves."""
        active = [m for m in converted.members if pending[m.group.index]]
        if len(converted.members) > 1:
            nodes = error.nodes if isinstance(error, _NODES_NAMED) else ()
            for part in _suspects_apart(converted, active, nodes):
                self._load(name, converted.part(part), {m.group.index: pending[m.group.index] for m in part})
            return
        (member,) = active
        index = member.group.index
        failed = [case_only[index]] if case_only else pending[index]
        unsupported = isinstance(error, UnsupportedModel)
        self._fail(
            tuple((index, case) for case in failed),
            stage,
            Outcome.UNSUPPORTED if unsupported else Outcome.ERROR,
            error,
            blame="backend" if unsupported else "unknown",
            backends=(name,),
            converted=converted,
            model=self._kept_model(converted, member),
        )
        rest = [case for case in pending[index] if case not in failed]
        if rest:
            self._load(name, converted, {index: rest})

    def _kept_model(self, converted: Converted, member: Accepted) -> bytes:
        """The part of the model that computes `member`, for the witnesses of its failure."""
        return converted.alone(member) if self._settings.blame else b""

    def _narrowing(self, name: str, member: Accepted) -> str:
        for dtype in sorted({d for r in member.references.values() for d in r.dtypes}):
            narrower = self._backends[name].narrows(dtype)
            if narrower:
                return f"{name} silently computes {dtype} in {narrower}"
        return ""

    def _shape_ranges(self, converted: Converted) -> dict[str, ShapeRange] | None:
        if not self._settings.dynamic:
            return None
        ranges = {}
        present = {value.name for value in converted.model.graph.input}
        for member in converted.members:
            shapes = [
                [fed_shape(spec) for spec in r.invocation.tensors()] for r in member.references.values()
            ]
            for j, name in enumerate(member.structure.input_names):
                if name in present:
                    seen = [s[j] for s in shapes]
                    ranges[name] = ShapeRange(
                        min=tuple(map(min, zip(*seen, strict=True))),
                        opt=seen[0],
                        max=tuple(map(max, zip(*seen, strict=True))),
                    )
        return ranges

    def _result(
        self,
        key: MemberKey,
        backend: str,
        stage: Stage,
        outcome: Outcome,
        converted: Converted | None = None,
        load_ms: float | None = None,
    ) -> Result:
        return Result(
            case=key,
            backend=backend,
            stage=stage,
            outcome=outcome,
            rule=converted.rule if converted else "",
            opset=emitted_opset(converted.model) if converted else None,
            convert_ms=converted.convert_ms if converted else None,
            load_ms=load_ms,
        )

    def _results(self, results: Sequence[Result], message: str = "") -> None:
        self._send([replace(r, message=message) for r in results] if message else list(results))

    def _fail(
        self,
        keys: Sequence[MemberKey],
        stage: Stage,
        outcome: Outcome,
        error: Exception,
        *,
        blame: str,
        backends: Sequence[str] | None = None,
        converted: Converted | None = None,
        rule: str = "",
        model: bytes = b"",
    ) -> None:
        message = describe_error(error)
        results = [
            replace(
                self._result(key, name, stage, outcome, converted),
                blame=blame,
                message=message,
                model=model,
            )
            for name in backends or self._backends
            for key in keys
        ]
        self._send([replace(result, rule=rule) for result in results] if rule else results)


def _holds_negative_zero(argument: object) -> bool:
    if isinstance(argument, tuple):
        return any(map(_holds_negative_zero, argument))
    return isinstance(argument, float) and argument == 0.0 and math.copysign(1.0, argument) < 0.0


def _suspects_apart(
    converted: Converted, active: Sequence[Accepted], nodes: Sequence[str]
) -> list[Sequence[Accepted]]:
    """Parts to try separately: each member that owns a named node alone, the others together; halves
    where no node is named."""
    if len(active) < len(converted.members):
        return [active]
    named = {output for outputs in owners(converted.model, nodes).values() for output in outputs}
    suspects = [m for m in active if named.intersection(m.structure.output_names)]
    rest = [m for m in active if m not in suspects]
    if suspects and rest:
        return [*([m] for m in suspects), rest]
    return list(halves(active))
