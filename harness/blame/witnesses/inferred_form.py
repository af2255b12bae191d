"""Infer dtypes and shapes by ONNX's own rules, which run no kernel."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from harness.blame.failure_context import FailureContext
from harness.blame.witness import witness
from harness.compare.diagnosis import Finding, Role, Testimony


@witness("ONNX's type and shape inference", place=30)
def infer_form(context: FailureContext) -> Iterator[Testimony]:
    """Infer the outputs' dtypes and shapes from the nodes, without the exporter's declarations.

    Uses ``onnx.shape_inference``, in which the operators' specification states its type constraints.
    """
    comparison = context.comparison
    if context.got is None or comparison is None or comparison.problem not in ("shape", "dtype"):
        return
    by_dtype = comparison.problem == "dtype"
    expected = [str(e.dtype) if by_dtype else e.shape for e in context.reference.expected]
    got = [str(g.dtype) if by_dtype else g.shape for g in context.got]
    ruled = [_dtype(o) if by_dtype else _inferred_shape(o) for o in _inferred(context.model).graph.output]
    if None in ruled:
        return
    facts = {"property": comparison.problem, "backend": context.failure.backend}
    if ruled == got:
        yield Testimony(Role.MODEL, Finding.SAME, "inferred-form", facts)
    elif ruled == expected:
        yield Testimony(Role.MODEL, Finding.RIGHT, "inferred-form", facts)


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    return onnx.shape_inference.infer_shapes(bare, check_type=True, data_prop=True)


def _dtype(output: onnx.ValueInfoProto) -> str | None:
    element = output.type.tensor_type.elem_type
    return str(onnx.helper.tensor_dtype_to_np_dtype(element)) if element else None


def _inferred_shape(output: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    kind = output.type.tensor_type
    if not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    return tuple(dim.dim_value for dim in kind.shape.dim)
