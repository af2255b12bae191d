"""What the export before the exporter's optimiser gives."""

from __future__ import annotations

from harness.blame.testimony import Finding
from harness.blame.trial import Trial

#: Computes each operator as its text says, in the dtypes that the graph has.
REFERENCE = "onnx-reference"


def before_optimiser(trial: Trial) -> tuple[Finding, str]:
    """What becomes of the export before the optimiser, and in which backend.

    A runtime may compute with more bits within a function than the graph has, and be right by that alone. So
    what is right in the failing backend counts as wrong where the reference evaluator gives the wrong result.
    Raises what the converter raises.
    """
    model, accused = trial.translation.model, trial.complaint.backend
    finding, _ = trial.find(trial.ask(trial.accused, model))
    if finding is Finding.RIGHT and accused != REFERENCE:
        by_definition, _ = trial.find(trial.ask(trial.backend(REFERENCE), model))
        if by_definition is Finding.SAME:
            return by_definition, REFERENCE
    return finding, accused
