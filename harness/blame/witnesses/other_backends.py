"""Other runtimes on the same model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, Witness, add_witnesses, backends_to_ask
from harness.compare import Outcome
from harness.execute import Settings


def ask_other_backend(name: str, trial: Trial) -> Iterator[Testimony]:
    """What one backend beside the failing one makes of the model."""
    accused = trial.complaint.backend
    if name == accused or trial.complaint.outcome is Outcome.UNSUPPORTED:
        return
    backend = trial.backend(name)
    if trial.narrows(backend):
        return
    answer = trial.ask(backend, trial.model)
    finding, detail = trial.find(answer)
    if finding is Finding.OTHER and answer.outputs and trial.is_as_wrong(answer.outputs):
        facts = {"witness": name, "backend": accused}
        own = trial.is_independent(name)
        yield Testimony(Role.RUNTIME, Finding.SAME, "backend-without-optimisations", facts, own)
        return
    finite = False
    if finding is Finding.OTHER and trial.on_finite_inputs:
        tamer = trial.on_finite_inputs
        again, its_detail = tamer.find(tamer.ask(backend, tamer.model))
        if again is not Finding.OTHER:
            finding, detail, finite = again, its_detail, True
    said = {"witness": name, "backend": accused, "detail": detail, "finite_inputs": finite}
    yield Testimony(Role.RUNTIME, finding, "other-backend", said, trial.is_independent(name))


@add_witnesses
def _installed(settings: Settings) -> Iterator[Witness]:
    for name in backends_to_ask(settings.witnesses):
        yield Witness(name, Turn.FIRST, 70, partial(ask_other_backend, name))
    for name in backends_to_ask(settings.last_witnesses, last=True):
        yield Witness(name, Turn.OPEN, 20, partial(ask_other_backend, name))
