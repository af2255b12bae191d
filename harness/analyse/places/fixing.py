"""Search for a small change of a converter that repairs a group of failures and breaks nothing else.

Changes are found on a few failing and passing cases. What is found is kept only if every failing case of the
group passes with it, and if nothing fails that passed among many newly drawn cases of the operators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from harness.analyse.places.edit import Edit
from harness.analyse.places.failing_group import FailingGroup
from harness.analyse.places.fix_task import EVALUATOR, Ranked, Repair, RepairedTask, RepairTask, Trying
from harness.analyse.places.repair import Limits
from harness.compare import Outcome
from harness.core import Invocation
from harness.execute import Death, Group, Result, Settings, Supervisor, Task
from harness.generate import OPERATOR_CASES, draw_examples, load_cases

#: Failing cases that each change is tried on first.
FIRST = 8
#: Structures that are run together: what breaks one is known before the others are run.
_TOGETHER = 128
#: Changes that may take a process down before the search ends.
_DEATHS = 12

#: Carries out a task and gives its messages.
Serve: TypeAlias = Callable[[Any], Iterator[Any]]
#: Carries out tasks in one process and gives their results as they come.
Run: TypeAlias = Callable[[Iterable[Task]], Iterator[list[Result]]]


@dataclass(frozen=True, kw_only=True)
class FixLimits:
    """How long is searched, and how much is checked.

    Attributes:
        seconds: Of processor time for the search, without the check of what it finds.
        examples: Cases to draw of each operator for the check.
        repairs: Changes that are checked at most.
        statements: That are changed, the likeliest first.
    """

    seconds: float = 120.0
    examples: int = 1280
    repairs: int = 6
    statements: int = 40


@dataclass(frozen=True, kw_only=True)
class FixFound:
    """What a search ended with.

    Attributes:
        edit: The change; None where none was found.
        failing: Failing cases of the group that fail here again.
        repaired: Those of them that pass with the change.
        evaluated: Those of these that the backend has no kernel for, and that pass in ONNX's reference
            evaluator.
        passing: Cases of the operators that pass without a change, of those that were drawn; with a change
            all of them pass. 0 where none were run.
        statements: That may be wrong; 0 where no line can be named.
        tried: Changes that were tried.
        refuted: Changes that do what is wanted for the first cases, and not for others.
    """

    edit: Edit | None = None
    failing: int = 0
    repaired: int = 0
    evaluated: int = 0
    passing: int = 0
    statements: int = 0
    tried: int = 0
    refuted: int = 0

    @property
    def complete(self) -> bool:
        """Whether a change repairs all failing cases."""
        return self.edit is not None and self.repaired == self.failing


def find_fix(
    group: FailingGroup,
    limits: FixLimits,
    *,
    timeout: float = 60.0,
    progress: Callable[[str], None] = lambda words: None,
) -> FixFound:
    """Search in processes of their own.

    Args:
        timeout: Seconds for one step of a case, and for one change.
        progress: Told what is done next.

    Raises:
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """

    def serve(task: RepairTask) -> Iterator[Any]:
        with Supervisor(timeout=timeout) as supervisor:
            yield from supervisor.serve_alone(task)

    def run(tasks: Iterable[Task]) -> Iterator[list[Result]]:
        with Supervisor(timeout=timeout) as supervisor:
            for task in tasks:
                yield from supervisor.run(task)

    return search_fix(group, limits, serve, run, progress)


def search_fix(
    group: FailingGroup, limits: FixLimits, serve: Serve, run: Run, progress: Callable[[str], None]
) -> FixFound:
    """The same with other ways to carry out tasks."""
    progress("running the failing cases")
    failing = ended_cases(group.failing, group, run, passes=False)
    if not failing:
        return FixFound()
    found = FixFound(failing=len(failing))
    known = _Known.of(group, failing)
    tried: set[str] = set()
    passing: list[Invocation] | None = None
    while found.refuted < limits.repairs:
        progress("trying changes")
        refuted = False
        for message in known.repairs(group, limits, serve):
            if isinstance(message, Ranked):
                found = replace(found, statements=message.statements)
                continue
            if isinstance(message, Trying):
                tried.add(message.key)
                found = replace(found, tried=len(tried))
                continue
            if passing is None:
                progress("running the operators' cases without a change")
                passing = ended_cases(_drawn(group, limits.examples), group, run, passes=True)
                found = replace(found, passing=len(passing))
            progress(f"checking: {message.edit.rule}")
            checked = _checked(message, failing, passing, found.repaired, group, run)
            if checked.kept:
                edit, evaluated = message.edit, checked.evaluated
                found = replace(found, edit=edit, repaired=checked.repaired, evaluated=evaluated)
                if found.complete:
                    return found
            if message.complete:
                refuted = True
                found = replace(found, refuted=found.refuted + 1)
                known.learn(message, checked)
                break
        if not refuted:
            break
    return found


@dataclass(frozen=True)
class _Checked:
    """What becomes of all cases with a change.

    Attributes:
        repaired: Failing cases that pass.
        evaluated: Those of them that pass in the evaluator alone.
        kept: Whether more are repaired than before, and no passing case fails.
        failing: One that still fails; None where there is none.
        broken: A passing case that fails with it; None where there is none, or none was looked for.
    """

    repaired: int
    evaluated: int
    kept: bool
    failing: Invocation | None
    broken: Invocation | None


@dataclass
class _Known:
    """The cases that changes are tried on first, to which those are added that refute one.

    Attributes:
        skipped: Keys of changes that are not tried again.
        left: Seconds for the search; None before it begins.
    """

    failing: list[Invocation]
    passing: list[Invocation]
    skipped: set[str] = field(default_factory=set)
    left: float | None = None

    @classmethod
    def of(cls, group: FailingGroup, failing: Sequence[Invocation]) -> _Known:
        here = {invocation.case_id for invocation in failing}
        first = [invocation for invocation in group.failing if invocation.case_id in here][:FIRST]
        return cls(first, list(group.passing))

    def learn(self, repair: Repair, checked: _Checked) -> None:
        """Try no change again that fails as this one did."""
        self.skipped.add(repair.edit.key)
        if checked.failing is not None:
            # The first are those that the lines are ranked by.
            self.failing.insert(1, checked.failing)
        if checked.broken is not None:
            self.passing.insert(0, checked.broken)

    def repairs(
        self, group: FailingGroup, limits: FixLimits, serve: Serve
    ) -> Iterator[Ranked | Trying | Repair]:
        """How many statements may be wrong, the key of each change that is tried, those that repair these
        cases, and in the end those that repair some of them."""
        left = limits.seconds if self.left is None else self.left
        for _ in range(_DEATHS):
            last: str | None = None
            died = False
            begun = time.monotonic()
            self.left = left
            task = RepairTask(
                failing=tuple(self.failing),
                passing=tuple(self.passing),
                converter=group.converter,
                backend=group.backend,
                settings=Settings(opset=group.opset, blame=False),
                limits=Limits(tries=10_000, seconds=left, enough=1, statements=limits.statements, rarer=True),
                skipped=frozenset(self.skipped),
            )
            for message in serve(task):
                self.left = left - (time.monotonic() - begun)
                if isinstance(message, Trying):
                    last = message.key
                if isinstance(message, Trying | Ranked | Repair):
                    yield message
                died = died or isinstance(message, Death)
            if not died or last is None:
                return
            self.skipped.add(last)
            left = self.left


def _drawn(group: FailingGroup, examples: int) -> list[Invocation]:
    """New cases of the group's operators, as a run draws them."""
    load_cases()
    return [
        invocation
        for overload in group.overloads
        if overload in OPERATOR_CASES
        for drawn in draw_examples(
            OPERATOR_CASES[overload], seed=group.seed, examples=examples, values=group.values
        )
        for invocation in drawn.invocations
    ]


def ended_cases(
    calls: Sequence[Invocation], group: FailingGroup, run: Run, *, passes: bool
) -> list[Invocation]:
    """Those of some cases that pass here, or fail, without a change, as a group's cases are run."""
    groups = _groups(calls)
    by_key = {(one.index, case): invocation for one in groups for case, invocation in one.cases}
    return [
        by_key[result.case]
        for results in run(_tasks(groups, group))
        for result in results
        if (result.outcome is Outcome.PASS if passes else result.outcome.is_failure)
    ]


def _checked(
    repair: Repair,
    failing: Sequence[Invocation],
    passing: Sequence[Invocation],
    before: int,
    group: FailingGroup,
    run: Run,
) -> _Checked:
    """What becomes of the failing cases with a change, and of the passing ones if more than `before` of the
    failing ones pass."""
    ended = dict(_outcomes(repair, failing, group, run))
    if group.backend != EVALUATOR:
        refused = [call for call in failing if ended.get(call.case_id) is Outcome.UNSUPPORTED]
        of_evaluator = dict(_outcomes(repair, refused, replace(group, backend=EVALUATOR), run))
    else:
        of_evaluator = {}
    right = {case for case, outcome in (ended | of_evaluator).items() if outcome is Outcome.PASS}
    evaluated = sum(outcome is Outcome.PASS for outcome in of_evaluator.values())
    still = next((call for call in failing if call.case_id not in right), None)
    if len(right) <= before:
        return _Checked(len(right), evaluated, False, still, None)
    broken = _broken(repair, passing, group, run)
    return _Checked(len(right), evaluated, broken is None, still, broken)


def _outcomes(
    repair: Repair, calls: Sequence[Invocation], group: FailingGroup, run: Run
) -> Iterator[tuple[str, Outcome]]:
    """How each case ends with a change, by its id."""
    groups = _groups(calls)
    by_key = {(one.index, case): invocation for one in groups for case, invocation in one.cases}
    for results in run(_with(repair, _tasks(groups, group))):
        for result in results:
            yield by_key[result.case].case_id, result.outcome


def _with(repair: Repair, tasks: Iterable[RepairedTask]) -> Iterator[RepairedTask]:
    return (replace(task, file=repair.edit.statement.file, changed=repair.changed) for task in tasks)


def _broken(
    repair: Repair, passing: Sequence[Invocation], group: FailingGroup, run: Run
) -> Invocation | None:
    """The first case that does not pass with a change; None where all do."""
    left = {call.case_id: call for call in passing}
    for case, outcome in _outcomes(repair, passing, group, run):
        if outcome is not Outcome.PASS:
            return left[case]
        del left[case]
    # What took the process down has no outcome.
    return next(iter(left.values()), None)


def _tasks(groups: Sequence[Group], group: FailingGroup) -> Iterator[RepairedTask]:
    settings = Settings(opset=group.opset, blame=False)
    for start in range(0, len(groups), _TOGETHER):
        some = tuple(groups[start : start + _TOGETHER])
        yield RepairedTask(some, group.converter, (group.backend,), settings)


def _groups(calls: Sequence[Invocation]) -> list[Group]:
    """The cases by structure, in the order in which structures come first."""
    by_structure: dict[tuple[str, str], list[Invocation]] = {}
    for call in {call.case_id: call for call in calls}.values():
        by_structure.setdefault((call.overload, call.structure_id), []).append(call)
    alike = by_structure.values()
    return [Group(index, some[0], tuple(enumerate(some))) for index, some in enumerate(alike)]
