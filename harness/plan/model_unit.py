"""One unit of work on whole models: a model, a converter, its backends. What a pytest item runs.

What a run says of its models beyond the verdicts is in ``RESULTS/models.jsonl``: a line per verdict, with
overload, case_id, exported_invocation, converter, backend, change, error, own_error, explained_error, traced
and divergence. The errors are those of `harness.pipeline.model_task.ErrorGrowth`, null where nothing was
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from harness.blame.examined_failures import signature
from harness.compare.verdict import UNKNOWN, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.documents import as_json
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.model_listing import list_runs
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelInputs, ModelSource
from harness.pipeline.supervisor import Death, Supervisor, blame_for_death
from harness.pipeline.task import Group, Result, Settings, Task
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
    version = find_converter(unit.route.converter).version()
    for key, result in sorted(results.items()):
        yield _outcome(unit, supervisor, version, cases, result, located.get(key))


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
    message, blame, mark = result.message, result.blame, signature(result)
    evidence = []
    if traced is not None:
        refused = result.stage is Stage.CONVERT
        mark = f"{traced.what} depends on the data" if refused else f"specialised by tracing: {traced.what}"
        message, blame = f"{mark}: {traced.evidence}\n{message}", "converter"
        evidence.append(traced.evidence)
    if failed and inputs.change:
        evidence.append(f"The inputs have {inputs.change}.")
    if failed and result.growth is not None:
        evidence.append(str(result.growth))
    if isinstance(located, str):
        evidence.append(f"No first divergence: {located}.")
    elif located is not None:
        evidence.append(located.verdict)
    row = verdict_of(
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
        row,
        blame=(blame or UNKNOWN) if failed else "",
        evidence="\n".join(evidence),
        signature=mark,
        message=message,
    )
    return ModelOutcome(verdict, inputs, result, None if isinstance(located, str) else located)


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
    verdict, growth, traced = outcome.verdict, outcome.result.growth, outcome.result.traced
    return {
        **{name: getattr(verdict, name) for name in _OF_VERDICT},
        "change": outcome.inputs.change,
        "error": growth.error if growth else None,
        "own_error": growth.own if growth else None,
        "explained_error": growth.explained if growth else None,
        "traced": traced.what if traced else "",
        "divergence": outcome.divergence.to_data() if outcome.divergence is not None else None,
    }
