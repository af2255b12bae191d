"""Another converter's export of the same call, in the same backend."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, witness
from harness.compare import Outcome
from harness.convert import CONVERTERS, UnsupportedOperator, find_converter


@witness("the other converter", place=10, turn=Turn.GRAPH, role=Role.CONVERTER)
def ask_other_converter(trial: Trial) -> Iterator[Testimony]:
    """Asks the first by `ConverterEntry.witness` that is not the failing one and can run here."""
    if trial.complaint.outcome is Outcome.UNSUPPORTED:
        return
    places = ((entry.witness, entry.name) for entry in CONVERTERS.entries())
    for _, name in sorted((place, name) for place, name in places if place is not None):
        if name != trial.complaint.converter and find_converter(name).probe() is None:
            yield _ask(name, trial)
            return


def _ask(name: str, trial: Trial) -> Testimony:
    try:
        model = trial.export(trial.converter(name), name)
    except UnsupportedOperator:
        return Testimony(Role.CONVERTER, Finding.LACKS, "other-conversion", {"witness": name})
    except Exception as error:
        facts = {"witness": name, "error": type(error).__name__}
        return Testimony(Role.CONVERTER, Finding.REFUSES, "other-conversion", facts)
    finding, _ = trial.find(trial.ask(trial.accused, model))
    facts = {"witness": name, "backend": trial.accused.name}
    return Testimony(Role.CONVERTER, finding, "other-converter", facts)
