"""The ONNX checker, strict shape inference, and what they leave unchecked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.core import Array, one_line

#: Of the text of ONNX ScatterElements on its updates.
_SAME_SHAPE = "same rank and shape as indices"


@witness("the ONNX checker", place=110)
def check_validity(trial: Trial) -> Iterator[Testimony]:
    """Whether the model of the one case is valid, with constants propagated into shapes."""
    try:
        onnx.checker.check_model(trial.model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(trial.model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        yield Testimony(Role.MODEL, Finding.INVALID, "strict-inference", {"error": one_line(error)[:200]})
        return
    inputs, updates = _unlike_inputs(inferred, trial.feeds(trial.model)), _unlike_updates(inferred)
    if inputs:
        yield Testimony(Role.MODEL, Finding.INVALID, "declared-shape", inputs)
    elif updates:
        yield Testimony(Role.MODEL, Finding.INVALID, "shape-of-updates", updates)
    else:
        yield Testimony(Role.MODEL, Finding.VALID, "checker")


def _unlike_inputs(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Any]:
    """The input that the model declares with another shape than the call has; nothing where none is.

    Onnx's reference evaluator takes any.
    """
    for value in model.graph.input:
        declared, given = _shape(value), feeds[value.name].shape
        if declared is not None and not _holds(declared, given):
            return {"input": value.name, "declared": list(declared), "given": list(given)}
    return {}


def _unlike_updates(model: onnx.ModelProto) -> dict[str, Any]:
    """The node that scatters updates of another shape than its indices have; nothing where none does."""
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
    """Sizes, None for those that are not known; None where not even the rank is."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)


def _holds(declared: tuple[int | None, ...], shape: tuple[int | None, ...]) -> bool:
    if len(declared) != len(shape):
        return False
    return all(d is None or s is None or d == s for d, s in zip(declared, shape, strict=True))
