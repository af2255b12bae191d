"""The failing backend with its graph optimisations off."""

from __future__ import annotations

from collections.abc import Iterator

from harness.backends.base import HasPlain
from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, register
from harness.verdict.verdict import Outcome


class WithoutOptimisations:
    """See `harness.backends.base.HasPlain`."""

    name = "graph optimisations off"
    turn = Turn.FIRST

    def testify(self, trial: Trial) -> Iterator[Testimony]:
        """See `harness.blame.witness.Witness`."""
        accused = trial.accused
        if not isinstance(accused, HasPlain) or trial.complaint.outcome is Outcome.UNSUPPORTED:
            return
        finding, detail = trial.find(trial.ask(accused.plain(), trial.model))
        how = {
            Finding.RIGHT: "gives PyTorch's result",
            Finding.SAME: "gives the same wrong result",
            Finding.OTHER: f"gives another wrong result ({detail})",
            Finding.REFUSES: "fails too",
            Finding.LACKS: "lacks a kernel",
        }[finding]
        yield Testimony(Role.PLAIN, finding, f"With graph optimisations off {accused.name} {how}.")


register(lambda settings: [WithoutOptimisations()])
