"""The export before the exporter's own optimiser."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.before_optimiser import before_optimiser
from harness.blame.testimony import Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, witness
from harness.compare import Outcome
from harness.convert import HasUnoptimised


@witness("the unoptimised export", place=20, turn=Turn.GRAPH, role=Role.UNOPTIMISED)
def ask_unoptimised_export(trial: Trial) -> Iterator[Testimony]:
    """Exports again with `harness.convert.HasUnoptimised`."""
    converter = trial.converter(trial.complaint.converter)
    if not isinstance(converter, HasUnoptimised) or trial.complaint.outcome is Outcome.UNSUPPORTED:
        return
    finding, backend = before_optimiser(trial)
    facts = {"converter": converter.name, "backend": backend}
    yield Testimony(Role.UNOPTIMISED, finding, "unoptimised-export", facts)
