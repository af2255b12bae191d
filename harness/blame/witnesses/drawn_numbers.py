"""How many numbers a graph draws at random."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import onnx

from harness.blame.nodes.operator_kinds import RANDOM
from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.compare import Outcome, draws
from harness.execute import extract


@witness("the graph's random numbers", place=41)
def count_drawn_numbers(trial: Trial) -> Iterator[Testimony]:
    """Whether the elements of a random result can be independent of each other, as PyTorch draws them."""
    if trial.complaint.outcome is not Outcome.MISMATCH or trial.got is None or not draws(trial.judge):
        return
    inputs = [value.name for value in trial.model.graph.input]
    for output, wrong in zip(trial.model.graph.output, trial.wrong, strict=True):
        drawn = _drawn(extract(trial.model, inputs, [output.name])) if wrong.any() else None
        if drawn and drawn < wrong.size:
            facts = {"drawn": drawn, "elements": wrong.size, "output": output.name}
            yield Testimony(Role.NODES, Finding.SAME, "drawn-numbers", facts)
            return


def _drawn(model: onnx.ModelProto) -> int | None:
    """How many numbers its nodes draw; None where a shape is not known."""
    known = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: value.type.tensor_type.shape for value in (*known.value_info, *known.output)}
    total = 0
    for node in model.graph.node:
        if node.op_type not in RANDOM:
            continue
        shape = shapes.get(node.output[0])
        if shape is None or not all(dim.HasField("dim_value") for dim in shape.dim):
            return None
        total += prod(dim.dim_value for dim in shape.dim)
    return total
