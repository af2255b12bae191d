"""The same graph with weights within 7 bits: without VNNI, processors add pairs of products of 8 bits in 16 bits.

The sum of two products of an unsigned and a signed number of 8 bits may exceed 16 bits, and saturates there. With
weights of at most 63 it cannot, which is what quantisers' `reduce_range` is for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from harness.blame.failure_context import FailureContext
from harness.blame.witness import witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.pipeline.graph_oracle import Judges, expect
from harness.pipeline.graph_structure import signature
from harness.pipeline.run_graph import run_graph
from harness.run.backend import REFERENCE

#: Operators that multiply numbers of 8 bits, or that a runtime fuses into such ones.
_MULTIPLY = frozenset(
    {
        *("MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul", "DequantizeLinear"),
        *("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm", "QAttention", "DynamicQuantizeLSTM"),
    }
)
#: The largest weight of which two products with 255 fit into 16 bits.
_LARGEST = 63


@witness("weights within 7 bits", place=126)
def ask_reduced_range(context: FailureContext) -> Iterator[Testimony]:
    """Testify if the failing backend is right once its weights of 8 bits are halved."""
    if context.failure.outcome is not Outcome.MISMATCH or not context.is_onnx:
        return
    halved = within_seven_bits(context.model)
    if halved is None:
        return
    feeds = context.feeds(halved)
    given = tuple(feeds[value.name] for value in signature(halved))
    accused = context.accused
    judges = Judges(accused, context.backend(REFERENCE), first=context.invocation)
    reference = expect(halved, given, judges, context.invocation)
    outputs = run_graph(accused, halved, feeds).outputs
    if outputs is None or not reference.expected or reference.compare(outputs).problem is not None:
        return
    yield Testimony(Role.RANGE, Finding.RIGHT, "within-7-bits", {"backend": accused.name})


def within_seven_bits(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model with its signed weights of 8 bits halved; None if none of them is beyond 7 bits."""
    factors = {name for node in model.graph.node if node.op_type in _MULTIPLY for name in node.input}
    halves = {}
    for place, tensor in enumerate(model.graph.initializer):
        if tensor.data_type != TensorProto.INT8 or tensor.name not in factors:
            continue
        weights = numpy_helper.to_array(tensor)
        if weights.size > 1 and np.abs(weights.astype(np.int16)).max(initial=0) > _LARGEST:
            halves[place] = (weights >> 1).astype(np.int8)
    if not halves:
        return None
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for place, weights in halves.items():
        tensor = changed.graph.initializer[place]
        tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))
    return changed
