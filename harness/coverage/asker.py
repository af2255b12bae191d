"""Ask PyTorch whether it accepts calls, in a separate process, since a call may crash it."""

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

#: Seconds after which a call counts as hanging; the largest calls that are drawn take a hundredth of it.
_PATIENCE = 10.0
#: Seconds for which answers are collected before they are sent together; sending one takes longer than most calls.
_COLLECTED = 0.05
#: Bytes that the process may allocate, since a variant may request a huge result.
_MEMORY = 6 * 2**30

T = TypeVar("T")
#: A question, the calls that it is about, and the seconds for which answers may be collected.
_Request: TypeAlias = tuple[Callable[[Invocation], Any], Sequence[Invocation], float]

preload_in_fork_server("harness.pipeline.preload")


class Asker(IsolatedProcess):
    """A process that answers questions about calls; it starts with the first one and restarts after a crash."""

    def __init__(self) -> None:
        super().__init__(_answering, fork=True)

    def ask(self, invocations: Sequence[Invocation]) -> list[Acceptance]:
        """Return PyTorch's answer to each call."""
        return self._answers(_call, invocations, Acceptance)

    def resizable(self, invocations: Sequence[Invocation]) -> list[bool]:
        """Return whether each call stays valid if the sizes of some tensors change, as in a dynamic export."""
        return self._answers(_resizable, invocations, lambda end: False)

    def _answers(
        self, question: Callable[[Invocation], T], invocations: Sequence[Invocation], lost: Callable[[str], T]
    ) -> list[T]:
        answers: list[T] = []
        collected = _COLLECTED
        while left := invocations[len(answers) :]:
            try:
                # All calls are sent together: the process continues while its answers are being read.
                self.send((question, left, collected))
                while len(answers) < len(invocations):
                    answers += self.receive(_PATIENCE)
            except ProcessDied as died:
                # Calls whose answers were being collected are asked again, one by one, to find the one that crashes.
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
