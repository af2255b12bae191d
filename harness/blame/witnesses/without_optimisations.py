"""The failing backend with its graph optimisations off."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.testimony import Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.compare import Outcome


@witness("graph optimisations off", place=120)
def ask_without_optimisations(trial: Trial) -> Iterator[Testimony]:
    """Runs the model with `harness.run.HasPlain`."""
    if trial.complaint.outcome is Outcome.UNSUPPORTED or trial.plain is None:
        return
    finding, detail = trial.find(trial.plain)
    facts = {"backend": trial.complaint.backend, "detail": detail}
    yield Testimony(Role.PLAIN, finding, "without-optimisations", facts)
