"""Other runtimes on the same model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, register
from harness.compare import Outcome
from harness.execute import Settings
from harness.run import BACKENDS


@dataclass(frozen=True)
class OtherBackend:
    """One backend beside the failing one."""

    name: str
    turn: Turn = Turn.FIRST

    def testify(self, trial: Trial) -> Iterator[Testimony]:
        """See `harness.blame.witness.Witness`."""
        accused = trial.complaint.backend
        if self.name == accused or trial.complaint.outcome is Outcome.UNSUPPORTED:
            return
        backend = trial.backend(self.name)
        if trial.narrows(backend):
            return
        answer = trial.ask(backend, trial.model)
        finding, detail = trial.find(answer)
        if finding is Finding.OTHER and answer.outputs and trial.is_as_wrong(answer.outputs):
            words = (
                f"{self.name} gives what {accused} gives with graph optimisations off, which is wrong too."
            )
            yield Testimony(Role.RUNTIME, Finding.SAME, words, trial.is_independent(self.name))
            return
        same = "the same model"
        if finding is Finding.OTHER and trial.on_finite_inputs:
            tamer = trial.on_finite_inputs
            again, its_detail = tamer.find(tamer.ask(backend, tamer.model))
            if again is not Finding.OTHER:
                finding, detail, same = again, its_detail, "the same model and finite inputs"
        words = {
            Finding.RIGHT: f"{self.name} gives PyTorch's result for {same}.",
            Finding.SAME: f"{self.name} gives {accused}'s result for {same}.",
            Finding.OTHER: f"{self.name} gives another wrong result for {same} ({detail}).",
            Finding.REFUSES: f"{self.name} fails on {same} too ({detail}).",
            Finding.LACKS: f"{self.name} does not implement the model ({detail}).",
        }[finding]
        yield Testimony(Role.RUNTIME, finding, words, trial.is_independent(self.name))


def _installed(settings: Settings) -> Iterator[OtherBackend]:
    for turn, names in ((Turn.FIRST, settings.witnesses), (Turn.OPEN, settings.last_witnesses)):
        for name in names:
            entry, argument = BACKENDS.find(name)
            if entry.probe(argument) is None:
                yield OtherBackend(name, turn)


register(_installed)
