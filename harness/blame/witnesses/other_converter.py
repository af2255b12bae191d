"""Run another converter's export of the same call in the same backend."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.failure_context import FailureContext
from harness.blame.witness import Turn, witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.convert.converter import CONVERTERS, UnsupportedOperator, find_converter
from harness.run.backend import BACKENDS


@witness("the other converter", place=10, turn=Turn.GRAPH, of_any_artefact=True, of_pytorch=True)
def ask_other_converter(context: FailureContext) -> Iterator[Testimony]:
    """Ask the first converter by `ConverterEntry.witness` other than the failing one that can run on this machine and
    makes artefacts that the failing backend takes."""
    if context.failure.outcome is Outcome.UNSUPPORTED:
        return
    taken = BACKENDS.find(context.failure.backend)[0].takes
    places = ((entry.witness, entry.name) for entry in CONVERTERS.entries() if entry.makes in taken)
    for _, name in sorted((place, name) for place, name in places if place is not None):
        if name != context.failure.converter and find_converter(name).probe() is None:
            yield _ask(name, context)
            return


def _ask(name: str, context: FailureContext) -> Testimony:
    try:
        model = context.export(context.converter(name), name)
    except UnsupportedOperator:
        return Testimony(Role.CONVERTER, Finding.LACKS, "other-conversion", {"witness": name})
    except Exception as error:
        facts = {"witness": name, "error": type(error).__name__}
        return Testimony(Role.CONVERTER, Finding.REFUSES, "other-conversion", facts)
    finding, _ = context.classify(context.run_model(context.accused, model))
    facts = {"witness": name, "backend": context.accused.name}
    return Testimony(Role.CONVERTER, finding, "other-converter", facts)
