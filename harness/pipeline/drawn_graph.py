"""The ONNX graph that an invocation of ONNX operators stands for: a node, with the tensors that it is given.

1. A tensor argument becomes an input of the graph, and a weight an initializer.
2. Inputs that are sequences or optional are constructed from tensors by a node before, and tensors are made of such
   results by a node behind, since runtimes exchange tensors alone.
3. Outputs are declared with the types that ONNX infers; those of other domains with the dtype of their schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from harness.core.invocation import Argument, Invocation, TensorSpec, Weight
from harness.core.onnx_arrays import build_array, element_type
from harness.core.onnx_operators import OUTPUTS, AttributeSchema, OnnxSchema, Parameter, find_schema

#: The version of ONNX's format; older operator sets may be in a model of a newer format.
_LEAST_IR = 10
#: The operator set that a model with operators of another domain imports for ONNX's own.
_BESIDE_OTHERS = 21


class NoSuchForm(Exception):
    """The graph cannot be written at the opset that was asked for."""


def build_graph(
    invocation: Invocation, *, opset: int | None = None, index: int = 0, is_open: bool = False
) -> onnx.ModelProto:
    """Return the graph of an invocation, whose values are named after the index of its group.

    Args:
        invocation: A call of an ONNX operator.
        opset: The operator set that the model imports; None for the oldest that has the operator in this form.
        index: The index of the group.
        is_open: Whether the sizes of the inputs are left open.

    Raises:
        NoSuchForm: the operator has another form in that operator set.
        LookupError: the installed packages have no such operator.
    """
    schema = find_schema(invocation.overload)
    parts = _Parts(f"c{index}")
    parts.add_call(schema, dict(invocation.arguments), is_open=is_open)
    graph = helper.make_graph(parts.nodes, "graph", parts.inputs, parts.outputs, parts.weights)
    imports = [helper.make_opsetid("", _import_version(schema, opset))]
    if schema.domain:
        imports.append(helper.make_opsetid(schema.domain, schema.version))
    version = max(_LEAST_IR, helper.find_min_ir_version_for(imports, ignore_unknown=True))
    model = helper.make_model(graph, opset_imports=imports, ir_version=version)
    return _with_types(model, parts.dtypes)


def _import_version(schema: OnnxSchema, opset: int | None) -> int:
    if schema.domain:
        return opset or _BESIDE_OTHERS
    if opset is not None and not schema.is_current_at(opset):
        raise NoSuchForm(f"{schema.overload} is not the form of {schema.operator} in opset {opset}")
    return opset or schema.version


@dataclass
class _Parts:
    """The parts of a graph while it is written.

    Attributes:
        prefix: The beginning of the names of all values.
        dtypes: Output → the dtype that the schema gives it; without those that the schema leaves open.
    """

    prefix: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    dtypes: dict[str, str] = field(default_factory=dict)

    def add_call(self, schema: OnnxSchema, arguments: Mapping[str, Any], *, is_open: bool) -> None:
        """Add a node with its inputs and its outputs, which the graph returns."""
        bound: dict[str, str] = {}
        given = [name for p in schema.inputs for name in self._input_names(p, arguments.get(p.name), bound, is_open)]
        while given and not given[-1]:
            given.pop()
        places = asked_outputs(schema, arguments)
        made = [f"{self.prefix}_r{i}" if i in places else "" for i in range(max(places, default=-1) + 1)]
        node = helper.make_node(
            schema.operator, given, made, name=f"{self.prefix}_n{len(self.nodes)}", domain=schema.domain
        )
        for attribute in schema.attributes:
            if attribute.name in arguments and arguments[attribute.name] is not None:
                node.attribute.append(_attribute(attribute, arguments[attribute.name]))
        self.nodes.append(node)
        if schema.operator == "Constant":
            # A constant that nothing reads is no step.
            made = [f"{made[0]}_read"]
            self.nodes.append(helper.make_node("Identity", node.output, made))
            node = self.nodes[-1]
        for number, place in enumerate(places):
            parameter = schema.outputs[min(place, len(schema.outputs) - 1)]
            name = self._returned(made[place], number, node, parameter)
            dtype = bound.get(parameter.variable) or (parameter.dtypes[0] if len(parameter.types) == 1 else "")
            if dtype:
                self.dtypes[name] = dtype
            self.outputs.append(onnx.ValueInfoProto(name=name))

    def _returned(self, made: str, number: int, node: onnx.NodeProto, parameter: Parameter) -> str:
        """Return the name of a tensor that the graph returns for an output of a node."""
        name = f"{self.prefix}_o{number}"
        if node.op_type == "SequenceEmpty":
            self.nodes.append(helper.make_node("SequenceLength", [made], [name]))
        elif parameter.is_only("seq"):
            self.nodes.append(helper.make_node("ConcatFromSequence", [made], [name], axis=0))
        elif parameter.is_only("optional"):
            self.nodes.append(helper.make_node("OptionalGetElement", [made], [name]))
        else:
            node.output[list(node.output).index(made)] = name
        return name

    def _input_names(self, parameter: Parameter, argument: Argument, bound: dict[str, str], is_open: bool) -> list[str]:
        """Return the names under which a node takes an argument; "" for one that is left out."""
        if argument is None:
            return [""] if not parameter.is_variadic else []
        if not isinstance(argument, tuple):
            name = self._tensor_name(argument, parameter, bound, is_open)
            if not parameter.is_only("optional"):
                return [name]
            self.nodes.append(helper.make_node("Optional", [name], [f"{name}_optional"]))
            return [f"{name}_optional"]
        names = [self._tensor_name(part, parameter, bound, is_open) for part in argument]
        if parameter.is_variadic:
            return names
        sequence = f"{self.prefix}_s{len(self.nodes)}"
        self.nodes.append(helper.make_node("SequenceConstruct", names, [sequence]))
        return [sequence]

    def _tensor_name(self, argument: Argument, parameter: Parameter, bound: dict[str, str], is_open: bool) -> str:
        if isinstance(argument, Weight):
            name = f"{self.prefix}_w{len(self.weights)}"
            bound.setdefault(parameter.variable, argument.spec.dtype)
            self.weights.append(numpy_helper.from_array(build_array(argument.spec), name))
            return name
        if not isinstance(argument, TensorSpec):
            raise TypeError(f"{parameter.name} is no tensor: {argument!r}")
        name = f"{self.prefix}_i{len(self.inputs)}"
        bound.setdefault(parameter.variable, argument.dtype)
        sizes = [f"{name}_{dim}" for dim in range(len(argument.shape))] if is_open else list(argument.shape)
        self.inputs.append(helper.make_tensor_value_info(name, element_type(argument.dtype), sizes))
        return name


def asked_outputs(schema: OnnxSchema, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the places of the outputs that a call names: those that its arguments ask for, or as few as possible."""
    asked = arguments.get(OUTPUTS, max(schema.least_outputs, 1))
    return tuple(range(asked)) if isinstance(asked, int) else tuple(asked)


def _attribute(schema: AttributeSchema, value: Any) -> onnx.AttributeProto:
    match schema.kind:
        case "tensor":
            return helper.make_attribute(schema.name, numpy_helper.from_array(build_array(value.spec), schema.name))
        case "graph":
            return helper.make_attribute(schema.name, onnx.parser.parse_graph(value))
        case "float":
            return helper.make_attribute(schema.name, float(value))
        case "int":
            return helper.make_attribute(schema.name, int(value))
        case "floats" | "ints" | "strings":
            kind = getattr(onnx.AttributeProto, schema.kind.upper())
            return helper.make_attribute(schema.name, list(value), attr_type=kind)
    return helper.make_attribute(schema.name, value)


def _with_types(model: onnx.ModelProto, dtypes: Mapping[str, str]) -> onnx.ModelProto:
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        known = {value.name: value.type for value in _values(inferred.graph)}
    except Exception:
        # The checker reports an invalid graph.
        known = {}
    for output in model.graph.output:
        kind = known.get(output.name)
        if kind is not None and kind.WhichOneof("value"):
            output.type.CopyFrom(kind)
        elif output.name in dtypes:
            output.type.tensor_type.elem_type = element_type(dtypes[output.name])
    return model


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.output
    yield from graph.value_info
