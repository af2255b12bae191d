"""Cut a model down to some of its cases, merge models, digest a graph, and cast its outputs to other dtypes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from harness.core.dtypes import Array


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Return the branches and bodies of a node: of ``If``, ``Loop`` or ``Scan``."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a model, of its subgraphs at any depth, and of its functions."""
    yield from walk_nodes(model.graph.node)
    for function in model.functions:
        yield from walk_nodes(function.node)


def walk_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes and the nodes of their subgraphs, at any depth."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from walk_nodes(graph.node)


def outer_names(node: onnx.NodeProto) -> Iterator[str]:
    """Return the values that `node` and its subgraphs take from its graph."""
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        inner = {i.name for i in graph.input} | {i.name for i in graph.initializer}
        for child in graph.node:
            yield from (name for name in outer_names(child) if name not in inner)
            inner.update(child.output)
        yield from (o.name for o in graph.output if o.name not in inner)


def extract(model: onnx.ModelProto, inputs: Iterable[str], outputs: Iterable[str]) -> onnx.ModelProto:
    """Return the part of `model` that computes `outputs`, with the same names and metadata, in the same order.

    `inputs` are kept, used or not: a case has all of its inputs.
    """
    graph = model.graph
    wanted_inputs, wanted_outputs = set(inputs), set(outputs)
    needed = set(wanted_outputs)
    keep: list[onnx.NodeProto] = []
    # Nodes are in topological order, so one pass backwards finds all ancestors.
    for node in reversed(graph.node):
        if any(name in needed for name in node.output):
            keep.append(node)
            needed.update(outer_names(node))
    part = onnx.ModelProto()
    part.ir_version = model.ir_version
    part.opset_import.extend(model.opset_import)
    part.functions.extend(model.functions)
    part.producer_name, part.producer_version = model.producer_name, model.producer_version
    part.graph.name = graph.name
    part.graph.node.extend(reversed(keep))
    part.graph.input.extend(i for i in graph.input if i.name in wanted_inputs)
    part.graph.output.extend(o for o in graph.output if o.name in wanted_outputs)
    part.graph.initializer.extend(i for i in graph.initializer if i.name in needed)
    part.graph.value_info.extend(v for v in graph.value_info if v.name in needed)
    return part


def sort_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its nodes in topological order; the model itself if they are."""
    known = {"", *(value.name for value in (*model.graph.input, *model.graph.initializer))}
    for node in model.graph.node:
        if not known.issuperset(outer_names(node)):
            break
        known.update(node.output)
    else:
        return model
    from onnx_ir import serde

    sorted_model = serde.deserialize_model(model)
    sorted_model.graph.sort()
    return serde.serialize_model(sorted_model)


def merge_graphs(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """Return one graph of several that share no names and import the same operator sets."""
    merged = onnx.ModelProto()
    merged.CopyFrom(models[0])
    for model in models[1:]:
        for part in ("node", "input", "output", "initializer"):
            getattr(merged.graph, part).extend(getattr(model.graph, part))
    return merged


def operators_behind(model: onnx.ModelProto) -> dict[str, frozenset[str]]:
    """Graph output → the ONNX operators that it depends on, those in the bodies of others included.

    An operator of another domain has that in front: ``com.microsoft.Gelu``.
    """
    behind: dict[str, frozenset[str]] = {}
    for node in model.graph.node:
        own = {f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in walk_nodes([node])}
        found = frozenset(own).union(*(behind[name] for name in outer_names(node) if name in behind))
        behind.update(dict.fromkeys(node.output, found))
    return {output.name: behind.get(output.name, frozenset()) for output in model.graph.output}


def owners(model: onnx.ModelProto, names: Iterable[str]) -> dict[str, set[str]]:
    """Node name → the graph outputs that depend on it, for those of `names` that are known."""
    consumers: dict[str, list[int]] = {}
    nodes = list(model.graph.node)
    for i, node in enumerate(nodes):
        for name in outer_names(node):
            consumers.setdefault(name, []).append(i)
    graph_outputs = {o.name for o in model.graph.output}
    by_name = {node.name: i for i, node in enumerate(nodes) if node.name}
    result: dict[str, set[str]] = {}
    for name in names:
        if name not in by_name:
            continue
        reached: set[str] = set()
        stack, seen = [by_name[name]], {by_name[name]}
        while stack:
            for output in nodes[stack.pop()].output:
                if output in graph_outputs:
                    reached.add(output)
                for consumer in consumers.get(output, ()):
                    if consumer not in seen:
                        seen.add(consumer)
                        stack.append(consumer)
        result[name] = reached
    return result


#: Attributes that say how an operator is meant; others hold numbers of the call.
_TELLING = {AttributeProto.INT: "i", AttributeProto.STRING: "s"}


def graph_kind(model: onnx.ModelProto) -> str:
    """Return a digest of a graph that does not depend on its sizes, dtypes and numbers: its operators in order,
    with the attributes that are words or whole numbers."""
    parts = [
        (node.domain, node.op_type, sorted((a.name, _telling(a)) for a in node.attribute)) for node in all_nodes(model)
    ]
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _telling(attribute: AttributeProto) -> str:
    field = _TELLING.get(attribute.type)
    return repr(getattr(attribute, field)) if field else ""


def cast_outputs(model: onnx.ModelProto, dtypes: Mapping[int, np.dtype[Any]]) -> onnx.ModelProto:
    """Return a model with a ``Cast`` to a dtype after some of its outputs, by place.

    Wrong values that come in a wrong dtype can then be examined like any other wrong result.
    """
    if not dtypes:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for place, dtype in dtypes.items():
        output = changed.graph.output[place]
        element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        name = f"{output.name}_cast"
        changed.graph.node.append(onnx.helper.make_node("Cast", [output.name], [name], to=element))
        output.name = name
        output.type.tensor_type.elem_type = element
    return changed


def declare_outputs(model: onnx.ModelProto, expected: Sequence[Array]) -> onnx.ModelProto:
    """Return a model whose outputs all declare a dtype and a shape, which files may omit and the checker requires.

    Args:
        model: The model.
        expected: Its outputs; empty if they are unknown, so that shapes are inferred as far as they can be.
    """
    try:
        declared = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        declared = onnx.ModelProto()
        declared.CopyFrom(model)
    for output, array in itertools.zip_longest(declared.graph.output, expected):
        kind = output.type.tensor_type
        if not kind.HasField("shape"):
            # If nothing can be inferred, nothing contradicts the declaration.
            kind.elem_type = kind.elem_type or onnx.TensorProto.FLOAT
            kind.shape.SetInParent()
            if array is not None:
                kind.elem_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
                kind.shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=size) for size in array.shape)
    return declared
