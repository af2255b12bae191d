"""Keep a worker process alive, hand it tasks, and find the case that kills it.

A crash, a hang or a runaway allocation costs only the guilty case its verdict:

1. Results that were reported before it stand.
2. The cases under way are halved until the guilty one is alone; after a hang each is tried alone at once.
3. The rest continues in a fresh process. If a runtime has hung, the time limit is a tenth for the other cases of
   that run, for other values of a structure that hung, and for later calls of the same overload.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from harness.compare.verdict import RUNS_AT, UNKNOWN, Outcome, Stage
from harness.core.case_group import CaseGroup, MemberKey
from harness.core.invocation import Invocation
from harness.core.isolation import Blackboard, IsolatedProcess, ProcessDied, Send, preload_in_fork_server
from harness.pipeline.case_run import CaseRun
from harness.pipeline.task import (
    Finished,
    Noted,
    Resized,
    ResizeTask,
    Started,
    Step,
    Task,
    WorkerTask,
)

#: Kind of limit → the option that sets it.
_OPTIONS = {"time": " (--timeout)", "memory": " (--memory-limit)"}
#: The reason for a shorter time limit, as the end of a message.
_AFTER_VALUES = ", after other values of the same structure were waited for to the limit"
_AMONG_OTHERS = ", after it was waited for to the limit among other cases"
_AFTER_CALLS = ", after other calls of the overload were waited for to the limit"

# The first process that is forked fixes the modules of all others, so this is registered as early as possible.
preload_in_fork_server("harness.pipeline.preload")


class WorkerFailed(RuntimeError):
    """The worker process does not start, or dies before it begins; the message gives the reason."""


@dataclass(frozen=True)
class Death:
    """The end of a worker.

    Attributes:
        outcome: `CRASH` or `TIMEOUT`.
        message: The same in words.
        announced: Its last announcement.
        is_of_harness: Whether the harness itself failed, so that no component may be blamed.
    """

    outcome: Outcome
    message: str
    announced: object = None
    is_of_harness: bool = False


class Supervisor:
    """Runs tasks in a worker process of its own.

    Args:
        timeout: Seconds that one step of a batch may take: one reference call, one export, one
            load, one run.
        memory_limit: Bytes of resident memory that the worker may reach.
        recycle_after: Tasks after which the worker is replaced, to bound the leaks of exporters and
            runtimes. Forking a new one costs some tens of milliseconds.
    """

    def __init__(self, *, timeout: float = 120.0, memory_limit: int = 4 * 2**30, recycle_after: int = 50) -> None:
        self._timeout = timeout
        self._recycle_after = recycle_after
        self._directory = tempfile.TemporaryDirectory(prefix="harness-board-")
        self._board = Blackboard(Path(self._directory.name) / "board")
        self._worker = IsolatedProcess(
            partial(_serving, self._board), fork=True, memory_limit=memory_limit, board=self._board
        )
        #: Converter, overload and backend of runs that reached the time limit.
        self._waited_for: set[tuple[str, str, str]] = set()
        #: Backend name → version and device that the worker reported.
        self.backends: dict[str, Started] = {}
        #: The number of the latest task of `run`.
        self.serial = 0
        #: Messages for the user about the converters that took part.
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
        self._directory.cleanup()

    @property
    def worker_pid(self) -> int | None:
        """Return the process id of the worker, or None if none runs."""
        return self._worker.pid

    def run(self, task: Task) -> Iterator[list[CaseRun]]:
        """Run `task`, and yield one `CaseRun` per case and backend, in lists as they come."""
        self.serial += 1
        if self._worker.served >= self._recycle_after:
            # Not later: the failures of a task are diagnosed where they happened.
            self._worker.stop()
        stack = [replace(task, serial=self.serial)]
        #: Groups during which the process died with others in the batch → description of the death.
        accused: dict[int, str] = {}
        while stack:
            current = self._shorten_timeouts(stack.pop())
            done: set[tuple[MemberKey, str]] = set()
            step: Step | None = None
            died = False
            for message in self.serve(current):
                if isinstance(message, Step):
                    step = message
                elif isinstance(message, list):
                    done.update((r.case, r.backend) for r in message)
                    yield message
                elif isinstance(message, Death):
                    if isinstance(message.announced, Step):
                        step = message.announced
                    died = True
                    self._note_hang(current, step, message.outcome)
                    verdicts, rest = _after_death(current, done, step, message)
                    if verdicts:
                        yield verdicts
                    elif step is not None and message.outcome is Outcome.CRASH:
                        accused.update({group: message.message for group, _ in step.cases})
                    stack.extend(rest)
            if not died and len(current.groups) == 1 and current.groups[0].index in accused:
                self._note_death_in_company(current, accused[current.groups[0].index])

    def _shorten_timeouts(self, task: Task) -> Task:
        """Return the task with the known hangs of its overload."""
        known = {
            backend: _AFTER_CALLS
            for backend in task.backends
            if any(key in self._waited_for for key in _runs(task, backend))
        }
        return replace(task, shortened_timeouts={**known, **task.shortened_timeouts})

    def _note_death_in_company(self, task: Task, how: str) -> None:
        overload, where = task.groups[0].exported.overload, " and ".join(task.backends)
        reason = how.partition("\n")[0]
        self.notes.append(f"{where}: a worker ended during {overload} ({reason}); not reproducible alone")

    def _note_hang(self, task: Task, step: Step | None, outcome: Outcome) -> None:
        if step and step.backend and (step.stage, outcome) == (Stage.RUN, Outcome.TIMEOUT):
            self._waited_for |= _runs(task, step.backend)

    def resize(self, bases: Sequence[Invocation], count: int) -> list[tuple[Invocation, ...]]:
        """Return at most `count` valid invocations of other sizes for each of `bases`, in their order."""
        found: dict[int, tuple[Invocation, ...]] = {}
        left = list(enumerate(bases))
        while left:
            step: Step | None = None
            for message in self.serve(ResizeTask(tuple(left), count)):
                if isinstance(message, Resized):
                    found[message.index] = message.variants
                elif isinstance(message, Step):
                    step = message
                elif isinstance(message, Death):
                    if step is None:
                        raise WorkerFailed(message.message)
                    # The larger sizes killed PyTorch; the base itself is run and judged anyway.
                    found.setdefault(step.cases[0][0], ())
            left = [(i, base) for i, base in left if i not in found]
        return [found[i] for i in range(len(bases))]

    def serve_alone(self, task: WorkerTask) -> Iterator[Any]:
        """Serve in a fresh worker: state that PyTorch keeps from one export can make the next one fail."""
        if self._worker.served:
            self._worker.stop()
        return self.serve(task)

    def serve(self, task: WorkerTask, *, patience: float = 1.0) -> Iterator[Any]:
        """Yield the messages of one task; a `Death` comes last if the worker did not survive it.

        Args:
            task: The task.
            patience: The share of the time limit that a step of it may take, though not less than 5 seconds.

        Raises:
            WorkerFailed: no worker can be started.
        """
        self._board.clear()
        try:
            self._worker.send(task)
        except ProcessDied as died:
            raise WorkerFailed(died.account) from None
        limit = _shortened(self._timeout, patience)
        in_doubt = False
        while True:
            try:
                message = self._worker.receive(_shortened(limit, _BRIEFLY) if in_doubt else limit)
            except ProcessDied as died:
                outcome = Outcome.TIMEOUT if died.hung else Outcome.CRASH
                sentence = died.account + _OPTIONS.get(died.limit, "")
                yield Death(outcome, sentence, self._board.read())
                return
            if isinstance(message, Step):
                in_doubt = isinstance(task, Task) and message.backend in task.shortened_timeouts
            if isinstance(message, Started):
                self.backends[message.backend] = message
            elif isinstance(message, Noted):
                if message.note not in self.notes:
                    self.notes.append(message.note)
            elif isinstance(message, Finished):
                if message.lost:
                    self._worker.stop()
                    yield Death(Outcome.CRASH, message.lost, self._board.read(), message.is_of_harness)
                return
            else:
                yield message


def _runs(task: Task, backend: str) -> set[tuple[str, str, str]]:
    return {(task.route.converter, group.exported.overload, backend) for group in task.groups}


#: The share of the time limit for a runtime that has hung before.
_BRIEFLY = 0.1


def _shortened(timeout: float, patience: float) -> float:
    return min(timeout, max(5.0, timeout * patience))


def _serving(board: Blackboard, send: Send) -> Callable[[WorkerTask], None]:
    # The fork server has loaded this module's imports, which the session does not need.
    from harness.pipeline.worker import start_worker

    def announce(message: object) -> None:
        board.write(message)
        # Earlier output belongs to other cases.
        os.ftruncate(2, 0)

    return start_worker(send, announce)


def blame_for_death(death: Death, stage: Stage) -> str:
    """Return the component to blame for the end of a worker at a stage."""
    return UNKNOWN if death.is_of_harness else RUNS_AT[stage]


def _after_death(
    task: Task, done: set[tuple[MemberKey, str]], step: Step | None, death: Death
) -> tuple[list[CaseRun], list[Task]]:
    """Return verdicts on the guilty cases, and the rest of the task."""
    if step is None:
        raise WorkerFailed(f"the worker process ended before it began: {death.message}")
    hit = (step.backend,) if step.backend else task.backends
    suspects = list(dict.fromkeys(group for group, _ in step.cases))
    known = {(result.case, result.backend): result for result in step.known_results}
    guilty: list[CaseRun] = []
    split: list[set[int]] = []
    hung: set[tuple[int, str]] = set()
    message = death.message
    if step.backend and death.outcome is Outcome.TIMEOUT:
        message += task.shortened_timeouts.get(step.backend, "")
    in_company = step.backend is not None and len(task.groups) > 1 and not known
    if len(suspects) == 1 and death.outcome is Outcome.CRASH and in_company:
        # An earlier case may have damaged the process: a process of its own shows whether this case is guilty.
        split = [set(suspects)]
    elif len(suspects) == 1:
        guilty = [
            known.get((case, backend))
            or CaseRun(
                case=case,
                backend=backend,
                stage=step.stage,
                outcome=death.outcome,
                blame=blame_for_death(death, step.stage),
                is_of_harness=death.is_of_harness,
                is_forbidden=step.is_forbidden,
                message=message,
            )
            for case in step.cases
            for backend in hit
            if (case, backend) not in done
        ]
        done = done | {(r.case, r.backend) for r in guilty}
        if death.outcome is Outcome.TIMEOUT:
            hung = {(suspects[0], backend) for backend in hit}
    elif death.outcome is Outcome.TIMEOUT:
        # Each half with the guilty case would take the whole time limit again.
        split = [{suspect} for suspect in suspects]
    else:
        middle = len(suspects) // 2
        split = [set(suspects[:middle]), set(suspects[middle:])]
    among = set(suspects) if split and (death.outcome, step.stage) == (Outcome.TIMEOUT, Stage.RUN) else set()

    def doubt(group: int, backend: str) -> str:
        if (group, backend) in hung:
            return _AFTER_VALUES
        return task.shortened_timeouts.get(backend) or (_AMONG_OTHERS if group in among and backend in hit else "")

    return guilty, _left(task, done, doubt, split)


def _left(
    task: Task, done: set[tuple[MemberKey, str]], doubt: Callable[[int, str], str], split: Sequence[set[int]]
) -> list[Task]:
    """Return the rest of a task, in parts of `split` groups each and one of all others.

    `doubt` returns the reason why a backend may hang with a group; "" for no reason.
    """
    pending: dict[tuple[tuple[str, str], ...], list[CaseGroup]] = {}
    for group in task.groups:
        by_backends: dict[tuple[tuple[str, str], ...], list[tuple[int, Invocation]]] = {}
        for case, invocation in group.cases:
            left = [b for b in task.backends if ((group.index, case), b) not in done]
            if left:
                doubts = tuple((backend, doubt(group.index, backend)) for backend in left)
                by_backends.setdefault(doubts, []).append((case, invocation))
        for key, cases in by_backends.items():
            pending.setdefault(key, []).append(replace(group, cases=tuple(cases)))
    tasks = []
    for doubts, groups in pending.items():
        backends = tuple(backend for backend, _ in doubts)
        why = {backend: words for backend, words in doubts if words}
        for suspected in [*split, None]:
            chosen = tuple(
                g
                for g in groups
                if (g.index in suspected if suspected is not None else not any(g.index in s for s in split))
            )
            if chosen:
                tasks.append(replace(task, groups=chosen, backends=backends, shortened_timeouts=why))
    return tasks
