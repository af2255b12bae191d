"""One unit of work on whole models: a model, a converter, its backends. What a pytest item runs.

What a run says of its models beyond the verdicts is in ``RESULTS/models.jsonl``: a line per verdict, with
overload, case_id, exported_invocation, converter, backend, change, error, own_error, explained_error, traced
and divergence. The errors are those of `harness.pipeline.models.model_task.Growth`, null where nothing was compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from harness.blame.examined_failures import signature
from harness.compare.verdict import RUNS_AT, UNKNOWN, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.documents import as_json
from harness.core.invocation import Invocation
from harness.pipeline.models.model_loading import ModelProblem
from harness.pipeline.models.model_task import (
    AS_MADE,
    PREFIX,
    Growth,
    ModelCase,
    ModelCases,
    ModelTask,
    NoModel,
    OutputError,
    OutputErrors,
    Traced,
    Variant,
    model_name,
)
from harness.pipeline.supervisor import Death, Supervisor, WorkerFailed
from harness.pipeline.task import OWN_FAULT, Result, Settings, Step
from harness.plan.unit import verdict_of
from harness.record.layout import ResultsError, reason

MODELS_FILE = "models.jsonl"

#: In the record's column of sources.
SOURCE = "model"


class FoundDivergence(Protocol):
    """Where a model's wrong result begins, as far as a unit looks at it."""

    @property
    def verdict(self) -> str:
        """Whose fault it is, in a sentence."""

    def to_data(self) -> dict[str, Any]:
        """As JSON."""


#: Finds where the run of this index goes wrong with this backend.
#: Raises `ModelProblem` where that cannot be found out.
Locate: TypeAlias = "Callable[[ModelUnit, str, int, Supervisor], FoundDivergence]"


@dataclass(frozen=True, kw_only=True)
class ModelUnit:
    """What to run and where to send it.

    Attributes:
        word: The model, as the user named it.
        backends: Names; one export serves all.
        shape_mode: ``static`` or ``dynamic``.
    """

    word: str
    converter: str
    backends: tuple[str, ...]
    shape_mode: str = "static"
    settings: Settings = field(default_factory=Settings)
    variant: Variant = AS_MADE

    @property
    def overload(self) -> str:
        """What the record has in the column of operators."""
        return PREFIX + model_name(self.word)


@dataclass(frozen=True)
class ModelOutcome:
    """What became of one run of a model with one backend.

    Attributes:
        growth: How errors grew; None where nothing could be compared.
        errors: By how much each output is off, of a wrong result.
        traced: Where tracing is to blame.
        divergence: Where a wrong result begins; None where that was not looked for or not found.
    """

    verdict: Verdict
    case: ModelCase
    growth: Growth | None = None
    traced: Traced | None = None
    divergence: FoundDivergence | None = None
    errors: tuple[OutputError, ...] = ()


@dataclass
class _Found:
    """What has come in of a unit so far."""

    cases: tuple[ModelCase, ...] = ()
    results: dict[tuple[int, str], Result] = field(default_factory=dict)
    growths: dict[tuple[int, str], Growth] = field(default_factory=dict)
    errors: dict[tuple[int, str], tuple[OutputError, ...]] = field(default_factory=dict)
    traced: dict[tuple[int, str], Traced] = field(default_factory=dict)
    divergences: dict[tuple[int, str], FoundDivergence] = field(default_factory=dict)
    unfound: dict[tuple[int, str], str] = field(default_factory=dict)

    def is_complete(self, unit: ModelUnit) -> bool:
        return all((i, b) in self.results for i in range(len(self.cases)) for b in unit.backends)


def run_model_unit(unit: ModelUnit, supervisor: Supervisor, locate: Locate | None = None) -> Iterator[ModelOutcome]:
    """Run a model's cases; over all, one outcome per case and backend.

    A model that kills its process, or hangs, ends the case under way; the others go on in another process.
    `locate` is asked where each backend's first wrong result begins. Raises as `run_unit` does.
    """
    found = _Found()
    task = ModelTask(
        word=unit.word,
        converter=unit.converter,
        backends=unit.backends,
        settings=unit.settings,
        variant=unit.variant,
    )
    while True:
        death, step = _once(task, supervisor, found)
        if death is None:
            break
        if step is None:
            raise WorkerFailed(f"the worker process ended before it began: {death.message}")
        _blame_death(unit, found, death, step)
        if found.is_complete(unit):
            break
        task = replace(task, done=frozenset(found.results))
    if locate is not None:
        _look_for_divergences(unit, supervisor, found, locate)
    version = find_converter(unit.converter).version()
    for _, result in sorted(found.results.items()):
        yield _outcome(unit, supervisor, version, found, result)


def _look_for_divergences(unit: ModelUnit, supervisor: Supervisor, found: _Found, locate: Locate) -> None:
    """Where each backend's first wrong result begins, unless tracing explains it; the others share it."""
    if not unit.settings.blame:
        return
    for backend in unit.backends:
        wrong = (
            key
            for key, result in sorted(found.results.items())
            if key[1] == backend and result.outcome is Outcome.MISMATCH and key not in found.traced
        )
        if key := next(wrong, None):
            try:
                found.divergences[key] = locate(unit, backend, key[0], supervisor)
            except ModelProblem as problem:
                found.unfound[key] = str(problem)


def _once(task: ModelTask, supervisor: Supervisor, found: _Found) -> tuple[Death | None, Step | None]:
    """One attempt at what is left; how it ended and where, if it did so before its time."""
    step: Step | None = None
    for message in supervisor.serve_alone(task):
        if isinstance(message, ModelCases):
            found.cases = message.cases
        elif isinstance(message, NoModel):
            found.cases = (ModelCase(Invocation(PREFIX + model_name(task.word), ())),)
            for backend in task.backends:
                found.results[0, backend] = Result(
                    case=(0, 0),
                    backend=backend,
                    stage=Stage.REFERENCE,
                    outcome=Outcome.ERROR,
                    blame=UNKNOWN,
                    message=message.message,
                )
        elif isinstance(message, Step):
            step = message
        elif isinstance(message, Growth):
            found.growths[message.case, message.backend] = message
        elif isinstance(message, OutputErrors):
            found.errors[message.case, message.backend] = message.outputs
        elif isinstance(message, Traced):
            found.traced[message.case, message.backend] = message
        elif isinstance(message, Death):
            return message, step
        else:
            for result in message:
                found.results[result.case[1], result.backend] = result
    return None, step


def _blame_death(unit: ModelUnit, found: _Found, death: Death, step: Step) -> None:
    """Verdicts on what was under way."""
    if not found.cases:
        found.cases = (ModelCase(Invocation(unit.overload, ())),)
        step = replace(step, cases=((0, 0),))
    for _, index in step.cases:
        for backend in (step.backend,) if step.backend else unit.backends:
            found.results.setdefault(
                (index, backend),
                Result(
                    case=(0, index),
                    backend=backend,
                    stage=step.stage,
                    outcome=death.outcome,
                    blame=UNKNOWN if death.message.startswith(OWN_FAULT) else RUNS_AT[step.stage],
                    message=death.message,
                ),
            )
    if not step.cases:
        # It died while failures were examined: nothing is left to give a verdict on.
        assert found.is_complete(unit)


def _outcome(
    unit: ModelUnit, supervisor: Supervisor, converter_version: str, found: _Found, result: Result
) -> ModelOutcome:
    key = result.case[1], result.backend
    case = found.cases[key[0]]
    traced, grown = found.traced.get(key), found.growths.get(key)
    failed = result.outcome.is_failure
    message, blame, mark = result.message, result.blame, signature(result)
    evidence = []
    if traced is not None:
        refused = result.stage is Stage.CONVERT
        mark = f"{traced.what} depends on the data" if refused else f"specialised by tracing: {traced.what}"
        message, blame = f"{mark}: {traced.evidence}\n{message}", "converter"
        evidence.append(traced.evidence)
    if failed and case.change:
        evidence.append(f"The inputs have {case.change}.")
    if failed and grown is not None:
        evidence.append(str(grown))
    divergence = found.divergences.get(key)
    if divergence is not None:
        evidence.append(divergence.verdict)
    elif key in found.unfound:
        evidence.append(f"No first divergence: {found.unfound[key]}.")
    row = verdict_of(
        result,
        case.invocation,
        found.cases[0].invocation,
        supervisor,
        source=SOURCE,
        family=SOURCE,
        shape_mode=unit.shape_mode,
        converter=unit.converter,
        converter_version=converter_version,
    )
    verdict = replace(
        row,
        blame=(blame or UNKNOWN) if failed else "",
        evidence="\n".join(evidence),
        signature=mark,
        message=message,
    )
    return ModelOutcome(verdict, case, grown, traced, divergence, found.errors.get(key, ()))


def write_details(results_dir: Path, outcomes: Iterable[ModelOutcome]) -> None:
    """Add to what a run says; several processes may do so."""
    text = "".join(f"{as_json(_data(outcome))}\n" for outcome in outcomes)
    try:
        with (results_dir / MODELS_FILE).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ResultsError(f"cannot write {results_dir / MODELS_FILE}: {reason(error)}") from None


#: What a line of `MODELS_FILE` has of the verdict.
_OF_VERDICT = ("overload", "case_id", "exported_invocation", "converter", "backend")


def _data(outcome: ModelOutcome) -> dict[str, Any]:
    verdict, growth = outcome.verdict, outcome.growth
    return {
        **{name: getattr(verdict, name) for name in _OF_VERDICT},
        "change": outcome.case.change,
        "error": growth.error if growth else None,
        "own_error": growth.own if growth else None,
        "explained_error": growth.explained if growth else None,
        "traced": outcome.traced.what if outcome.traced else "",
        "divergence": outcome.divergence.to_data() if outcome.divergence is not None else None,
    }
