"""Diagnose the failures of a task: some are examined, and the others inherit (`harness.blame.selection`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, TypeAlias

from harness.blame.examiner import Examiner
from harness.blame.selection import Selection
from harness.blame.task_failures import TaskFailures
from harness.blame.testimony import BlameTask
from harness.blame.unexamined import decide_at_once, may_have_other_culprit
from harness.compare.diagnosis import Diagnosis, Finding, Role, Testimony
from harness.compare.faults import Fault
from harness.compare.problem_kinds import VALUES
from harness.compare.verdict import BACKEND, SPEC, Outcome, Stage
from harness.generate.call_traits import is_ordinary
from harness.pipeline.case_run import CaseRun
from harness.pipeline.task import Task
from harness.pipeline.worker import WorkerProcess

#: Backend, stage, outcome and message of failures, and the outputs that they are about.
_Kind: TypeAlias = tuple[str, Stage, Outcome, str, tuple[int, ...]]


def carry_out(task: BlameTask, worker: WorkerProcess) -> None:
    """Send the failures of a task, each problem of each with a diagnosis."""
    worker.send(_assign_blame(task.results, task.task, Examiner(task, worker)))


def _assign_blame(results: Sequence[CaseRun], task: Task, examiner: Examiner) -> list[CaseRun]:
    firsts = _explained_by_tracing(results, task, examiner)
    problems = [problem for first in firsts for problem in (first, *first.further)]
    failures = TaskFailures(problems, task, examiner)
    inaccurate = _inaccurate(failures)
    failures.diagnoses |= {i: _formula_diagnosis(problems[i], node) for i, node in inaccurate.items()}
    kinds: defaultdict[_Kind, list[int]] = defaultdict(list)
    for i, problem in enumerate(problems):
        if i in inaccurate:
            continue
        diagnosis = decide_at_once(problem, task.route)
        if diagnosis is not None and not may_have_other_culprit(problem, failures.invocation(i)):
            failures.diagnoses[i] = diagnosis
        else:
            kinds[problem.backend, *problem.ending, problem.wrong_outputs].append(i)
    selections = [Selection(failures, tuple(members)) for members in kinds.values()]
    for _ in range(3):
        failures.examine([i for selection in selections for i in selection.choose()])
    failures.examine([i for selection in selections for i in selection.audited()])
    failures.examine([i for selection in selections for i in selection.distrusted()])
    failures.diagnoses |= {i: heir for selection in selections for i, heir in selection.heirs().items()}
    _accuse_of_contradiction(failures)
    near = {*inaccurate, *_near_largest(failures, firsts)}
    failures.results = [replace(r, outcome=Outcome.INACCURATE) if i in near else r for i, r in enumerate(problems)]
    return _cases(failures, firsts)


def _cases(failures: TaskFailures, firsts: Sequence[CaseRun]) -> list[CaseRun]:
    """Return the cases of diagnosed problems: the first problem of each, with the others as its further ones."""
    everything = range(len(failures.results))
    problems = ([failures.diagnosed(i), *failures.diagnosed_rest(i)] for i in everything)
    cases = (chain.from_iterable(islice(problems, 1 + len(first.further))) for first in firsts)
    return [replace(run, further=tuple(further)) for run, *further in cases]


def _explained_by_tracing(results: Sequence[CaseRun], task: Task, examiner: Examiner) -> list[CaseRun]:
    """Return the failures, those of a whole model with what tracing fixed."""
    firsts = list(results)
    if task.model is None or task.model.is_graph:
        return firsts
    failing_examples = {result.backend for result in results if result.case[1] == 0}
    failures = TaskFailures(results, task, examiner)
    for i, result in enumerate(results):
        passes = result.backend not in failing_examples
        traced = examiner.find_tracing(failures.failure(i), example_passes=passes)
        if traced is not None:
            firsts[i] = replace(result, model_run=replace(result.model_run, traced=traced))
    return firsts


def _accuse_of_contradiction(failures: TaskFailures) -> None:
    """Blame a runtime for a result that the specification leaves open if its own optimisations change it.

    One case of each structure is run without them; the others inherit.
    """
    by_structure: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for i, result in enumerate(failures.results):
        if result.blame == SPEC and result.graph_kind:
            by_structure[result.backend, failures.structure(i)].append(i)
    firsts = [members[0] for members in by_structure.values()]
    left_open = {i: failures.diagnoses[i] for i in firsts}
    failures.examine(firsts)
    for first, *others in by_structure.values():
        diagnosis = failures.diagnoses[first]
        if diagnosis.blame != BACKEND:
            failures.diagnoses[first] = left_open[first]
            continue
        heir = replace(diagnosis, inherited_from=failures.invocation(first).case_id)
        failures.diagnoses |= dict.fromkeys(others, heir)


def _near_largest(failures: TaskFailures, firsts: Sequence[CaseRun]) -> Iterator[int]:
    """Yield the indices of problems of ordinary calls whose errors are small next to the output's largest element.

    Models rely on no more. Of an edge case the single element is the question.
    """
    index = 0
    for first in firsts:
        indices = range(index, index := index + 1 + len(first.further))
        near = first.comparison is not None and first.comparison.within_largest and first.blame != SPEC
        if near and is_ordinary(failures.invocation(indices[0])):
            yield from indices


def _inaccurate(failures: TaskFailures) -> dict[int, Mapping[str, Any]]:
    """Return index → the node with the formula of each failure that formulas explain."""
    candidates = [
        i
        for i, result in enumerate(failures.results)
        if (result.graph_kind or failures.task.model is not None)
        and not result.further
        and result.blame != SPEC
        and _is_of_values(result)
    ]
    nodes = ((i, failures.examiner.find_formula(failures.failure(i))) for i in candidates)
    return {i: node for i, node in nodes if node is not None}


def _is_of_values(result: CaseRun) -> bool:
    """Whether only finite numbers are wrong."""
    comparison = result.comparison
    return comparison is not None and {problem.kind for problem in comparison.problems} == {VALUES}


def _formula_diagnosis(result: CaseRun, node: Mapping[str, Any]) -> Diagnosis:
    facts = {"backend": result.backend, "node": node, "kernel_fault": Fault.INACCURATE}
    wrong = Testimony(Role.NODES, Finding.WRONG, "formula-rounded", facts)
    return Diagnosis(BACKEND, "rounded-formula", {"backend": result.backend}, (wrong,))
