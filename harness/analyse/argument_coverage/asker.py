"""Asks PyTorch whether it takes calls, in a process of its own: it may die of one."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, TypeVar

from harness.analyse.argument_coverage.acceptance import Acceptance
from harness.core import Invocation

#: Seconds after which a call counts as hanging; the largest that are drawn take a hundredth of it.
_PATIENCE = 10.0
#: Bytes that the process may have: a variant may ask for a huge result.
_MEMORY = 6 * 2**30

T = TypeVar("T")


class Asker:
    """Use as a context manager; the process starts with the first question, and again after a death."""

    def __init__(self) -> None:
        self._process: Any = None
        self._connection: Connection | None = None

    def __enter__(self) -> Asker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def ask(self, invocations: Sequence[Invocation]) -> list[Acceptance]:
        """PyTorch's answer to each call."""
        return self._each("call", invocations, lambda refusal: Acceptance(refusal))

    def resizable(self, invocations: Sequence[Invocation]) -> list[bool]:
        """Whether each call is still valid with some of its tensors' sizes changed, as a dynamic export is
        run."""
        return self._each("resize", invocations, lambda refusal: False)

    def _each(self, question: str, invocations: Sequence[Invocation], lost: Callable[[str], T]) -> list[T]:
        answers: list[T] = []
        while len(answers) < len(invocations):
            connection = self._connect()
            connection.send((question, list(invocations[len(answers) :])))
            try:
                while len(answers) < len(invocations):
                    if not connection.poll(_PATIENCE):
                        answers.append(lost("hung"))
                        self._stop(kill=True)
                        break
                    answers.append(connection.recv())
            except (EOFError, ConnectionResetError):
                answers.append(lost("died"))
                self._stop(kill=True)
        return answers

    def _connect(self) -> Connection:
        if self._connection is None:
            # As the harness starts its workers: forking a process that has threads is asking for trouble.
            context = multiprocessing.get_context("forkserver")
            # As whoever else starts processes: the first to do so decides what all of them have.
            context.set_forkserver_preload(["harness.execute.preload"])
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        return self._connection

    def _stop(self, *, kill: bool = False) -> None:
        if self._connection is not None:
            if kill:
                self._process.kill()
            self._connection.close()
            self._process.join()
            self._connection = None


def _serve(connection: Connection) -> None:
    """Answer until the other side hangs up."""
    import torch

    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    torch.set_num_threads(1)
    gc.freeze()
    # Kernels warn from native code, once a call.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    questions: dict[str, Callable[[Invocation], object]] = {"call": _call, "resize": _resizable}
    try:
        while True:
            question, invocations = connection.recv()
            for invocation in invocations:
                connection.send(questions[question](invocation))
    except (EOFError, OSError):
        return


def _call(invocation: Invocation) -> Acceptance:
    from harness.execute import NothingToCompare, run_reference

    try:
        return Acceptance("", tuple(output.shape for output in run_reference(invocation).expected))
    except NothingToCompare:
        return Acceptance("")
    except Exception as error:
        return Acceptance(f"{type(error).__name__}: {error}".splitlines()[0][:300])


def _resizable(invocation: Invocation) -> bool:
    from harness.execute import variants

    try:
        return bool(variants(invocation, 1))
    except Exception:
        return False
