"""One unit of work on whole models: a model, a converter, its backends. What a pytest item runs.

What is known of a run beyond the verdict on a call is in the column ``model_run``: an object with change, error,
own_error, explained_error (as `harness.pipeline.model_task.ErrorGrowth` has them) and traced, without those of which
there is nothing to say. Where a wrong result begins is in the diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.blame.examined_failures import with_blame
from harness.compare.verdict import CONVERTER, UNKNOWN, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.documents import as_data, as_json
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.model_listing import list_runs
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelInputs, ModelSource
from harness.pipeline.supervisor import Death, Supervisor, blame_for_death
from harness.pipeline.task import Group, Result, Settings, Task
from harness.plan.unit import verdict_of

#: In the record's column of sources.
SOURCE = "model"


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
        result: What the worker sent, with the diagnosis.
    """

    verdict: Verdict
    inputs: ModelInputs
    result: Result


def run_model_unit(unit: ModelUnit, supervisor: Supervisor) -> Iterator[ModelOutcome]:
    """Run a model's cases; over all, one outcome per case and backend.

    A model that kills its process, or hangs, ends the case under way; the others go on in another process.
    Raises as `run_unit` does.
    """
    cases: tuple[ModelInputs, ...] = (ModelInputs(Invocation(unit.source.overload, ())),)
    results: dict[tuple[int, str], Result] = {}
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
            _assign_blame(task, supervisor, results)
    version = find_converter(unit.route.converter).version()
    for _, result in sorted(results.items()):
        yield _outcome(unit, supervisor, version, cases, result)


def _assign_blame(task: Task, supervisor: Supervisor, results: dict[tuple[int, str], Result]) -> None:
    """Put a diagnosis to each failure that tracing does not explain."""
    failed = [r for r in results.values() if r.outcome.is_failure and r.traced is None]
    if task.settings.blame and failed:
        results.update({(r.case[1], r.backend): r for r in with_blame(failed, task, supervisor)})


def _unrun(unit: ModelUnit, outcome: Outcome, blame: str, message: str) -> dict[tuple[int, str], Result]:
    """The results of a model that cannot be loaded."""
    return {
        (0, backend): Result(
            case=(0, 0), backend=backend, stage=Stage.REFERENCE, outcome=outcome, blame=blame, message=message
        )
        for backend in unit.backends
    }


def _outcome(
    unit: ModelUnit,
    supervisor: Supervisor,
    converter_version: str,
    cases: Sequence[ModelInputs],
    result: Result,
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
        model_run=_model_run(result, inputs),
    )
    if traced is not None:
        refused = result.stage is Stage.CONVERT
        mark = f"{traced.what} depends on the data" if refused else f"specialised by tracing: {traced.what}"
        message = f"{mark}: {traced.evidence}\n{result.message}"
        verdict = replace(verdict, blame=CONVERTER, signature=mark, message=message)
    return ModelOutcome(verdict, inputs, result)


def _model_run(result: Result, inputs: ModelInputs) -> str:
    """See the module."""
    growth = result.growth
    data: dict[str, Any] = {
        "change": inputs.change,
        "error": growth.error if growth else None,
        "own_error": growth.own if growth else None,
        "explained_error": growth.explained if growth else None,
        "traced": as_data(result.traced) if result.traced else None,
    }
    return as_json({name: value for name, value in data.items() if value not in (None, "")})
