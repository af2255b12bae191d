"""Recognise a call of `torch.onnx.ops`, which names the ONNX operator itself."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from harness.blame.failure_context import FailureContext
from harness.blame.witness import witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.pipeline.submodel import all_nodes


@witness("ONNX's own operator", place=4, of_one_call=True)
def recognise_own_operator(context: FailureContext) -> Iterator[Testimony]:
    """Testify that the call itself is the node: if the node's definition gives another result, PyTorch's
    implementation of it departs from ONNX."""
    namespace, operator, _ = context.invocation.overload.split(".")
    found = [node for node in all_nodes(context.model) if node.op_type == operator]
    if namespace != "onnx" or len(found) != 1:
        return
    taken = {a.name: onnx.helper.get_attribute_value(a) for a in found[0].attribute}
    numbers = {n: a for n, a in context.invocation.arguments if isinstance(a, bool | int | float)}
    # An omitted attribute has ONNX's default, which is PyTorch's, too.
    if all(taken.get(name, 0) == number for name, number in numbers.items()):
        yield Testimony(Role.OPERATOR, Finding.SAME, "own-operator", {"operator": operator})
