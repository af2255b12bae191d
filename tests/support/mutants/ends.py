"""How an operator's drawn cases end, in a process of its own: what is mutated may crash, hang or eat memory.

The process is forked from one in which converters are warm, and goes the way that a worker of a run goes.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from harness.blame.examined_failures import signature
from harness.execute.case_runner import Executor
from harness.execute.task import Group, Result, Settings, Step, Task
from harness.execute.worker import WorkerProcess, start_worker
from harness.generate.draws import draw_cases
from harness.generate.operator_case import OPERATOR_CASES
from mutants.mutation import MODULES

#: The default budget of an operator.
STRUCTURES, VALUES = 32, 4
#: Bytes that the process may have: a mutation may ask for a huge result.
_MEMORY = 6 * 2**30
#: How often the cases that are left are tried in another process.
_DEATHS = 4
_SETTINGS = Settings(blame=False)
#: Operators that exporters decompose, for which they need more than for others.
_WARMING = ("aten.inner.default", "aten.var_mean.correction", "aten.celu.default")


@dataclass
class Ends:
    """How the cases of one operator end with one converter and onnxruntime.

    Attributes:
        cases: Case id → stage, outcome and signature in one text.
        died: Case ids with which a process ended or hung.
    """

    cases: dict[str, str] = field(default_factory=dict)
    died: list[str] = field(default_factory=list)

    def first_other(self, mutated: Ends) -> tuple[str, str, str] | None:
        """A case that ends in another way: its id, and how it ended without the mutation and with it."""
        for case, end in self.cases.items():
            if case in mutated.died:
                return case, end, "died"
            if (other := mutated.cases.get(case, end)) != end:
                return case, end, other
        return None


def warm_up() -> None:
    """Fill what converters keep between exports, for the processes that are forked from this one."""
    # The process that workers are forked from does the same, and sets what they run with.

    worker = start_worker(lambda message: None)
    for operator in _WARMING:
        for converter in MODULES:
            worker(Task(tuple(drawn_groups(operator, 0, 2)), converter, ("ort-cpu",), _SETTINGS))


def drawn_groups(operator: str, seed: int, structures: int = STRUCTURES) -> list[Group]:
    """The drawn cases of an operator, as a run makes tasks of them."""
    cases = draw_cases(OPERATOR_CASES[operator], seed=seed, structures=structures, values=VALUES)
    return [
        Group(index, drawn.invocations[0], tuple(enumerate(drawn.invocations))) for index, drawn in enumerate(cases)
    ]


def ends_of(
    groups: Sequence[Group],
    converter: str,
    *,
    seconds: float,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
    backends: tuple[str, ...] = ("ort-cpu",),
) -> Ends:
    """Run the cases of `groups`.

    Args:
        seconds: Of processor time for all of them; what is not done then has no end, but for the case that
            took them.
        within: A context to run them in.
    """
    ends = Ends()
    left = list(groups)
    for _ in range(_DEATHS):
        guilty = _once(left, converter, ends, seconds, within, backends)
        if not guilty:
            break
        ends.died += [case for group in left if group.index in guilty for case in _case_ids(group)]
        left = [group for group in left if group.index not in guilty]
    return ends


def case_ends(groups: Sequence[Group], converter: str, seconds: float = 30.0) -> dict[str, str]:
    """How the cases of `groups` end; those with which a process ended have no end."""
    return ends_of(groups, converter, seconds=seconds).cases if groups else {}


def _case_ids(group: Group) -> list[str]:
    return [invocation.case_id for _, invocation in group.cases]


def _once(
    groups: Sequence[Group],
    converter: str,
    ends: Ends,
    seconds: float,
    within: Callable[[], AbstractContextManager[object]],
    backends: tuple[str, ...],
) -> set[int]:
    """Run what has no end yet; the groups that the process was about when it ended early."""
    ids = {(group.index, i): call.case_id for group in groups for i, call in group.cases}
    task = Task(tuple(groups), converter, backends, _SETTINGS)
    step: set[int] = set()
    with _child(lambda connection: _serve(task, connection, seconds, within), seconds) as messages:
        for message in messages:
            if message is None:
                return set()
            if isinstance(message, set):
                step = message
            elif isinstance(message, dict):
                ends.cases.update({ids[key]: end for key, end in message.items()})
    return step if len(step) <= 8 else set(list(step)[:1])


def _serve(
    task: Task,
    connection: Connection,
    seconds: float,
    within: Callable[[], AbstractContextManager[object]],
) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))

    def send(message: object) -> None:
        if isinstance(message, Step):
            connection.send({group for group, _ in message.cases})
        elif isinstance(message, list):
            connection.send({result.case: _end(result) for result in message})

    with within():
        Executor(task, WorkerProcess(send)).execute()
    connection.send(None)


def _end(result: Result) -> str:
    return f"{result.stage} {result.outcome} {signature(result)}"


@contextmanager
def _child(serve: Callable[[Connection], None], seconds: float) -> Iterator[Iterator[object]]:
    """What a forked process sends; it is ended if it takes much longer than `seconds` by the clock."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if not pid:
        try:
            ours.close()
            # A process that crashes says so.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    try:
        yield _messages(ours, time.monotonic() + 8 * seconds)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        ours.close()


def _messages(connection: Connection, until: float) -> Iterator[object]:
    while connection.poll(max(until - time.monotonic(), 0)):
        try:
            yield connection.recv()
        except EOFError:
            return
