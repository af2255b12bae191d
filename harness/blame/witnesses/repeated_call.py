"""PyTorch asked again with the same inputs."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.compare import draws, wrong_elements
from harness.execute import run_reference

_TIMES = 3


@witness("PyTorch again", place=80)
def repeat_call(trial: Trial) -> Iterator[Testimony]:
    """A kernel that reads memory which it has not written answers differently each time.

    Only the elements in question count; where the case passes alone, any of them may be what failed.
    """
    if trial.got is None or draws(trial.judge):
        return
    asked = trial.wrong
    passes = not any(mask.any() for mask in asked)
    for _ in range(_TIMES):
        again = run_reference(trial.invocation).expected
        unlike = wrong_elements(trial.judge, trial.reference, again)
        if any((u if passes or u.shape != a.shape else u & a).any() for u, a in zip(unlike, asked, strict=True)):
            yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, "repeated-call")
            return
