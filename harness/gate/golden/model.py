"""A case's part of an exported model as a model of its own, the same whatever was exported beside it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from harness.execute import all_nodes, extract, subgraphs, with_inner_nodes

_DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})


def standalone(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str], title: str) -> onnx.ModelProto:
    """Cut out what computes `outputs`, with names that do not tell where it came from.

    Exporters number values by their place in the whole model and note the source lines that they come from.

    Args:
        model: Left as it is.
        inputs: Graph inputs by their place in the call; those that the model lacks are unused.
        outputs: Names of graph outputs.
        title: Name of the graph.

    Returns:
        Inputs ``input_<J>``, outputs ``output_<J>``, other values ``v<N>``, nodes ``node_<N>`` in order; no
        comments and metadata; only the functions and operator sets that are used.
    """
    part = extract(model, inputs, outputs)
    names = {name: f"input_{j}" for j, name in enumerate(inputs)}
    names |= {name: f"output_{j}" for j, name in enumerate(outputs)}
    _Renamer(names).graph(part.graph)
    part.graph.name = title
    used = _used_functions(part)
    del part.functions[:]
    part.functions.extend(used)
    for function in part.functions:
        function.doc_string = ""
        del function.metadata_props[:]
        for node in function.node:
            _strip(node)
    domains = {node.domain for node in all_nodes(part)} | _DEFAULT_DOMAINS
    imports = [i for i in part.opset_import if i.domain in domains]
    del part.opset_import[:]
    part.opset_import.extend(sorted(imports, key=lambda i: str(i.domain)))
    return part


class _Renamer:
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._values = self._nodes = 0
        self._dim_names: dict[str, str] = {}

    def graph(self, graph: onnx.GraphProto) -> None:
        graph.doc_string = ""
        del graph.metadata_props[:]
        for value in (*graph.input, *graph.output):
            self._value(value)
        for tensor in graph.initializer:
            tensor.name = self._name(tensor.name)
            tensor.doc_string = ""
        for node in graph.node:
            node.name = f"node_{self._nodes}"
            self._nodes += 1
            _strip(node)
            node.input[:] = [self._name(name) for name in node.input]
            node.output[:] = [self._name(name) for name in node.output]
            for inner in subgraphs(node):
                self.graph(inner)
        known = [value for value in graph.value_info if value.name in self._names]
        for value in known:
            self._value(value)
        ordered = sorted(known, key=lambda value: str(value.name))
        kept = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in ordered]
        del graph.value_info[:]
        graph.value_info.extend(kept)

    def _value(self, value: onnx.ValueInfoProto) -> None:
        value.name = self._name(value.name)
        value.doc_string = ""
        del value.metadata_props[:]
        for dim in value.type.tensor_type.shape.dim:
            dim.denotation = ""
            if dim.HasField("dim_param"):
                dim.dim_param = self._dim_names.setdefault(dim.dim_param, f"d{len(self._dim_names)}")

    def _name(self, name: str) -> str:
        # An empty name is an optional input that is left out.
        if name and name not in self._names:
            self._names[name] = f"v{self._values}"
            self._values += 1
        return self._names[name] if name else ""


def _strip(node: onnx.NodeProto) -> None:
    node.doc_string = ""
    del node.metadata_props[:]
    for attribute in node.attribute:
        attribute.doc_string = ""


def _used_functions(model: onnx.ModelProto) -> list[onnx.FunctionProto]:
    by_name = {(f.domain, f.name): f for f in model.functions}
    used: dict[tuple[str, str], onnx.FunctionProto] = {}
    pending = list(with_inner_nodes(model.graph.node))
    while pending:
        node = pending.pop()
        key = (node.domain, node.op_type)
        if key in by_name and key not in used:
            used[key] = by_name[key]
            pending.extend(with_inner_nodes(by_name[key].node))
    return [used[key] for key in sorted(used)]
