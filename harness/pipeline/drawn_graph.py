"""The ONNX graph that an invocation of ONNX operators stands for: one node, or several.

1. A tensor argument becomes an input of the graph, and a weight an initializer.
2. Inputs that are sequences or optional are constructed from tensors by a node before, and tensors are made of such
   results by a node behind, since runtimes exchange tensors alone.
3. Outputs are declared with the types that ONNX infers; those of other domains with the dtype of their schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from harness.core.invocation import Argument, Input, Invocation, Result, TensorSpec, Weight
from harness.core.onnx_arrays import build_array, element_type
from harness.core.onnx_operators import NEIGHBOURS, OUTPUTS, AttributeSchema, OnnxSchema, Parameter, find_schema
from harness.core.program import DerivedName, Program, Returned, is_graph
from harness.pipeline.neighbours import add_neighbours

#: The version of ONNX's format; older operator sets may be in a model of a newer format.
_LEAST_IR = 10
#: The operator set that a model with operators of another domain imports for ONNX's own.
_CONTRIB_OPSET = 21


class NoSuchForm(Exception):
    """The graph cannot be written at the opset that was asked for."""


def build_graph(
    invocation: Invocation, *, opset: int | None = None, index: int = 0, is_open: bool = False
) -> onnx.ModelProto:
    """Return the graph of an invocation, whose values are named after the index of its group.

    Args:
        invocation: A call of an ONNX operator, or a graph of several.
        opset: The operator set that the model imports; None for the oldest that has the operators in this form.
        index: The index of the group.
        is_open: Whether the sizes of the inputs are left open.

    Raises:
        NoSuchForm: an operator has another form in that operator set, or two have no operator set in common.
        LookupError: the installed packages have no such operator.
    """
    parts = _Parts(f"c{index}", is_open)
    if is_graph(invocation):
        program = Program.of(invocation)
        schemas = [find_schema(call.overload) for call in program.calls]
        for schema, call in zip(schemas, program.calls, strict=True):
            parts.add_call(schema, dict(call.arguments))
        parts.return_values(program.returns)
        parts.rename_values(program.names)
    else:
        schemas = [find_schema(invocation.overload)]
        parts.add_call(schemas[0], dict(invocation.arguments))
        parts.return_all()
    graph = helper.make_graph(parts.nodes, "graph", parts.inputs, parts.outputs, parts.weights)
    imports = [helper.make_opsetid("", _import_version(schemas, opset))]
    imports += [helper.make_opsetid(domain, 1) for domain in dict.fromkeys(s.domain for s in schemas) if domain]
    version = max(_LEAST_IR, helper.find_min_ir_version_for(imports, ignore_unknown=True))
    model = helper.make_model(graph, opset_imports=imports, ir_version=version)
    kind = neighbours_kind(invocation)
    if kind:
        known = {name: element_type(dtype) for name, dtype in parts.dtypes.items() if dtype}
        add_neighbours(model, kind, known)
    return _declare_types(model, parts.dtypes)


def neighbours_kind(invocation: Invocation) -> str:
    """Return the kind of neighbours that a node is drawn among; "" for a node alone or a graph."""
    kind = dict(invocation.arguments).get(NEIGHBOURS, "")
    return kind if isinstance(kind, str) else ""


def strip_neighbours(invocation: Invocation) -> Invocation:
    """Return a node without the nodes around it."""
    return replace(invocation, arguments=tuple(pair for pair in invocation.arguments if pair[0] != NEIGHBOURS))


def _import_version(schemas: Sequence[OnnxSchema], opset: int | None) -> int:
    standard = [schema for schema in schemas if not schema.domain]
    found = opset or max((schema.version for schema in standard), default=_CONTRIB_OPSET)
    for schema in standard:
        if not schema.is_current_at(found):
            raise NoSuchForm(f"{schema.overload} is not the form of {schema.operator} in opset {found}")
    return found


@dataclass
class _Parts:
    """The parts of a graph while it is written.

    Attributes:
        prefix: The beginning of the names of all values.
        is_open: Whether the sizes of the inputs are left open.
        dtypes: Value → the dtype that the schema gives it; without those that the schema leaves open.
        results: The names of the results of each call, with what the schema says of each.
    """

    prefix: str
    is_open: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    dtypes: dict[str, str] = field(default_factory=dict)
    results: list[list[tuple[str, Parameter]]] = field(default_factory=list)
    held: dict[Weight, str] = field(default_factory=dict)

    def add_call(self, schema: OnnxSchema, arguments: Mapping[str, Any]) -> None:
        """Add a node with its inputs."""
        bound: dict[str, str] = {}
        given = [name for p in schema.inputs for name in self._input_names(p, arguments.get(p.name), bound)]
        while given and not given[-1]:
            given.pop()
        places, call = asked_outputs(schema, arguments), len(self.results)
        made = [f"{self.prefix}_r{call}_{i}" if i in places else "" for i in range(max(places, default=-1) + 1)]
        node = helper.make_node(
            schema.operator, given, made, name=f"{self.prefix}_n{len(self.nodes)}", domain=schema.domain
        )
        for attribute in schema.attributes:
            if attribute.name in arguments and arguments[attribute.name] is not None:
                node.attribute.append(_attribute(attribute, arguments[attribute.name]))
        self.nodes.append(node)
        if schema.operator == "Constant":
            # A constant that nothing reads is no step.
            read = [f"{made[0]}_read"]
            self.nodes.append(helper.make_node("Identity", made, read))
            made = read
        found = []
        for place in places:
            parameter = schema.outputs[min(place, len(schema.outputs) - 1)]
            dtype = bound.get(parameter.variable) or (parameter.dtypes[0] if len(parameter.types) == 1 else "")
            if dtype:
                self.dtypes[made[place]] = dtype
            found.append((made[place], parameter))
        self.results.append(found)

    def return_all(self) -> None:
        """Return all results of the only call."""
        for made, parameter in self.results[0]:
            self._return(made, parameter)

    def return_values(self, returned: Sequence[Returned]) -> None:
        """Return results of calls, inputs, or weights; what is returned twice or not computed is copied."""
        for value in returned:
            if isinstance(value, Result):
                self._return(*self.results[value.call][value.output])
                continue
            name = self.inputs[value.place].name if isinstance(value, Input) else self._weight_name(value)
            self._return(name, Parameter("", "", ()))

    def rename_values(self, names: Sequence[DerivedName]) -> None:
        """Name values after others, unless another value has the name or a value is returned under its own."""
        for value, base, suffix in names:
            old, new = self._name(value), f"{self._name(base)}{suffix}"
            taken = {name for node in self.nodes for name in (*node.input, *node.output)} | {*self.held.values()}
            fixed = {info.name for info in (*self.inputs, *self.outputs)}
            if not old or old in fixed or new in taken | fixed:
                continue
            self._replace_name(old, new)

    def _name(self, value: Returned) -> str:
        """Return the name of a value of a graph; "" for a weight that nothing reads."""
        if isinstance(value, Result):
            return self.results[value.call][value.output][0]
        return self.inputs[value.place].name if isinstance(value, Input) else self.held.get(value, "")

    def _return(self, made: str, parameter: Parameter) -> None:
        """Add an output for a value, which is a tensor made of it if it is none."""
        name = f"{self.prefix}_o{len(self.outputs)}"
        operator = self.nodes[-1].op_type if self.nodes else ""
        if operator == "SequenceEmpty":
            self.nodes.append(helper.make_node("SequenceLength", [made], [name]))
        elif parameter.is_only("seq"):
            self.nodes.append(helper.make_node("ConcatFromSequence", [made], [name], axis=0))
        elif parameter.is_only("optional"):
            self.nodes.append(helper.make_node("OptionalGetElement", [made], [name]))
        else:
            self._rename(made, name)
        self.dtypes.setdefault(name, self.dtypes.get(made, ""))
        self.outputs.append(onnx.ValueInfoProto(name=name))

    def _rename(self, made: str, name: str) -> None:
        """Call a value by the name of an output; copy it if a name of its own is needed."""
        makers = [node for node in self.nodes if made in node.output]
        if not makers or any(made == output.name for output in self.outputs):
            self.nodes.append(helper.make_node("Identity", [made], [name]))
            return
        self._replace_name(made, name)

    def _replace_name(self, old: str, new: str) -> None:
        """Give a value another name wherever it occurs."""
        for node in self.nodes:
            node.input[:] = [new if name == old else name for name in node.input]
            node.output[:] = [new if name == old else name for name in node.output]
        for tensor in self.weights:
            tensor.name = new if tensor.name == old else tensor.name
        self.held = {weight: new if name == old else name for weight, name in self.held.items()}
        self.results = [[(new if name == old else name, p) for name, p in made] for made in self.results]
        if old in self.dtypes:
            self.dtypes[new] = self.dtypes[old]

    def _input_names(self, parameter: Parameter, argument: Argument, bound: dict[str, str]) -> list[str]:
        """Return the names under which a node takes an argument; "" for one that is left out."""
        if argument is None:
            return [""] if not parameter.is_variadic else []
        if not isinstance(argument, tuple):
            name = self._tensor_name(argument, parameter, bound)
            if not parameter.is_only("optional"):
                return [name]
            self.nodes.append(helper.make_node("Optional", [name], [f"{name}_optional"]))
            return [f"{name}_optional"]
        names = [self._tensor_name(part, parameter, bound) for part in argument]
        if parameter.is_variadic:
            return names
        sequence = f"{self.prefix}_s{len(self.nodes)}"
        self.nodes.append(helper.make_node("SequenceConstruct", names, [sequence]))
        return [sequence]

    def _tensor_name(self, argument: Argument, parameter: Parameter, bound: dict[str, str]) -> str:
        if isinstance(argument, Weight):
            bound.setdefault(parameter.variable, argument.spec.dtype)
            return self._weight_name(argument)
        if isinstance(argument, Result):
            name = self.results[argument.call][argument.output][0]
            if name in self.dtypes:
                bound.setdefault(parameter.variable, self.dtypes[name])
            return name
        if isinstance(argument, Input):
            name = self.inputs[argument.place].name
            bound.setdefault(parameter.variable, self.dtypes[name])
            return name
        if not isinstance(argument, TensorSpec):
            raise TypeError(f"{parameter.name} is no tensor: {argument!r}")
        name = f"{self.prefix}_i{len(self.inputs)}"
        self.dtypes[name] = argument.dtype
        bound.setdefault(parameter.variable, argument.dtype)
        sizes = [f"{name}_{dim}" for dim in range(len(argument.shape))] if self.is_open else list(argument.shape)
        self.inputs.append(helper.make_tensor_value_info(name, element_type(argument.dtype), sizes))
        return name

    def _weight_name(self, weight: Weight) -> str:
        if weight not in self.held:
            self.held[weight] = f"{self.prefix}_w{len(self.weights)}"
            self.weights.append(numpy_helper.from_array(build_array(weight.spec), self.held[weight]))
        return self.held[weight]


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


def _declare_types(model: onnx.ModelProto, dtypes: Mapping[str, str]) -> onnx.ModelProto:
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
        elif dtypes.get(output.name):
            output.type.tensor_type.elem_type = element_type(dtypes[output.name])
    return model


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.output
    yield from graph.value_info
