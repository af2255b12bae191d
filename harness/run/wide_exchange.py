"""Exchange inputs and outputs of two and four bits as bytes, since runtimes take no such arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness.core.dtypes import Array

#: Packed element type → the type that holds all of its numbers.
_WIDER = {
    **dict.fromkeys((TensorProto.INT4, TensorProto.INT2), TensorProto.INT8),
    **dict.fromkeys((TensorProto.UINT4, TensorProto.UINT2), TensorProto.UINT8),
}


def is_packed(element_type: int) -> bool:
    """Whether an element type has less than a byte."""
    return element_type in _WIDER


def exchange_bytes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with casts around its packed inputs and outputs; the model itself if it has none."""
    values = (*model.graph.input, *model.graph.output)
    if not any(is_packed(value.type.tensor_type.elem_type) for value in values):
        return model
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    graph = wide.graph
    renamed: dict[str, str] = {}
    before, behind = list[onnx.NodeProto](), list[onnx.NodeProto]()
    for value, is_input in [*((v, True) for v in graph.input), *((v, False) for v in graph.output)]:
        packed = value.type.tensor_type.elem_type
        if packed not in _WIDER:
            continue
        value.type.tensor_type.elem_type = _WIDER[packed]
        inner = renamed.setdefault(value.name, f"{value.name}_packed")
        if is_input:
            before.append(helper.make_node("Cast", [value.name], [inner], to=packed))
        else:
            behind.append(helper.make_node("Cast", [inner], [value.name], to=_WIDER[packed]))
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    nodes = [*before, *graph.node, *behind]
    del graph.node[:]
    graph.node.extend(nodes)
    return wide


def widen_feeds(feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return feeds with bytes for packed integers."""
    return {name: _widened(array) for name, array in feeds.items()}


def _widened(array: Array) -> Array:
    kind = array.dtype.name
    if kind in ("int4", "int2"):
        return array.astype(np.int8)
    return array.astype(np.uint8) if kind in ("uint4", "uint2") else array


def narrow_output(array: Array, element_type: int) -> Array:
    """Return an output in the packed dtype that the model declares; the array itself if it declares another."""
    if not is_packed(element_type):
        return array
    return array.astype(helper.tensor_dtype_to_np_dtype(element_type))
