"""Change one thing about a graph: few and general changes, each of which applies to any graph.

An optimiser tests conditions before it rewrites a graph. Its tests are forgotten one at a time: that two inputs are not
swapped, that a constant is a single number, that nothing else reads a value. Each change here breaks one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from random import Random
from typing import TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness.core.dtypes import Array
from harness.generate.graph_seeds import SUFFIXES
from harness.generate.shapes import MAX_ELEMENTS

#: Changes a model in place; returns whether it could.
Mutation: TypeAlias = Callable[[onnx.ModelProto, Random], bool]

#: The operator set in which the axes of Squeeze and Unsqueeze became an input.
_AXES_ARE_INPUTS = 13
#: Operator sets that graphs are written in: each has new versions of operators that optimisers look for.
_OPSETS = (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23)
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_MAKES_SIZES = frozenset({"Expand", "Tile", "ConstantOfShape", "Range", "Pad", "Reshape"})
#: Numbers of a constant: specials, large and small ones, and factors just inside and outside of usual tolerances.
_NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("nan"), float("inf"), 1e20, 1e-20)
_FACTORS = (1 + 1e-7, 1 + 1e-5, 1 + 1e-3, 1.5, -1.0)
_ATTRIBUTE_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-5, 1e-12, 2.0)
#: Attributes that are added where an operator has them and a node does not give them.
_ADDED = ("keepdims", "axis", "beta", "alpha", "ceil_mode", "epsilon", "count_include_pad", "transA", "transB", "p")
_WORDS = {
    "mode": ("constant", "reflect", "edge", "linear", "nearest"),
    "auto_pad": ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    "approximate": ("none", "tanh"),
}


def mutate(model: onnx.ModelProto, random: Random, changes: int) -> onnx.ModelProto | None:
    """Return a graph with some things changed that is still valid; None if the changes break it.

    Args:
        model: The graph; all of its inputs have sizes.
        random: Decides what is changed.
        changes: The number of changes.
    """
    mutant = onnx.ModelProto()
    mutant.CopyFrom(model)
    # Parts of a user's file may be larger.
    most = max(MAX_ELEMENTS, *(2 * _count_elements(value.type) for value in model.graph.input), 0)
    for _ in range(changes):
        if not any(change(mutant, random) for change in random.sample(MUTATIONS, 3)):
            return None
        if any(_count_elements(value.type) > most for value in mutant.graph.input) or _may_burst(mutant.graph):
            return None
    return _declared(mutant, 16 * most)


def write_in_opsets(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """Return a valid graph in each other operator set that ONNX's version converter can write it in."""
    forms: list[onnx.ModelProto] = []
    if any(node.domain for node in model.graph.node):
        return forms
    for opset in _OPSETS:
        if opset != _opset(model):
            with suppress(Exception):
                forms.append(onnx.version_converter.convert_version(model, opset))
    return forms


def _may_burst(graph: onnx.GraphProto) -> bool:
    """Whether a node may get a huge number as a size: onnx's inference makes such a tensor, and takes all memory.

    The end of a slice may be huge: that is how exporters write "up to the last".
    """
    integers = (t for t in graph.initializer if t.data_type in (TensorProto.INT64, TensorProto.INT32))
    huge = {t.name for t in integers if (np.abs(numpy_helper.to_array(t).astype(np.float64)) > MAX_ELEMENTS).any()}
    for node in graph.node if huge else ():
        if (node.op_type == "Slice" and node.input[0] not in huge) or huge.isdisjoint(node.input):
            continue
        if node.op_type in _MAKES_SIZES:
            return True
        huge.update(node.output)
    return False


def _count_elements(kind: onnx.TypeProto) -> int:
    return prod(dim.dim_value for dim in kind.tensor_type.shape.dim)


def _declared(model: onnx.ModelProto, most: int) -> onnx.ModelProto | None:
    """Return a graph with the types of its outputs inferred anew; None if it is invalid, or if values have more than
    `most` elements: repeated doublings would take all memory.

    ONNX infers nothing behind operators of other domains: such an output has no shape.
    """
    for value in model.graph.output:
        value.ClearField("type")
    del model.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception:
        return None
    graph = inferred.graph
    if any(_count_elements(value.type) > most for value in (*graph.value_info, *graph.output)):
        return None
    types = {value.name: value.type for value in (*graph.output, *graph.input)}
    has_others = any(node.domain for node in graph.node)
    for value in model.graph.output:
        if value.name in types and types[value.name].tensor_type.HasField("shape"):
            value.type.CopyFrom(types[value.name])
        elif has_others:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
        else:
            return None
    return model


def _opset(model: onnx.ModelProto) -> int:
    return next(int(imported.version) for imported in model.opset_import if not imported.domain)


def _known_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Return the types of values, as far as inference tells."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except onnx.shape_inference.InferenceError:
        inferred = model.graph
    return {v.name: v.type for v in (*inferred.input, *inferred.value_info, *inferred.output)}


def _fresh(graph: onnx.GraphProto) -> str:
    """Return a name that no value of a graph has."""
    return f"v{len(graph.node)}_{len(graph.initializer)}_{len(graph.output)}"


def _edges(graph: onnx.GraphProto) -> list[tuple[onnx.NodeProto, int]]:
    return [(node, place) for node in graph.node for place, name in enumerate(node.input) if name]


def swap_inputs(model: onnx.ModelProto, random: Random) -> bool:
    """Exchange two inputs of a node, also where their order counts."""
    graph = model.graph
    nodes = [node for node in graph.node if len([name for name in node.input if name]) > 1]
    if not nodes:
        return False
    node = random.choice(nodes)
    first, second = random.sample([i for i, name in enumerate(node.input) if name], 2)
    node.input[first], node.input[second] = node.input[second], node.input[first]
    return True


def replace_input(model: onnx.ModelProto, random: Random) -> bool:
    """Let a node read another value that is known before it."""
    graph = model.graph
    edges = _edges(graph)
    if not edges:
        return False
    node, place = random.choice(edges)
    place_in_graph = list(graph.node).index(node)
    known = [*(v.name for v in graph.input), *(name for n in graph.node[:place_in_graph] for name in n.output if name)]
    others = [name for name in known if name != node.input[place]]
    if not others:
        return False
    node.input[place] = random.choice(others)
    return True


def change_arity(model: onnx.ModelProto, random: Random) -> bool:
    """Leave out an optional input, or give an operator that takes any number of inputs fewer or another constant."""
    graph, opset = model.graph, _opset(model)
    option = onnx.defs.OpSchema.FormalParameterOption
    ways: list[tuple[onnx.NodeProto, int]] = []
    for node in graph.node:
        if node.domain or not onnx.defs.has(node.op_type, opset):
            continue
        formals = onnx.defs.get_schema(node.op_type, opset).inputs
        places = enumerate(zip(node.input, formals, strict=False))
        ways += [(node, i) for i, (name, formal) in places if name and formal.option == option.Optional]
        if formals and formals[-1].option == option.Variadic:
            ways.append((node, len(node.input)))
    if not ways:
        return False
    node, place = random.choice(ways)
    if place < len(node.input):
        node.input[place] = ""
        while not node.input[-1]:
            node.input.pop()
    elif len(node.input) > 1 and random.random() < 0.4:
        node.input.pop()
    else:
        constants = _constants(graph, floats=True)
        if not constants:
            return False
        copy = onnx.TensorProto.FromString(random.choice(constants).SerializeToString())
        copy.name = _fresh(graph)
        graph.initializer.append(copy)
        node.input.append(copy.name)
    return True


def change_attribute(model: onnx.ModelProto, random: Random) -> bool:
    """Leave out an attribute, give it another value, or give one that a node leaves out."""
    graph = model.graph
    node = random.choice(list(graph.node))
    schema, opset = None, _opset(model)
    if not node.domain and onnx.defs.has(node.op_type, opset):
        schema = onnx.defs.get_schema(node.op_type, opset)
    given = list(node.attribute)
    added = [n for n in _ADDED if schema and n in schema.attributes and all(a.name != n for a in given)]
    if added and (not given or random.random() < 0.4):
        name = random.choice(added)
        is_float = schema is not None and schema.attributes[name].type == onnx.defs.OpSchema.AttrType.FLOAT
        number = random.choice(_ATTRIBUTE_FLOATS) if is_float else random.choice((0, 1, -1, 2))
        node.attribute.append(helper.make_attribute(name, number))
        return True
    if not given:
        return False
    attribute = random.choice(given)
    if random.random() < 0.4:
        node.attribute.remove(attribute)
        return True
    return _change_value(attribute, random)


def _change_value(attribute: onnx.AttributeProto, random: Random) -> bool:
    match attribute.type:
        case onnx.AttributeProto.FLOAT:
            attribute.f = random.choice(_ATTRIBUTE_FLOATS)
        case onnx.AttributeProto.INT:
            attribute.i = random.choice((1 - attribute.i, attribute.i + 1, -attribute.i, 0))
        case onnx.AttributeProto.INTS if attribute.ints:
            place = random.randrange(len(attribute.ints))
            if random.random() < 0.5:
                attribute.ints[place] = random.choice((0, 1, 2, attribute.ints[place] + 1))
            else:
                attribute.ints[:] = list(reversed(attribute.ints))
        case onnx.AttributeProto.STRING if attribute.name in _WORDS:
            attribute.s = random.choice(_WORDS[attribute.name]).encode()
        case _:
            return False
    return True


def _constants(graph: onnx.GraphProto, *, floats: bool) -> list[onnx.TensorProto]:
    read = {name for node in graph.node for name in node.input}
    return [t for t in graph.initializer if t.name in read and (t.data_type in _FLOATS or not floats)]


def change_number(model: onnx.ModelProto, random: Random) -> bool:
    """Give a constant another number: a special one, or one just inside or outside of a tolerance."""
    graph = model.graph
    constants = _constants(graph, floats=True)
    if not constants:
        return False
    tensor = random.choice(constants)
    array = numpy_helper.to_array(tensor).copy()
    if not array.size:
        return False
    with np.errstate(all="ignore"):
        flat = array.reshape(-1)
        place = slice(None) if random.random() < 0.5 else random.randrange(flat.size)
        number = flat[place] * random.choice(_FACTORS) if random.random() < 0.4 else random.choice(_NUMBERS)
        flat[place] = np.asarray(number).astype(array.dtype)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return True


def change_rank(model: onnx.ModelProto, random: Random) -> bool:
    """Give a constant another rank, or make a vector of a number."""
    graph = model.graph
    constants = _constants(graph, floats=True)
    if not constants:
        return False
    tensor = random.choice(constants)
    array = numpy_helper.to_array(tensor)
    forms: list[Callable[[], Array]] = [lambda: array.reshape(1, *array.shape), lambda: array.reshape(*array.shape, 1)]
    if array.size == 1:
        sizes = sorted({d.dim_value for v in graph.input for d in v.type.tensor_type.shape.dim} - {0})
        forms += [lambda: array.reshape(()), lambda: array.reshape(1), lambda: array.reshape(1, 1, 1, 1)]
        forms += [lambda: np.repeat(array.reshape(-1), random.choice(sizes or [2]))]
    if array.ndim and array.shape[0] == 1:
        forms.append(lambda: array[0])
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(random.choice(forms)()), tensor.name))
    return True


def exchange_constant(model: onnx.ModelProto, random: Random) -> bool:
    """Make an input of a constant, or a constant of an input of numbers."""
    graph = model.graph
    constants = _constants(graph, floats=False)
    inputs = [v for v in graph.input if v.type.tensor_type.elem_type in _FLOATS]
    if constants and (random.random() < 0.6 or len(inputs) < 2):
        tensor = random.choice(constants)
        if tensor.data_type not in _FLOATS:
            return False
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        graph.initializer.remove(tensor)
        return True
    if len(inputs) < 2:
        return False
    value = random.choice(inputs)
    kind = value.type.tensor_type
    shape = [d.dim_value for d in kind.shape.dim]
    numbers = np.asarray([random.choice((-1.5, -0.5, 0.25, 1.0, 2.0)) for _ in range(int(np.prod(shape)))])
    array = numbers.reshape(shape).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    graph.initializer.append(numpy_helper.from_array(array, value.name))
    graph.input.remove(value)
    return True


def change_input_shape(model: onnx.ModelProto, random: Random) -> bool:
    """Give an input another rank, or a size of 0 or 1, or another size wherever it has one."""
    graph = model.graph
    values = [v for v in graph.input if v.type.WhichOneof("value") == "tensor_type"]
    if not values:
        return False
    shape = random.choice(values).type.tensor_type.shape
    kind = random.choice(("more", "fewer", "last", "size", "size"))
    sizes = [d.dim_value for d in shape.dim]
    if kind == "more" and len(sizes) < 5:
        sizes.insert(0, random.choice((1, 2, 3)))
    elif kind == "last" and len(sizes) < 5:
        sizes.append(1)
    elif sizes and kind == "fewer":
        sizes.pop(0)
    elif sizes:
        old = random.choice(sizes)
        new = random.choice((1, 0, old + 1, 2 * old))
        for value in values:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_value == old:
                    dim.dim_value = new
        return True
    else:
        return False
    del shape.dim[:]
    for size in sizes:
        shape.dim.add().dim_value = size
    return True


def change_dtype(model: onnx.ModelProto, random: Random) -> bool:
    """Give all floating inputs and constants another dtype, or one of them alone."""
    graph = model.graph
    target = random.choice((*_FLOATS[1:3], TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL))
    array_dtype = helper.tensor_dtype_to_np_dtype(target)
    values = [value for value in graph.input if value.type.tensor_type.elem_type in _FLOATS]
    tensors = [tensor for tensor in graph.initializer if tensor.data_type in _FLOATS]
    if random.random() < 0.3:
        chosen = random.choice([*values, *tensors] or [None])
        values, tensors = ([part for part in parts if part is chosen] for parts in (values, tensors))
    for value in values:
        value.type.tensor_type.elem_type = target
    with np.errstate(all="ignore"):
        for tensor in tensors:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(array_dtype), tensor.name))
    return True


def add_reader(model: onnx.ModelProto, random: Random) -> bool:
    """Return a value from inside, by itself or through another node."""
    graph = model.graph
    inside = [name for node in graph.node for name in node.output if name]
    others = [name for name in inside if all(name != value.name for value in graph.output)]
    if not others:
        return False
    name, made = random.choice(others), _fresh(graph)
    if random.random() < 0.5:
        graph.output.append(onnx.ValueInfoProto(name=name))
        return True
    graph.node.append(helper.make_node(random.choice(("Identity", "Neg", "Relu", "Abs")), [name], [made]))
    graph.output.append(onnx.ValueInfoProto(name=made))
    return True


def insert_on_edge(model: onnx.ModelProto, random: Random) -> bool:
    """Put a node on an edge that leaves its values as they are: a cast, a reshape, a pair of transpositions."""
    graph = model.graph
    edges = _edges(graph)
    if not edges:
        return False
    node, place = random.choice(edges)
    name, types = node.input[place], _known_types(model)
    held = {tensor.name: tensor for tensor in graph.initializer}
    if name in types:
        kind = types[name].tensor_type
        element, sizes = kind.elem_type, [d.dim_value for d in kind.shape.dim]
    elif name in held:
        element, sizes = held[name].data_type, list(held[name].dims)
    else:
        return False
    made = _chain(model, name, element, sizes, random)
    position = list(graph.node).index(node)
    node.input[place] = made[-1].output[0]
    nodes = [*graph.node[:position], *made, *graph.node[position:]]
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    return True


def _chain(
    model: onnx.ModelProto, name: str, element: int, sizes: Sequence[int], random: Random
) -> list[onnx.NodeProto]:
    """Return nodes that give the value called `name` again."""
    graph, start, rank = model.graph, _fresh(model.graph), len(sizes)
    constant = f"{start}_c"

    def numbers(values: Sequence[int]) -> str:
        graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.int64), constant))
        return constant

    has_axes_input = _opset(model) >= _AXES_ARE_INPUTS
    match random.choice(("Identity", "Cast", "Casts", "Reshape", "Transpose", "Squeeze", "Tile", "Expand", "Pad")):
        case "Cast":
            return [helper.make_node("Cast", [name], [start], to=element)]
        case "Casts" if element in _FLOATS:
            between = random.choice(_FLOATS[:3])
            first = helper.make_node("Cast", [name], [f"{start}_a"], to=between)
            return [first, helper.make_node("Cast", [f"{start}_a"], [start], to=element)]
        case "Reshape":
            return [helper.make_node("Reshape", [name, numbers(sizes if 0 not in sizes else [])], [start])]
        case "Transpose" if rank > 1:
            order = list(range(rank))
            random.shuffle(order)
            back = [order.index(i) for i in range(rank)]
            first = helper.make_node("Transpose", [name], [f"{start}_a"], perm=order)
            return [first, helper.make_node("Transpose", [f"{start}_a"], [start], perm=back)]
        case "Squeeze" if has_axes_input:
            axes = numbers([random.randint(0, rank)])
            first = helper.make_node("Unsqueeze", [name, axes], [f"{start}_a"])
            return [first, helper.make_node("Squeeze", [f"{start}_a", axes], [start])]
        case "Squeeze":
            places = [random.randint(0, rank)]
            first = helper.make_node("Unsqueeze", [name], [f"{start}_a"], axes=places)
            return [first, helper.make_node("Squeeze", [f"{start}_a"], [start], axes=places)]
        case "Tile":
            return [helper.make_node("Tile", [name, numbers([1] * rank)], [start])]
        case "Expand":
            return [helper.make_node("Expand", [name, numbers(sizes)], [start])]
        case "Pad" if element in _FLOATS:
            return [helper.make_node("Pad", [name, numbers([0] * (2 * rank))], [start])]
    return [helper.make_node("Identity", [name], [start])]


def continue_output(model: onnx.ModelProto, random: Random) -> bool:
    """Put a node behind an output: some optimisers leave alone what a graph returns."""
    graph = model.graph
    outputs = [value for value in graph.output if any(value.name in node.output for node in graph.node)]
    if not outputs:
        return False
    output, made = random.choice(outputs), _fresh(graph)
    operator = random.choice(("Identity", "Neg", "Relu", "Abs", "Add", "Shape"))
    graph.node.append(helper.make_node(operator, [output.name] * (2 if operator == "Add" else 1), [made]))
    output.name = made
    return True


def repeat_chain(model: onnx.ModelProto, random: Random) -> bool:
    """Compute everything a second time from the same inputs."""
    graph = model.graph
    if len(graph.node) > 24:
        return False
    names = {name: f"{name}_again" for node in graph.node for name in node.output if name}
    copies = []
    for node in graph.node:
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        copy.input[:] = [names.get(name, name) for name in copy.input]
        copy.output[:] = [names.get(name, name) for name in copy.output]
        copies.append(copy)
    graph.node.extend(copies)
    for value in list(graph.output):
        if value.name in names:
            graph.output.append(onnx.ValueInfoProto(name=names[value.name]))
    return True


def derive_name(model: onnx.ModelProto, random: Random) -> bool:
    """Give a value inside the name of another with a suffix that optimisers append."""
    graph = model.graph
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return False
    inside = [name for node in graph.node for name in node.output if name] + [t.name for t in graph.initializer]
    fixed = {value.name for value in (*graph.input, *graph.output)}
    values = [name for name in inside if name not in fixed]
    bases = [*inside, *(value.name for value in graph.input)]
    if not values or len(bases) < 2:
        return False
    old = random.choice(values)
    new = random.choice([name for name in bases if name != old]) + random.choice(SUFFIXES)
    if new in inside or new in fixed:
        return False
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for tensor in graph.initializer:
        tensor.name = new if tensor.name == old else tensor.name
    return True


MUTATIONS: tuple[Mutation, ...] = (
    *(swap_inputs, change_attribute, change_number, change_rank, exchange_constant, change_input_shape, add_reader),
    *(insert_on_edge, insert_on_edge, repeat_chain, change_dtype, replace_input, swap_inputs, change_attribute),
    *(change_number, change_rank, change_input_shape, continue_output, change_arity, derive_name),
)
