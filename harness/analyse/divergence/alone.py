"""The operators of a departure, each exported and run alone on the values that it had in the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from harness.analyse.capture.call_capture import CannotKeep, invocation_of
from harness.analyse.divergence.departure import judged
from harness.analyse.divergence.graph import PyTorchGraph, Region
from harness.convert import Converter
from harness.core import (
    Invocation,
    OpOverload,
    TensorSpec,
    describe_error,
    describe_tensor,
    output_tensors,
)
from harness.execute import Exportable, export_alone, outputs_of, quiet_call, to_numpy
from harness.run import Backend

#: Storage elements up to which an operator's arguments are kept as they are.
_EXACT = 64


@dataclass(frozen=True)
class Alone:
    """An operator by itself.

    Attributes:
        invocation: The call, with arguments like those that it had in the model; None where it is none.
        outcome: ``pass``, ``mismatch``, or ``error`` where it cannot be exported or run by itself.
        message: In what way it is wrong.
    """

    overload: str
    invocation: Invocation | None
    outcome: str
    message: str = ""


def run_alone(
    graph: PyTorchGraph,
    region: Region,
    get: Callable[[Node], Any],
    converter: Converter,
    backend: Backend,
    opset: int | None,
) -> list[Alone]:
    """Each operator of a region on the values that PyTorch gives it there."""
    with quiet_call():
        env = graph.compute(region.nodes, get)

    def value(node: Node) -> Any:
        return env[node] if node in env else get(node)

    return [_one(graph, node, value, converter, backend, opset) for node in region.operators]


def _one(
    graph: PyTorchGraph,
    node: Node,
    value: Callable[[Node], Any],
    converter: Converter,
    backend: Backend,
    opset: int | None,
) -> Alone:
    overload = str(node.target)
    tensors: list[torch.Tensor] = []

    def describe(tensor: torch.Tensor, place: str) -> TensorSpec:
        tensors.append(tensor)
        return describe_tensor(tensor, place, exact=_EXACT)

    try:
        assert isinstance(node.target, OpOverload)
        invocation = invocation_of(
            node.target, torch.fx.map_arg(node.args, value), torch.fx.map_arg(node.kwargs, value), describe
        )
    except CannotKeep as reason:
        return Alone(overload, None, "error", str(reason))
    try:
        with quiet_call():
            results = output_tensors(graph.call(node, value))
        structure = Exportable.of(invocation, outputs=len(results), tensors=tensors)
        model = export_alone(converter, structure, opset=opset)
        got = outputs_of(backend, model, structure.feeds(model, [to_numpy(t) for t in tensors]))
    except Exception as error:
        return Alone(overload, invocation, "error", describe_error(error))
    alone = Region(node, (node,), tuple(node.all_input_nodes))
    comparison = judged(graph, alone, value, tuple(map(to_numpy, results)), got)
    return Alone(overload, invocation, "mismatch" if comparison.problem else "pass", comparison.message)
