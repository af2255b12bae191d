"""The failures of a task, and their diagnoses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.blame.examiner import Examiner
from harness.blame.testimony import Failure
from harness.blame.unexamined import add_diagnosis
from harness.compare.diagnosis import Diagnosis
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.pipeline.case_run import CaseRun
from harness.pipeline.task import Task


@dataclass
class TaskFailures:
    """The problems of a task's failing cases, and the diagnoses that are known by now.

    Attributes:
        results: The problems.
        task: The task.
        examiner: Looks into a failure.
        diagnoses: Index of a problem → its diagnosis.
    """

    results: Sequence[CaseRun]
    task: Task
    examiner: Examiner
    diagnoses: dict[int, Diagnosis] = field(default_factory=dict)

    @cached_property
    def groups(self) -> Mapping[int, CaseGroup]:
        """Index → group."""
        return {group.index: group for group in self.task.groups}

    def invocation(self, index: int) -> Invocation:
        """Return the case of a failure."""
        group, case = self.results[index].case
        return dict(self.groups[group].cases)[case]

    def structure(self, index: int) -> int:
        """Return the index of the group that the case of a failure is in."""
        return self.results[index].case[0]

    def failure(self, index: int) -> Failure:
        """Return a failure in the form that witnesses get."""
        result = self.results[index]
        return Failure(
            index=index,
            # Other problems of the case are failures of their own.
            result=replace(result, further=()),
            route=replace(self.task.route, backend=result.backend),
            group=self.groups[result.case[0]],
            source=self.task.model,
        )

    def diagnosed(self, index: int, diagnosis: Diagnosis | None = None) -> CaseRun:
        """Return a failure with a diagnosis, by default its own."""
        diagnosis = diagnosis or self.diagnoses[index]
        return add_diagnosis(self.results[index], self.invocation(index), self.task.route, diagnosis)

    def diagnosed_rest(self, index: int) -> list[CaseRun]:
        """Return a failure again with the diagnosis of what the first one does not explain; empty if it explains
        all."""
        rest = self.diagnoses[index].rest
        return [] if rest is None else [self.diagnosed(index, rest)]

    def examine(self, chosen: Iterable[int]) -> None:
        """Ask the witnesses about some failures."""
        self.diagnoses |= {index: self.examiner.diagnose(self.failure(index)) for index in chosen}
