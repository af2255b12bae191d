"""Search for a small change of a converter that repairs a group of failures and breaks nothing else.

Changes are found on a few failing and passing cases. What is found is kept only if every failing case of the
group passes with it, and if nothing fails that passed among many newly drawn cases of the operators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from harness.analyse.places.edits import Edit
from harness.analyse.places.failing_group import FailingGroup
from harness.analyse.places.fix_task import Ranked, Repair, RepairedTask, RepairTask, Trying
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
        failing: Failing cases of the group that fail here again; with a change all of them pass.
        passing: Cases of the operators that pass without a change, of those that were drawn; with a change
            all of them pass. 0 where none were run.
        statements: That may be wrong; 0 where no line can be named.
        tried: Changes that were tried.
        refuted: Changes with which the first cases pass, and others do not.
    """

    edit: Edit | None = None
    failing: int = 0
    passing: int = 0
    statements: int = 0
    tried: int = 0
    refuted: int = 0


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
    passing: list[Invocation] | None = None
    progress("trying changes")
    for message in _repairs(group, failing, limits, serve):
        if isinstance(message, Ranked):
            found = replace(found, statements=message.statements)
            continue
        if isinstance(message, Trying):
            found = replace(found, tried=max(found.tried, message.number + 1))
            continue
        if passing is None:
            progress("running the operators' cases without a change")
            passing = ended_cases(_drawn(group, limits.examples), group, run, passes=True)
            found = replace(found, passing=len(passing))
        progress(f"checking: {message.edit.rule}")
        if _all_pass(message, [*failing, *passing], group, run):
            return replace(found, edit=message.edit)
        found = replace(found, refuted=found.refuted + 1)
        if found.refuted >= limits.repairs:
            break
    return found


def _repairs(
    group: FailingGroup, failing: Sequence[Invocation], limits: FixLimits, serve: Serve
) -> Iterator[Ranked | Trying | Repair]:
    """How many statements may be wrong, the number of each change that is tried, and those that repair the
    first cases."""
    begun = time.monotonic()
    first = {invocation.case_id for invocation in failing}
    chosen = [invocation for invocation in group.failing if invocation.case_id in first][:FIRST]
    skipped: set[int] = set()
    for _ in range(_DEATHS):
        last: int | None = None
        died = False
        task = RepairTask(
            failing=tuple(chosen),
            passing=group.passing,
            converter=group.converter,
            backend=group.backend,
            settings=Settings(opset=group.opset, blame=False),
            limits=Limits(
                tries=10_000,
                seconds=limits.seconds - (time.monotonic() - begun),
                enough=limits.repairs,
                statements=limits.statements,
                rarer=True,
            ),
            skipped=frozenset(skipped),
        )
        for message in serve(task):
            if isinstance(message, Trying | Ranked):
                last = message.number if isinstance(message, Trying) else last
                yield message
            elif isinstance(message, Repair):
                assert last is not None
                # It need not be tried again where a later one takes the process down.
                skipped.add(last)
                yield message
            died = died or isinstance(message, Death)
        if not died or last is None:
            return
        skipped.add(last)


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


def _all_pass(repair: Repair, calls: Sequence[Invocation], group: FailingGroup, run: Run) -> bool:
    """Whether all cases pass with a change."""
    groups = _groups(calls)
    file = repair.edit.statement.file
    passed = 0
    for results in run(replace(t, file=file, changed=repair.changed) for t in _tasks(groups, group)):
        if any(result.outcome is not Outcome.PASS for result in results):
            return False
        passed += len(results)
    return passed == sum(len(one.cases) for one in groups)


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
