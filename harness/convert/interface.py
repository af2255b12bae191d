"""The inputs and outputs of a transformed graph in the dtypes that they had before, by casts at its ends."""

from __future__ import annotations

import onnx
from onnx import helper


def keep_interface(before: onnx.ModelProto, after: onnx.ModelProto) -> onnx.ModelProto:
    """Return a transformed graph whose inputs and outputs have the dtypes of the graph before."""
    kept = onnx.ModelProto()
    kept.CopyFrom(after)
    graph, first, last = kept.graph, list[onnx.NodeProto](), list[onnx.NodeProto]()
    types = {value.name: value.type.tensor_type.elem_type for value in (*before.graph.input, *before.graph.output)}
    for value in graph.input:
        dtype, own = types.get(value.name, 0), value.type.tensor_type.elem_type
        if dtype and dtype != own:
            cast = f"{value.name}_as_transformed"
            for node in graph.node:
                node.input[:] = [cast if name == value.name else name for name in node.input]
            first.append(helper.make_node("Cast", [value.name], [cast], to=own))
            value.type.tensor_type.elem_type = dtype
    for value in graph.output:
        dtype, own = types.get(value.name, 0), value.type.tensor_type.elem_type
        if dtype and dtype != own:
            made = f"{value.name}_as_transformed"
            for node in graph.node:
                node.output[:] = [made if name == value.name else name for name in node.output]
                node.input[:] = [made if name == value.name else name for name in node.input]
            last.append(helper.make_node("Cast", [made], [value.name], to=dtype))
            value.type.tensor_type.elem_type = dtype
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)
    return kept
