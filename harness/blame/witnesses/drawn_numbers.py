"""Count the random numbers that a graph draws."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import onnx

from harness.blame.failure_context import FailureContext
from harness.blame.witness import witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.drawn import draws
from harness.compare.verdict import Outcome
from harness.pipeline.loaded_models import RANDOM_OPERATORS
from harness.pipeline.submodel import extract


@witness("the graph's random numbers", place=41)
def count_drawn_numbers(context: FailureContext) -> Iterator[Testimony]:
    """Testify if the elements of a random result cannot be independent of each other, as PyTorch draws them."""
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None or not draws(context.judge):
        return
    inputs = [value.name for value in context.model.graph.input]
    for output, wrong in zip(context.model.graph.output, context.wrong, strict=True):
        drawn = _drawn(extract(context.model, inputs, [output.name])) if wrong.any() else None
        if drawn and drawn < wrong.size:
            facts = {"drawn": drawn, "elements": wrong.size, "output": output.name}
            yield Testimony(Role.NODES, Finding.SAME, "drawn-numbers", facts)
            return


def _drawn(model: onnx.ModelProto) -> int | None:
    """Return the number of random numbers that the nodes draw; None if a shape is not known."""
    known = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: value.type.tensor_type.shape for value in (*known.value_info, *known.output)}
    total = 0
    for node in model.graph.node:
        if node.op_type not in RANDOM_OPERATORS:
            continue
        shape = shapes.get(node.output[0])
        if shape is None or not all(dim.HasField("dim_value") for dim in shape.dim):
            return None
        total += prod(dim.dim_value for dim in shape.dim)
    return total
