"""The inputs and outputs of a transformed graph in the dtypes that they had before, by casts at its ends."""

from __future__ import annotations

import onnx
from onnx import helper


def keep_interface(before: onnx.ModelProto, after: onnx.ModelProto) -> onnx.ModelProto:
    """Return a transformed graph whose inputs and outputs have the dtypes of the graph before."""
    kept = onnx.ModelProto()
    kept.CopyFrom(after)
    graph = kept.graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*before.graph.input, *before.graph.output)}
    inputs = {value.name for value in graph.input}
    first, last = list[onnx.NodeProto](), list[onnx.NodeProto]()
    for value in (*graph.input, *graph.output):
        name, own = value.name, value.type.tensor_type.elem_type
        if types.get(name, own) == own:
            continue
        inner = f"{name}_as_transformed"
        for node in graph.node:
            node.input[:] = [inner if read == name else read for read in node.input]
            node.output[:] = [inner if made == name else made for made in node.output]
        if name in inputs:
            first.append(helper.make_node("Cast", [name], [inner], to=own))
        else:
            last.append(helper.make_node("Cast", [inner], [name], to=types[name]))
        value.type.tensor_type.elem_type = types[name]
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)
    return kept
