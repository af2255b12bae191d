"""Test the model: the ONNX checker, strict shape inference, and two rules that these leave unchecked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from harness.blame.failure_context import FailureContext
from harness.blame.witness import witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.core.dtypes import Array
from harness.core.text import one_line
from harness.pipeline.submodel import declare_outputs

#: A phrase about updates in the text of ONNX ScatterElements.
_SAME_SHAPE = "same rank and shape as indices"


@witness("the ONNX checker", place=110)
def check_validity(context: FailureContext) -> Iterator[Testimony]:
    """Check the model of the single case, with constants propagated into shapes."""
    model = context.model if context.has_program else declare_outputs(context.model, context.reference.expected)
    try:
        onnx.checker.check_model(model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        yield Testimony(Role.MODEL, Finding.INVALID, "strict-inference", {"error": one_line(error)[:200]})
        return
    inputs, updates = _unlike_inputs(inferred, context.feeds(context.model)), _unlike_updates(inferred)
    if inputs:
        yield Testimony(Role.MODEL, Finding.INVALID, "declared-shape", inputs)
    elif updates:
        yield Testimony(Role.MODEL, Finding.INVALID, "shape-of-updates", updates)
    else:
        yield Testimony(Role.MODEL, Finding.VALID, "checker")


def _unlike_inputs(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Any]:
    """Return facts of the first input whose declared shape is not the call's; empty if there is none.

    Onnx's reference evaluator accepts any shape.
    """
    for value in model.graph.input:
        declared, given = _shape(value), feeds[value.name].shape
        if declared is not None and not _holds(declared, given):
            return {"input": value.name, "declared": list(declared), "given": list(given)}
    return {}


def _unlike_updates(model: onnx.ModelProto) -> dict[str, Any]:
    """Return facts of the first node that scatters updates of another shape than its indices; empty if none does."""
    graph = model.graph
    shapes = {v.name: _shape(v) for v in (*graph.input, *graph.value_info, *graph.output)}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type not in ("ScatterElements", "Scatter") or node.domain:
            continue
        indices, updates = (shapes.get(name) for name in node.input[1:3])
        if indices and updates and not _holds(indices, updates):
            shapes_of = {"updates": list(updates), "indices": list(indices)}
            return {"operator": node.op_type, "quote": _SAME_SHAPE, "node": node.name, **shapes_of}
    return {}


def _shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...] | None:
    """Return the sizes, None for unknown ones; None if even the rank is unknown."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)


def _holds(declared: tuple[int | None, ...], shape: tuple[int | None, ...]) -> bool:
    if len(declared) != len(shape):
        return False
    return all(d is None or s is None or d == s for d, s in zip(declared, shape, strict=True))
