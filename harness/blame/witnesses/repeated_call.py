"""PyTorch asked again with the same inputs."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.compare import compare
from harness.execute import run_reference

_TIMES = 3


@witness("PyTorch again", place=80)
def repeat_call(trial: Trial) -> Iterator[Testimony]:
    """A kernel that reads memory which it has not written answers differently each time."""
    for _ in range(_TIMES):
        again = run_reference(trial.invocation).expected
        if compare(trial.judge, trial.reference, again).problem is not None:
            words = "PyTorch gives another result when it is called again with the same inputs."
            yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, words)
            return
