"""Keeps a worker process alive, hands it tasks, and finds out which case killed it.

A crash, a hang or a runaway allocation costs the guilty case its verdict and everything else
nothing: what was reported before it stands, the cases under way are halved until the guilty one is
alone, and the rest goes on in a fresh process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from harness.compare import RUNS_AT, UNKNOWN, Outcome
from harness.core import Invocation
from harness.execute.task import (
    OWN_FAULT,
    Finished,
    Group,
    MemberKey,
    Ready,
    Resized,
    ResizeTask,
    Result,
    Started,
    Step,
    Task,
    WorkerTask,
)

#: How often a working process's memory is looked at, in seconds.
_POLL = 0.1
#: Seconds that importing PyTorch and a first export may take on a loaded machine.
_START_TIMEOUT = 300.0


class WorkerFailed(RuntimeError):
    """The worker process does not start or dies before it has begun anything; says why."""


@dataclass(frozen=True)
class Death:
    """How a worker ended.

    Attributes:
        outcome: `CRASH` or `TIMEOUT`.
        message: In what words.
    """

    outcome: Outcome
    message: str


class Supervisor:
    """Runs tasks in a worker process of its own.

    Args:
        timeout: Seconds that one step of a batch may take: one reference call, one export, one
            load, one run.
        memory_limit: Bytes of resident memory that the worker may reach.
        recycle_after: Tasks after which the worker is replaced, which bounds what exporters and
            runtimes leak. Forking a new one costs some tens of milliseconds.
    """

    def __init__(
        self, *, timeout: float = 120.0, memory_limit: int = 4 * 2**30, recycle_after: int = 50
    ) -> None:
        self._timeout = timeout
        self._memory_limit = memory_limit
        self._recycle_after = recycle_after
        self._process: Any = None
        self._connection: Connection | None = None
        #: Never written to; it closes with this process, however that ends.
        self._alive: Connection | None = None
        self._served = 0
        self._directory = tempfile.TemporaryDirectory(prefix="harness-worker-")
        self._log = Path(self._directory.name) / "output"
        #: Backend name → version and device, as the worker found them.
        self.backends: dict[str, Started] = {}

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        self._discard()
        self._directory.cleanup()

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, None where none runs."""
        return self._process.pid if self._process is not None else None

    def run(self, task: Task) -> Iterator[list[Result]]:
        """Carry out `task`: one `Result` per case and backend, in lists as they come.

        Raises:
            WorkerFailed: no worker can be started.
        """
        stack = [task]
        while stack:
            current = stack.pop()
            done: set[tuple[MemberKey, str]] = set()
            step: Step | None = None
            death: Death | None = None
            for message in self.serve(current):
                if isinstance(message, Step):
                    step = message
                elif isinstance(message, list):
                    done.update((r.case, r.backend) for r in message)
                    yield message
                elif isinstance(message, Death):
                    death = message
            if death is not None:
                verdicts, rest = _after_death(current, done, step, death)
                if verdicts:
                    yield verdicts
                stack.extend(rest)

    def resize(self, bases: Sequence[Invocation], count: int) -> list[tuple[Invocation, ...]]:
        """At most `count` valid invocations of other sizes for each of `bases`, in their order."""
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
                    # Growing it killed PyTorch; the base itself is run and judged all the same.
                    found.setdefault(step.cases[0][0], ())
            left = [(i, base) for i, base in left if i not in found]
        return [found[i] for i in range(len(bases))]

    def serve_alone(self, task: WorkerTask) -> Iterator[Any]:
        """As `serve`, in a worker of its own: what PyTorch keeps of one export can make the next one fail.

        Raises:
            WorkerFailed: no worker can be started.
        """
        if self._served:
            self._discard()
        return self.serve(task)

    # The process

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["harness.execute.preload"])
        from harness.execute.worker import main

        self._log.write_bytes(b"")
        ours, theirs = context.Pipe()
        watched, alive = context.Pipe(duplex=False)
        process = context.Process(target=main, args=(theirs, watched, str(self._log)), daemon=True)
        process.start()
        theirs.close()
        watched.close()
        self._process, self._connection, self._alive, self._served = process, ours, alive, 0
        # The first process waits for the imports and the first export of the fork server.
        answer = self._next(timeout=_START_TIMEOUT)
        if not isinstance(answer, Ready):
            raise WorkerFailed(f"the worker process does not start: {answer.message}")

    def _discard(self) -> None:
        if self._process is None:
            return
        assert self._connection is not None
        assert self._alive is not None
        self._connection.close()
        self._process.join(0.2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self._alive.close()
        self._process = self._connection = self._alive = None

    def serve(self, task: WorkerTask) -> Iterator[Any]:
        """Messages of one task; a `Death` comes last where the worker did not survive it.

        Raises:
            WorkerFailed: no worker can be started.
        """
        if self._process is not None and self._served >= self._recycle_after:
            self._discard()
        if self._process is None:
            self._start()
        assert self._connection is not None
        self._served += 1
        with contextlib.suppress(BrokenPipeError):
            self._connection.send(task)
        while True:
            message = self._next()
            if isinstance(message, Started):
                self.backends[message.backend] = message
            elif isinstance(message, Finished):
                if message.lost:
                    self._discard()
                    yield Death(Outcome.CRASH, message.lost)
                return
            else:
                yield message
                if isinstance(message, Death):
                    return

    def _next(self, timeout: float | None = None) -> Any:
        """The worker's next message, or how it ended."""
        assert self._connection is not None
        deadline = time.monotonic() + (timeout or self._timeout)
        while True:
            if wait([self._connection], timeout=_POLL):
                try:
                    return self._connection.recv()
                except (EOFError, ConnectionResetError):
                    return self._died()
            excess = self._excess_memory()
            if excess:
                self._kill()
                return Death(Outcome.CRASH, excess)
            if time.monotonic() > deadline:
                self._kill()
                return Death(Outcome.TIMEOUT, f"no answer within {self._timeout:g} s (--timeout)")

    def _excess_memory(self) -> str:
        with contextlib.suppress(psutil.Error):
            if psutil.Process(self._process.pid).memory_info().rss > self._memory_limit:
                return f"more than {self._memory_limit / 2**30:g} GiB of memory (--memory-limit)"
        return ""

    def _kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._discard()

    def _died(self) -> Death:
        self._process.join()
        code = self._process.exitcode
        words = self._last_words()
        self._discard()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return Death(Outcome.CRASH, f"process killed by {name}" + (f"\n{words}" if words else ""))
        return Death(Outcome.CRASH, f"process exited with status {code}" + (f"\n{words}" if words else ""))

    def _last_words(self) -> str:
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 4000))
            text = log.read().decode(errors="replace")
            lines = [line for line in text.splitlines() if line.strip()]
            # faulthandler's stack is of the harness, not of the runtime that died.
            for i, line in enumerate(lines):
                if line.startswith("Fatal Python error"):
                    return "\n".join(lines[max(0, i - 3) : i + 1])
            return "\n".join(lines[-4:])
        return ""


def _after_death(
    task: Task, done: set[tuple[MemberKey, str]], step: Step | None, death: Death
) -> tuple[list[Result], list[Task]]:
    """Verdicts on the guilty, and what is left to do."""
    if step is None:
        raise WorkerFailed(f"the worker process ended before it began: {death.message}")
    hit = (step.backend,) if step.backend else task.backends
    suspects = list(dict.fromkeys(group for group, _ in step.cases))
    guilty: list[Result] = []
    if len(suspects) == 1:
        guilty = [
            Result(
                case=case,
                backend=backend,
                stage=step.stage,
                outcome=death.outcome,
                blame=UNKNOWN if death.message.startswith(OWN_FAULT) else RUNS_AT[step.stage],
                message=death.message,
            )
            for case in step.cases
            for backend in hit
            if (case, backend) not in done
        ]
        done = done | {(r.case, r.backend) for r in guilty}
        split: list[set[int]] = []
    else:
        middle = len(suspects) // 2
        split = [set(suspects[:middle]), set(suspects[middle:])]
    pending: dict[tuple[str, ...], list[Group]] = {}
    for group in task.groups:
        by_backends: dict[tuple[str, ...], list[tuple[int, Invocation]]] = {}
        for case, invocation in group.cases:
            left = tuple(b for b in task.backends if ((group.index, case), b) not in done)
            if left:
                by_backends.setdefault(left, []).append((case, invocation))
        for left, cases in by_backends.items():
            pending.setdefault(left, []).append(replace(group, cases=tuple(cases)))
    tasks = []
    for left, groups in pending.items():
        for part in [*split, None]:
            chosen = [
                g
                for g in groups
                if (g.index in part if part is not None else not any(g.index in s for s in split))
            ]
            if chosen:
                tasks.append(replace(task, groups=tuple(chosen), backends=left))
    return guilty, tasks
