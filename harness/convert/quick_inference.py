"""Types and shapes of ONNX nodes, which the optimiser infers node by node, kept for nodes that are alike.

To ask ONNX for them the optimiser writes the node, its types and its constants down as messages and reads the
answer back, which takes many times as long as the inference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import onnx_ir

from harness.convert.torch_private import replaceable

#: The optimiser hands ONNX no larger constants.
_LARGEST_CONSTANT = 20
#: Node, its attributes, and what is known of its inputs and outputs → what is known of its outputs then.
_inferred: dict[tuple[Any, ...], tuple[tuple[Any, Any], ...]] = {}
#: Node, its attributes, and the dtypes of its inputs → those that are inferred for its outputs.
_dtypes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
#: So many take some ten megabytes.
_MOST_INFERRED = 20_000
_PLAIN = {onnx_ir.AttributeType[name] for name in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")}


class _Unlike(Exception):
    """Too much decides about a node to tell which others are like it."""


def infer_node(folding: Any, node: onnx_ir.Node) -> None:
    """What replaces the optimiser's method that infers the types and shapes of the outputs of a node."""
    original = replaceable("infer_node").original
    try:
        inputs = [(None, None) if value is None else _known(value) for value in node.inputs]
        outputs = tuple(map(_known, node.outputs))
        kind = (
            node.domain,
            node.op_type,
            folding._opset_imports.get(node.domain),
            *((name, *_attribute(attribute)) for name, attribute in sorted(node.attributes.items())),
            *(dtype for dtype, _ in inputs),
            len(inputs),
        )
        dtypes = tuple(dtype for dtype, _ in outputs)
        whole = None not in dtypes and all(dims is not None for _, dims in outputs)
        # Of an output whose sizes are known nothing but the dtype is taken, which hangs on no size.
        if whole and _dtypes.get(kind) == dtypes:
            return
        constants = (None if value is None else _constant(value) for value in node.inputs)
        key = (*kind, *(dims for _, dims in inputs), *constants, *outputs)
    except _Unlike:
        original(folding, node)
        return
    found = _inferred.get(key)
    if found is None:
        before = [output.type for output in node.outputs]
        original(folding, node)
        if len(_inferred) >= _MOST_INFERRED:
            _inferred.clear()
            _dtypes.clear()
        with contextlib.suppress(_Unlike):
            _inferred[key] = now = tuple(map(_known, node.outputs))
            # Where inference fails a type stays the same object.
            if all(output.type is not old for output, old in zip(node.outputs, before, strict=True)):
                _dtypes[kind] = tuple(dtype for dtype, _ in now)
        return
    # New ones, since whoever gets a type or a shape may change it.
    for output, (kind, dims) in zip(node.outputs, found, strict=True):
        if kind is not None:
            output.type = onnx_ir.TensorType(kind)
        if dims is not None:
            output.shape = onnx_ir.Shape(dims)


def _attribute(attribute: onnx_ir.Attr) -> tuple[Any, ...]:
    if attribute.is_ref() or attribute.type not in _PLAIN:
        raise _Unlike
    value = attribute.value
    return attribute.type, tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _known(value: onnx_ir.Value) -> tuple[Any, ...]:
    """The dtype and the sizes of a value."""
    kind, shape = value.type, value.shape
    if kind is not None and (type(kind) is not onnx_ir.TensorType or kind.denotation is not None):
        raise _Unlike
    if shape is not None and not shape.is_static():
        raise _Unlike
    return None if kind is None else kind.dtype, None if shape is None else shape.numpy()


def _constant(value: onnx_ir.Value) -> tuple[Any, ...] | None:
    tensor = value.const_value
    if tensor is None or tensor.size > _LARGEST_CONSTANT:
        return None
    if tensor.dtype == onnx_ir.DataType.STRING:
        raise _Unlike
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()
