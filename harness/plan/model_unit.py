"""One unit of work on whole models: a model, a converter, its backends. What a pytest item runs.

What is known of a run beyond the verdict on a call is in the column ``model_run``: an object with change, error,
own_error, explained_error (as `harness.pipeline.model_task.ErrorGrowth` has them), traced, divergence and
no_divergence, without those of which there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from harness.blame.examined_failures import with_blame
from harness.compare.diagnosis import CALL_ALONE, Diagnosis
from harness.compare.verdict import CONVERTER, UNKNOWN, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.documents import as_data, as_json
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.generate.sources.recorded import Replayed
from harness.pipeline.model_listing import list_runs
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelInputs, ModelSource
from harness.pipeline.supervisor import Death, Supervisor, blame_for_death
from harness.pipeline.task import Group, Result, Settings, Task
from harness.plan.unit import Unit, run_unit, verdict_of

#: In the record's column of sources.
SOURCE = "model"


class FoundDivergence(Protocol):
    """Where a model's wrong result begins, as far as a unit looks at it."""

    @property
    def failing_calls(self) -> tuple[Invocation, ...]:
        """The calls that are wrong by themselves."""

    def to_data(self) -> dict[str, Any]:
        """As JSON."""


#: Finds where the run of this index goes wrong with this backend.
#: Raises `ModelProblem` where that cannot be found out.
Locate: TypeAlias = "Callable[[ModelUnit, str, int, Supervisor], FoundDivergence]"


@dataclass(frozen=True, kw_only=True)
class ModelUnit:
    """What to run and where to send it.

    Attributes:
        source: The model.
        route: The way up to the backends.
        backends: The names of those that run its artefact.
    """

    source: ModelSource
    route: Route
    backends: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)

    @property
    def overload(self) -> str:
        """What the record has in the column of operators."""
        return self.source.overload


@dataclass(frozen=True)
class ModelOutcome:
    """What became of one run of a model with one backend.

    Attributes:
        inputs: What it was run with.
        result: What the worker sent, with the growth of errors and what tracing explains.
        divergence: Where a wrong result begins; None where that was not looked for or not found.
    """

    verdict: Verdict
    inputs: ModelInputs
    result: Result
    divergence: FoundDivergence | None = None


def run_model_unit(unit: ModelUnit, supervisor: Supervisor, locate: Locate | None = None) -> Iterator[ModelOutcome]:
    """Run a model's cases; over all, one outcome per case and backend.

    A model that kills its process, or hangs, ends the case under way; the others go on in another process.
    `locate` is asked where each backend's first wrong result begins. Raises as `run_unit` does.
    """
    cases: tuple[ModelInputs, ...] = (ModelInputs(Invocation(unit.source.overload, ())),)
    results: dict[tuple[int, str], Result] = {}
    located: dict[tuple[int, str], FoundDivergence | str] = {}
    try:
        listed = list_runs(unit.source, supervisor, dynamic=unit.route.dynamic)
    except ModelProblem as problem:
        results = _unrun(unit, Outcome.ERROR, UNKNOWN, str(problem))
    else:
        if isinstance(listed, Death):
            results = _unrun(unit, listed.outcome, blame_for_death(listed, Stage.REFERENCE), listed.message)
        else:
            cases = listed
            invocations = tuple(enumerate(inputs.invocation for inputs in cases))
            groups = (Group(0, cases[0].invocation, invocations),)
            task = Task(groups, unit.route, unit.backends, unit.settings, model=unit.source)
            # What is sent again has more to say.
            results = {(r.case[1], r.backend): r for sent in supervisor.run(task) for r in sent}
            located = _locate_divergences(unit, supervisor, results, locate)
            _assign_blame(unit, task, supervisor, results, located)
    version = find_converter(unit.route.converter).version()
    for key, result in sorted(results.items()):
        yield _outcome(unit, supervisor, version, cases, result, located.get(key))


def _assign_blame(
    unit: ModelUnit,
    task: Task,
    supervisor: Supervisor,
    results: dict[tuple[int, str], Result],
    located: Mapping[tuple[int, str], FoundDivergence | str],
) -> None:
    """Put a diagnosis to each failure that tracing does not explain.

    A wrong result is that of the call at which it begins, if the call is wrong by itself, and the backend's other
    wrong results share its diagnosis. All other failures are examined as those of programs are.
    """
    if not unit.settings.blame:
        return
    for (case, backend), divergence in located.items():
        calls = () if isinstance(divergence, str) else divergence.failing_calls
        diagnosis = _diagnose_call(calls[0], unit, backend, supervisor) if calls else None
        if diagnosis is None:
            continue
        first = task.groups[0].cases[case][1].case_id
        for key, result in results.items():
            if key[1] == backend and result.outcome is Outcome.MISMATCH and result.traced is None:
                known = diagnosis if key[0] == case else replace(diagnosis, inherited_from=first)
                results[key] = replace(result, blame=known.blame, diagnosis=known)
    failed = [r for r in results.values() if r.outcome.is_failure and r.traced is None and r.diagnosis is None]
    if failed:
        results.update({(r.case[1], r.backend): r for r in with_blame(failed, task, supervisor)})


def _diagnose_call(call: Invocation, unit: ModelUnit, backend: str, supervisor: Supervisor) -> Diagnosis | None:
    """Return the diagnosis of a call of the model that is run by itself; None where it passes."""
    alone = Unit(
        overload=call.overload,
        route=replace(unit.route, dynamic=False),
        backends=(backend,),
        replay=(Replayed(call, None),),
        settings=unit.settings,
    )
    for verdicts in run_unit(alone, supervisor):
        for verdict in verdicts:
            diagnosis = Diagnosis.from_row(vars(verdict))
            if verdict.outcome is Outcome.MISMATCH and diagnosis is not None:
                return replace(diagnosis, facts={**diagnosis.facts, CALL_ALONE: call.overload})
    return None


def _unrun(unit: ModelUnit, outcome: Outcome, blame: str, message: str) -> dict[tuple[int, str], Result]:
    """The results of a model that cannot be loaded."""
    return {
        (0, backend): Result(
            case=(0, 0), backend=backend, stage=Stage.REFERENCE, outcome=outcome, blame=blame, message=message
        )
        for backend in unit.backends
    }


def _locate_divergences(
    unit: ModelUnit, supervisor: Supervisor, results: Mapping[tuple[int, str], Result], locate: Locate | None
) -> dict[tuple[int, str], FoundDivergence | str]:
    """Where each backend's first wrong result begins, or why that is unknown, unless tracing explains it; the others
    share it."""
    located: dict[tuple[int, str], FoundDivergence | str] = {}
    for backend in unit.backends if locate is not None and unit.settings.blame else ():
        wrong = (
            key
            for key, result in sorted(results.items())
            if key[1] == backend and result.outcome is Outcome.MISMATCH and result.traced is None
        )
        key = next(wrong, None)
        if key is not None and locate is not None:
            try:
                located[key] = locate(unit, backend, key[0], supervisor)
            except ModelProblem as problem:
                located[key] = str(problem)
    return located


def _outcome(
    unit: ModelUnit,
    supervisor: Supervisor,
    converter_version: str,
    cases: Sequence[ModelInputs],
    result: Result,
    located: FoundDivergence | str | None,
) -> ModelOutcome:
    inputs, traced = cases[result.case[1]], result.traced
    failed = result.outcome.is_failure
    verdict = verdict_of(
        result,
        inputs.invocation,
        cases[0].invocation,
        supervisor,
        source=SOURCE,
        family=SOURCE,
        route=unit.route,
        converter_version=converter_version,
    )
    verdict = replace(
        verdict,
        blame=(result.blame or UNKNOWN) if failed else "",
        model_run=_model_run(result, inputs, located),
    )
    if traced is not None:
        refused = result.stage is Stage.CONVERT
        mark = f"{traced.what} depends on the data" if refused else f"specialised by tracing: {traced.what}"
        message = f"{mark}: {traced.evidence}\n{result.message}"
        verdict = replace(verdict, blame=CONVERTER, signature=mark, message=message)
    return ModelOutcome(verdict, inputs, result, None if isinstance(located, str) else located)


def _model_run(result: Result, inputs: ModelInputs, located: FoundDivergence | str | None) -> str:
    """See the module."""
    growth = result.growth
    data: dict[str, Any] = {
        "change": inputs.change,
        "error": growth.error if growth else None,
        "own_error": growth.own if growth else None,
        "explained_error": growth.explained if growth else None,
        "traced": as_data(result.traced) if result.traced else None,
        "divergence": located.to_data() if located is not None and not isinstance(located, str) else None,
        "no_divergence": located if isinstance(located, str) else "",
    }
    return as_json({name: value for name, value in data.items() if value not in (None, "")})
