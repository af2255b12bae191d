"""PyTorch asked again with the same inputs."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, register
from harness.compare import compare
from harness.execute import run_reference

_TIMES = 3


class RepeatedCall:
    """A kernel that reads memory which it has not written answers differently each time."""

    name = "PyTorch again"
    turn = Turn.FIRST

    def testify(self, trial: Trial) -> Iterator[Testimony]:
        """See `harness.blame.witness.Witness`."""
        for _ in range(_TIMES):
            again = run_reference(trial.invocation).expected
            if compare(trial.judge, trial.reference, again).problem is not None:
                yield Testimony(
                    Role.PYTORCH,
                    Finding.CONTRADICTS,
                    "PyTorch gives another result when it is called again with the same inputs.",
                )
                return


register(lambda settings: [RepeatedCall()])
