"""The computation of a model as lines of text, so that two exports of the same calls can be compared."""

from __future__ import annotations

from collections.abc import Collection

import onnx


def graph_lines(model: onnx.ModelProto, outputs: Collection[str] | None = None) -> tuple[str, ...]:
    """Return a model as lines in which values are numbered as they appear and nodes have no names.

    Two models have the same lines exactly if they have the same nodes in the same order, with equal attributes and
    weights, between inputs and outputs of the same types, at the same opsets and IR version.

    Args:
        model: Any model.
        outputs: Compare only the nodes that these outputs need, without the types of inputs and outputs; None for all.
    """
    return tuple(_Lines(model, outputs).lines)


class _Lines:
    def __init__(self, model: onnx.ModelProto, wanted: Collection[str] | None) -> None:
        graph = model.graph
        self._names: dict[str, str] = {"": ""}
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self.lines = [
            f"ir {model.ir_version}",
            *sorted(f"opset {o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import),
        ]
        nodes = list(graph.node)
        if wanted is None:
            self.lines += [f"input {self._typed(value)}" for value in graph.input]
        else:
            nodes = _needed(nodes, wanted)
        for node in nodes:
            self._node(node, "")
        if wanted is None:
            self.lines += [f"output {self._typed(value)}" for value in graph.output]
        else:
            self.lines += [f"output {self._name(name)}" for name in wanted]
        self.lines += sorted(f"function {f.domain}::{f.name}" for f in model.functions)

    def _name(self, name: str) -> str:
        if name in self._weights:
            # Where it is first used: a batch lists all of its initializers together.
            tensor = self._weights.pop(name)
            array = onnx.numpy_helper.to_array(tensor)
            number = self._names.setdefault(name, f"v{len(self._names)}")
            self.lines.append(f"weight {number} {tensor.data_type} {array.shape} {array.tobytes()!r}")
        return self._names.setdefault(name, f"v{len(self._names)}")

    def _typed(self, value: onnx.ValueInfoProto) -> str:
        tensor = value.type.tensor_type
        shape = [dim.dim_value if dim.HasField("dim_value") else "?" for dim in tensor.shape.dim]
        return f"{self._name(value.name)} {tensor.elem_type} {shape}"

    def _node(self, node: onnx.NodeProto, indent: str) -> None:
        inputs = [self._name(name) for name in node.input]
        outputs = [self._name(name) for name in node.output]
        self.lines.append(f"{indent}{outputs} = {node.domain}::{node.op_type} {inputs}")
        for attribute in sorted(node.attribute, key=lambda a: a.name):
            if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                for graph in [attribute.g, *attribute.graphs]:
                    self._subgraph(graph, indent + "  ")
            elif attribute.type == onnx.AttributeProto.TENSOR:
                array = onnx.numpy_helper.to_array(attribute.t)
                value = (attribute.t.data_type, array.shape, array.tobytes())
                self.lines.append(f"{indent}  {attribute.name} {value}")
            else:
                value = onnx.helper.get_attribute_value(attribute)
                self.lines.append(f"{indent}  {attribute.name} {value!r}")

    def _subgraph(self, graph: onnx.GraphProto, indent: str) -> None:
        self._weights.update({tensor.name: tensor for tensor in graph.initializer})
        self.lines += [f"{indent}input {self._typed(value)}" for value in graph.input]
        for node in graph.node:
            self._node(node, indent)
        self.lines += [f"{indent}output {self._typed(value)}" for value in graph.output]


def _needed(nodes: list[onnx.NodeProto], outputs: Collection[str]) -> list[onnx.NodeProto]:
    """Return the nodes that some outputs depend on, in their order."""
    needed, found = set(outputs), []
    for node in reversed(nodes):
        if needed & set(node.output):
            needed.update(_read(node))
            found.append(node)
    return found[::-1]


def _read(node: onnx.NodeProto) -> set[str]:
    """Return the values that a node and its subgraphs read."""
    read = set(node.input)
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                read |= _read(inner)
    return read
