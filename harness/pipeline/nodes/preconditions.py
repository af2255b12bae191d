"""Check the inputs of a node against its operator's text: the one check, for all operators.

ONNX's own inference knows the limits on shapes. `VALUE_LIMITS` has the limits on values, with the words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from harness.core.dtypes import Array
from harness.core.text import one_line
from harness.pipeline.nodes.definition import Definition
from harness.pipeline.nodes.node_steps import node_attribute
from harness.pipeline.stages import emitted_opset


def broken_precondition(definition: Definition) -> dict[str, Any]:
    """Return facts of the first limit that a node's inputs break; empty if they keep to all."""
    node = definition.step.node
    model = definition.graph.alone(definition.step, definition.inputs)
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        return {"error": one_line(error)[:160]}
    opset = emitted_opset(definition.graph.model) or 1
    is_known = node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type, opset, "")
    if not definition.step.is_single or not is_known:
        return {}
    schema = onnx.defs.get_schema(node.op_type, opset)
    return (
        _not_of_rank(definition, schema)
        or _find_unlike_shape(definition, schema)
        or _find_wrong_size(definition, schema)
        or _find_axis_beyond(definition, schema)
        or _find_unlike_sizes(definition, schema)
        or _find_indivisible(definition, schema)
        or _find_unbroadcastable(definition, schema)
        or _out_of_range(definition, schema)
    )


#: How the text says that a tensor has no dimension, and how many it has at least.
_NO_DIMENSION = re.compile(r"^A 0-D tensor|^Scalar\.|must be a scalar")
_LEAST = re.compile(r"\brank [a-z] >= (\d)")


def _not_of_rank(definition: Definition, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return the input with another number of dimensions than the text allows; nothing if there is none."""
    node = definition.step.node
    for name, expected in zip(node.input, schema.inputs, strict=False):
        if not name:
            continue
        text = " ".join(expected.description.split())
        shape, least = definition.inputs[name].shape, _LEAST.search(text)
        if (shape and _NO_DIMENSION.search(text)) or (least and len(shape) < int(least[1])):
            quoted = text.partition(". ")[0]
            return {"input": expected.name, "quote": quoted, "shape": list(shape)}
    return {}


#: How the text says that an input has the shape of the indices.
_LIKE_INDICES = "same rank and shape as indices"


def _find_unlike_shape(definition: Definition, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return the input that must have the shape of the indices but has not; empty if there is none."""
    node, places = definition.step.node, {expected.name: place for place, expected in enumerate(schema.inputs)}
    for name, expected in zip(node.input, schema.inputs, strict=False):
        if name and "indices" in places and _LIKE_INDICES in " ".join(expected.description.split()):
            shape, like = definition.inputs[name].shape, definition.inputs[node.input[places["indices"]]].shape
            if shape != like:
                return {"input": expected.name, "quote": _LIKE_INDICES, "shape": list(shape)}
    return {}


#: How the text names the only dimension of an input, and where a node has that size.
_SIZES: Mapping[str, Callable[[onnx.NodeProto, Sequence[Array]], int]] = {
    "tensor of shape `(C)`": lambda node, inputs: int(inputs[0].shape[1]),
    "tensor of shape `(num_groups)`": lambda node, inputs: _integer(node, "num_groups"),
    "tensor of shape (C)": lambda node, inputs: int(inputs[0].shape[1]) if inputs[0].ndim > 1 else 1,
    "1-dimensional scale tensor of size C": lambda node, inputs: int(inputs[0].shape[1]),
    "1-dimensional bias tensor of size C": lambda node, inputs: int(inputs[0].shape[1]),
}


def _find_wrong_size(definition: Definition, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return an input whose only dimension has another size than the text asks for; empty if there is none."""
    node = definition.step.node
    inputs = [definition.inputs[name] for name in node.input if name]
    for name, expected in zip(node.input, schema.inputs, strict=False):
        text = " ".join(expected.description.split())
        for quote, size in _SIZES.items():
            if name and quote in text and inputs[0].ndim and node_attribute(node, "spatial", 1):
                shape = definition.inputs[name].shape
                if shape != (size(node, inputs),):
                    return {"input": expected.name, "quote": text.partition(". ")[0], "shape": list(shape)}
    return {}


#: How the text says that an axis is one of r dimensions. Where an axis is ignored for some inputs, it limits nothing.
_AXIS_RANGE = re.compile(r"\[ ?-r(?:ank)?, ?r(?:ank)? ?(?:- ?1 ?\]|\))")
_AXIS_MAY_BE_IGNORED = frozenset({"QuantizeLinear", "DequantizeLinear", "ConcatFromSequence"})


def _find_axis_beyond(definition: Definition, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return an axis that the first input does not have; empty if there is none. A 0-d tensor has no axis."""
    node, named = definition.step.node, schema.attributes.get("axis")
    if named is None or node.op_type in _AXIS_MAY_BE_IGNORED:
        return {}
    stated = _AXIS_RANGE.search(" ".join(named.description.split()))
    axis = node_attribute(
        node, "axis", onnx.helper.get_attribute_value(named.default_value) if named.default_value.name else None
    )
    if stated is None or not isinstance(axis, int):
        return {}
    shape = definition.inputs[node.input[0]].shape
    return {} if -len(shape) <= axis < len(shape) else {"axis": axis, "quote": stated[0], "shape": list(shape)}


def _same_sizes(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    return inputs[0].shape == inputs[1].shape


def _no_larger_but_along_axis(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    data, indices = inputs[0].shape, inputs[1].shape
    axis = _axis(node) % max(len(data), 1)
    return len(data) == len(indices) and all(
        i <= d for p, (i, d) in enumerate(zip(indices, data, strict=True)) if p != axis
    )


def _same_terms(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    a, b = inputs[0].shape, inputs[1].shape
    return len(a) == len(b) == 2 and a[0 if _integer(node, "transA") else 1] == b[1 if _integer(node, "transB") else 0]


#: Operator → whether its first two inputs have sizes that fit, and the words. ONNX's inference does not check them.
_FITTING: Mapping[str, tuple[Callable[[onnx.NodeProto, Sequence[Array]], bool], str]] = {
    "MaxUnpool": (_same_sizes, "Dimensions must be the same as input tensor X"),
    "Gemm": (_same_terms, "(K, N) if transB is 0, or (N, K) if transB is non-zero"),
    "Scatter": (_no_larger_but_along_axis, "index in source for dimension != axis"),
    "ScatterElements": (_no_larger_but_along_axis, "dimension != axis is obtained from the index of the entry itself"),
    "GatherElements": (_no_larger_but_along_axis, "out[i][j][k] = input[index[i][j][k]][j][k] if axis = 0"),
}


def _find_unlike_sizes(definition: Definition, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return the second input if its sizes do not fit those of the first; empty if they do."""
    node = definition.step.node
    fits, quote = _FITTING.get(node.op_type, (None, ""))
    if fits is None or quote not in operator_text(schema):
        return {}
    inputs = [definition.inputs[name] for name in node.input[:2]]
    if fits(node, inputs):
        return {}
    return {"input": schema.inputs[1].name, "quote": quote, "shape": list(inputs[1].shape)}


#: Operator → the dimensions that are divided by a power of the block size, the power, and the words.
_DIVIDED: Mapping[str, tuple[tuple[int, ...], int, str]] = {
    "DepthToSpace": ((1,), 2, "[N, C/(blocksize * blocksize), H * blocksize, W * blocksize]"),
    "SpaceToDepth": ((2, 3), 1, "[N, C * blocksize * blocksize, H/blocksize, W/blocksize]"),
}


def _find_indivisible(definition: Definition, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return the input with a size that the text divides with a remainder; empty if there is none."""
    node = definition.step.node
    places, power, quote = _DIVIDED.get(node.op_type, ((), 0, ""))
    if not places or quote not in schema.outputs[0].description:
        return {}
    shape, block = definition.inputs[node.input[0]].shape, _integer(node, "blocksize") ** power
    if block < 1 or any(shape[place] % block for place in places):
        return {"input": schema.inputs[0].name, "quote": quote, "shape": list(shape)}
    return {}


#: Operator → the input that must be broadcastable to a shape without changing it, that shape, and the words.
_BROADCAST: Mapping[str, tuple[int, Callable[[onnx.NodeProto, Sequence[Array]], tuple[int, ...]], str]] = {
    "Gemm": (
        2,
        lambda node, inputs: (
            inputs[0].shape[1 if _integer(node, "transA") else 0],
            inputs[1].shape[0 if _integer(node, "transB") else 1],
        ),
        "The shape of C should be unidirectional broadcastable to (M, N).",
    ),
    "PRelu": (1, lambda node, inputs: inputs[0].shape, "its shape must be unidirectional broadcastable to X"),
}


def _find_unbroadcastable(definition: Definition, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return an input that must broadcast to another shape, and does not; empty if there is none."""
    node = definition.step.node
    place, shape_of, quote = _BROADCAST.get(node.op_type, (0, None, ""))
    if shape_of is None or quote not in operator_text(schema) or len(node.input) <= place or not node.input[place]:
        return {}
    inputs = [definition.inputs[name] for name in node.input]
    wanted, shape = shape_of(node, inputs), inputs[place].shape
    try:
        fits = np.broadcast_shapes(wanted, shape) == wanted
    except ValueError:
        fits = False
    if fits:
        return {}
    return {"input": schema.inputs[place].name, "quote": quote, "shape": list(shape), "wanted": list(wanted)}


def _integer(node: onnx.NodeProto, name: str) -> int:
    value = node_attribute(node, name, 0)
    return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class ValueLimit:
    """A limit in the text of an operator on the values of one of its inputs.

    Attributes:
        place: Index of the input.
        quote: The words; they are in the text of the operator or of the input.
        holds: Whether values keep to it, for the values, the operator's first input, and the node.
    """

    place: int
    quote: str
    holds: Callable[[Array, Array, onnx.NodeProto], bool]


def _axis(node: onnx.NodeProto) -> int:
    axis = node_attribute(node, "axis", 0)
    return axis if isinstance(axis, int) else 0


def _within(indices: Array, data: Array, node: onnx.NodeProto) -> bool:
    size = data.shape[_axis(node)]
    return bool(((indices >= -size) & (indices < size)).all())


def _within_dims(indices: Array, data: Array, node: onnx.NodeProto) -> bool:
    batch = node_attribute(node, "batch_dims", 0)
    first = batch if isinstance(batch, int) else 0
    sizes = np.array(data.shape[first : first + indices.shape[-1]])
    return bool(((indices >= -sizes) & (indices < sizes)).all())


def _between(low: float, high: float, *, open_end: bool = False) -> Callable[[Array, Array, onnx.NodeProto], bool]:
    def holds(values: Array, data: Array, node: onnx.NodeProto) -> bool:
        wide = values.astype(np.float64)
        return bool(((wide >= low) & ((wide < high) if open_end else (wide <= high))).all())

    return holds


def _is_class(labels: Array, scores: Array, node: onnx.NodeProto) -> bool:
    ignored = node_attribute(node, "ignore_index", None)
    return bool(((labels == ignored) | ((labels >= 0) & (labels < scores.shape[1]))).all())


_OUT_OF_BOUNDS = "It is an error if any of the index values are out of bounds."
#: Operator → the limits in its text on values.
VALUE_LIMITS: Mapping[str, ValueLimit] = {
    "Bernoulli": ValueLimit(0, "All values in input have to be in the range:[0, 1].", _between(0.0, 1.0)),
    "ConstantOfShape": ValueLimit(0, "All values must be >= 0.", lambda values, data, node: bool((values >= 0).all())),
    "CumSum": ValueLimit(
        1,
        "Must be in the range [-rank(x), rank(x)-1].",
        lambda axis, data, node: -data.ndim <= int(axis.reshape(-1)[0]) < data.ndim,
    ),
    "DequantizeLinear": ValueLimit(
        2,
        "there's no zero point (zero point is supposed to be 0)",
        lambda zero, data, node: data.dtype != np.int32 or not zero.any(),
    ),
    "Div": ValueLimit(
        1,
        "For integer inputs, the result is computed using truncating division (rounding toward zero).",
        lambda divisor, data, node: divisor.dtype.kind not in "iu" or bool((divisor != 0).all()),
    ),
    "Dropout": ValueLimit(1, "The ratio of random dropout, with value in [0, 1).", _between(0.0, 1.0, open_end=True)),
    "Gather": ValueLimit(1, _OUT_OF_BOUNDS, _within),
    "GatherElements": ValueLimit(1, _OUT_OF_BOUNDS, _within),
    "GatherND": ValueLimit(1, _OUT_OF_BOUNDS, _within_dims),
    "MaxUnpool": ValueLimit(
        1, "So the values in indices are in the range [0,", lambda indices, data, node: bool((indices >= 0).all())
    ),
    "Mod": ValueLimit(
        1,
        "the semantics follow that of the Python `%`-operator",
        lambda divisor, data, node: divisor.dtype.kind not in "iu" or bool((divisor != 0).all()),
    ),
    "NegativeLogLikelihoodLoss": ValueLimit(1, "Target element value shall be in range of [0, C).", _is_class),
    "Resize": ValueLimit(2, "It takes value greater than 0.", lambda scales, data, node: bool((scales > 0).all())),
    "ScatterElements": ValueLimit(1, _OUT_OF_BOUNDS, _within),
    "ScatterND": ValueLimit(1, "but are expected in the valid range.", _within_dims),
    "Slice": ValueLimit(4, "'steps' cannot be 0.", lambda steps, data, node: bool((steps != 0).all())),
    "SoftmaxCrossEntropyLoss": ValueLimit(1, "Labels element value shall be in range of [0, C).", _is_class),
    "Split": ValueLimit(
        1,
        "Sum of the values must be equal to the dim value at 'axis' specified.",
        lambda sizes, data, node: bool((sizes >= 0).all()) and int(sizes.sum()) == data.shape[_axis(node)],
    ),
    "TopK": ValueLimit(
        1, "containing a single positive value", lambda count, data, node: int(count.reshape(-1)[0]) > 0
    ),
}


def _out_of_range(definition: Definition, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return the input with a value that the text does not allow; nothing if there is none."""
    node = definition.step.node
    limit = VALUE_LIMITS.get(node.op_type)
    if limit is None:
        return {}
    names = [name for name in (node.input[0], *node.input[limit.place : limit.place + 1]) if name]
    if len(names) < 2 or limit.place >= len(schema.inputs) or limit.quote not in operator_text(schema):
        return {}
    data, values = (definition.inputs[name] for name in names)
    try:
        if limit.holds(values, data, node):
            return {}
    except (IndexError, ValueError):
        # Shapes that do not fit are for shape inference to find.
        return {}
    return {"input": schema.inputs[limit.place].name, "quote": limit.quote, "values": _shortly(values)}


def operator_text(schema: onnx.defs.OpSchema) -> str:
    """Return the description of an operator and of its inputs, on one line."""
    return " ".join(" ".join([schema.doc or "", *(i.description for i in schema.inputs)]).split())


def _shortly(values: Array) -> str:
    flat = [str(value) for value in values.reshape(-1)[:4]]
    return ", ".join(flat) + (", …" if values.size > len(flat) else "")
