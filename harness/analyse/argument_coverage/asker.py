"""Asks PyTorch whether it takes calls, in a process of its own: it may die of one."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from harness.analyse.argument_coverage.point import Acceptance
from harness.core import Invocation, IsolatedCalls, ProcessDied, preload_in_fork_server
from harness.execute import NothingToCompare, run_reference, variants

#: Seconds after which a call counts as hanging; the largest that are drawn take a hundredth of it.
_PATIENCE = 10.0
#: Bytes that the process may have: a variant may ask for a huge result.
_MEMORY = 6 * 2**30

T = TypeVar("T")

preload_in_fork_server("harness.execute.preload")


class Asker(IsolatedCalls):
    """Use as a context manager; the process starts with the first question, and again after a death."""

    def __init__(self) -> None:
        super().__init__(timeout=_PATIENCE, prepare=_prepare, fork=True)

    def ask(self, invocations: Sequence[Invocation]) -> list[Acceptance]:
        """PyTorch's answer to each call."""
        return [self._answer(_call, invocation, Acceptance) for invocation in invocations]

    def resizable(self, invocations: Sequence[Invocation]) -> list[bool]:
        """Whether each call stays valid when some of its tensors' sizes change, as in a dynamic export."""
        return [self._answer(_resizable, invocation, lambda end: False) for invocation in invocations]

    def _answer(
        self, question: Callable[[Invocation], T], invocation: Invocation, lost: Callable[[str], T]
    ) -> T:
        try:
            return self.call(question, invocation)
        except ProcessDied as died:
            return lost("hung" if died.hung else "died")


def _prepare() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    torch.set_num_threads(1)
    gc.freeze()


def _call(invocation: Invocation) -> Acceptance:
    try:
        return Acceptance("", tuple(output.shape for output in run_reference(invocation).expected))
    except NothingToCompare:
        return Acceptance("")
    except Exception as error:
        return Acceptance(f"{type(error).__name__}: {error}".splitlines()[0][:300])


def _resizable(invocation: Invocation) -> bool:
    try:
        return bool(variants(invocation, 1))
    except Exception:
        return False
