"""Asks PyTorch whether it takes calls, in a process of its own: it may die of one."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import torch

from harness.core.invocation import Invocation
from harness.core.isolation import IsolatedProcess, ProcessDied, Send, preload_in_fork_server
from harness.coverage.points import Acceptance
from harness.pipeline.reference import run_reference
from harness.pipeline.resize import variants
from harness.pipeline.torch_call import CallRejected, NothingToCompare

#: Seconds after which a call counts as hanging; the largest that are drawn take a hundredth of it.
_PATIENCE = 10.0
#: Seconds for which answers are collected, before they are sent together: most take less than to be sent.
_COLLECTED = 0.05
#: Bytes that the process may have: a variant may ask for a huge result.
_MEMORY = 6 * 2**30

T = TypeVar("T")
#: A question, the calls that it is about, and for how many seconds answers may be collected.
_Request: TypeAlias = tuple[Callable[[Invocation], Any], Sequence[Invocation], float]

preload_in_fork_server("harness.pipeline.preload")


class Asker(IsolatedProcess):
    """Use as a context manager; the process starts with the first question, and again after a death."""

    def __init__(self) -> None:
        super().__init__(_answering, fork=True)

    def ask(self, invocations: Sequence[Invocation]) -> list[Acceptance]:
        """PyTorch's answer to each call."""
        return self._answers(_call, invocations, Acceptance)

    def resizable(self, invocations: Sequence[Invocation]) -> list[bool]:
        """Whether each call stays valid when some of its tensors' sizes change, as in a dynamic export."""
        return self._answers(_resizable, invocations, lambda end: False)

    def _answers(
        self, question: Callable[[Invocation], T], invocations: Sequence[Invocation], lost: Callable[[str], T]
    ) -> list[T]:
        answers: list[T] = []
        collected = _COLLECTED
        while left := invocations[len(answers) :]:
            try:
                # All at once: it goes on while this process reads what it has answered.
                self.send((question, left, collected))
                while len(answers) < len(invocations):
                    answers += self.receive(_PATIENCE)
            except ProcessDied as died:
                # What it had collected is asked again. Of answers that come one by one, the next is lost.
                if not collected:
                    answers.append(lost("hung" if died.hung else "died"))
                collected = 0.0
        return answers


def _answering(send: Send) -> Callable[[_Request], None]:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    torch.set_num_threads(1)
    gc.freeze()

    def serve(request: _Request) -> None:
        question, invocations, seconds = request
        answers: list[Any] = []
        begun = time.monotonic()
        for invocation in invocations:
            answers.append(question(invocation))
            if (now := time.monotonic()) - begun >= seconds:
                send(answers)
                answers, begun = [], now
        if answers:
            send(answers)

    return serve


def _call(invocation: Invocation) -> Acceptance:
    try:
        return Acceptance("", tuple(output.shape for output in run_reference(invocation).expected))
    except NothingToCompare:
        return Acceptance("")
    except CallRejected as rejection:
        return Acceptance(rejection.account.splitlines()[0][:300])


def _resizable(invocation: Invocation) -> bool:
    try:
        return bool(variants(invocation, 1))
    except CallRejected:
        return False
