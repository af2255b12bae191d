"""Look for wrong results that the graph holds as constants."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.failure_context import FailureContext
from harness.blame.witness import witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.pipeline.submodel import extract

#: Operators that compute nothing.
_IDLE = frozenset({"Constant", "Identity"})


@witness("the graph's constants", place=66)
def find_constant_output(context: FailureContext) -> Iterator[Testimony]:
    """Testify if the exporter computed a wrong output: no backend has a part in it."""
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None:
        return
    inputs = [value.name for value in context.model.graph.input]
    for output, wrong in zip(context.model.graph.output, context.wrong, strict=True):
        if not wrong.any():
            continue
        part = extract(context.model, inputs, [output.name]).graph
        held = {tensor.name for tensor in part.initializer}
        read = {name for node in part.node for name in node.input if name}
        if all(n.op_type in _IDLE for n in part.node) and not (read | {output.name}) & (set(inputs) - held):
            yield Testimony(Role.CONSTANT, Finding.SAME, "constant-output", {"output": output.name})
            return
