"""Results that the graph has as constants."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.compare import Outcome
from harness.execute import extract

#: Operators that compute nothing.
_IDLE = frozenset({"Constant", "Identity"})


@witness("the graph's constants", place=66)
def look_for_constant_output(trial: Trial) -> Iterator[Testimony]:
    """Whether a wrong output was computed by the exporter: no backend has a part in it."""
    if trial.complaint.outcome is not Outcome.MISMATCH or trial.got is None:
        return
    inputs = [value.name for value in trial.model.graph.input]
    for output, wrong in zip(trial.model.graph.output, trial.wrong, strict=True):
        if not wrong.any():
            continue
        part = extract(trial.model, inputs, [output.name]).graph
        held = {tensor.name for tensor in part.initializer}
        read = {name for node in part.node for name in node.input if name}
        if all(n.op_type in _IDLE for n in part.node) and not (read | {output.name}) & (set(inputs) - held):
            yield Testimony(Role.CONSTANT, Finding.SAME, "constant-output", {"output": output.name})
            return
