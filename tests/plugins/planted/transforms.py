"""Transforms that break a model, each in another way, and some that keep it right."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnx.inliner
import onnx_ir
import onnxscript.optimizer
from onnx import TensorProto, helper, numpy_helper

from harness.convert.transform import Samples, TransformEntry, find_transforms, register


def wrong_sign(model: onnx.ModelProto) -> onnx.ModelProto:
    """Negate every output that is a float."""
    graph = model.graph
    for output in graph.output:
        if output.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
            _negate(graph, output.name)
    return model


def _negate(graph: onnx.GraphProto, name: str) -> None:
    for node in graph.node:
        node.output[:] = [f"{name}_right" if made == name else made for made in node.output]
        node.input[:] = [f"{name}_right" if taken == name else taken for taken in node.input]
    graph.node.append(helper.make_node("Neg", [f"{name}_right"], [name]))


def dropped_cast(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace every cast by a copy."""
    for node in model.graph.node:
        if node.op_type == "Cast":
            node.op_type = "Identity"
            del node.attribute[:]
    return model


def lost_name(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rename the first output."""
    old = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["renamed" if made == old else made for made in node.output]
        node.input[:] = ["renamed" if taken == old else taken for taken in node.input]
    model.graph.output[0].name = "renamed"
    return model


def unsorted(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the last node first."""
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes[-1:], *nodes[:-1]])
    return model


def raises(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raise for every model."""
    raise KeyError("a value that is not there")


def wrong_in_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Negate every output in float16."""
    for output in model.graph.output:
        if output.type.tensor_type.elem_type == TensorProto.FLOAT16:
            _negate(model.graph, output.name)
    return model


def unchanged(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model."""
    return model


def through_ir(model: onnx.ModelProto) -> onnx.ModelProto:
    """Read the model into onnx-ir, and write it again."""
    return onnx_ir.serde.serialize_model(onnx_ir.serde.deserialize_model(model))


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Run onnxscript's optimiser."""
    ir_model = onnx_ir.serde.deserialize_model(model)
    onnxscript.optimizer.optimize(ir_model)
    return onnx_ir.serde.serialize_model(ir_model)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline all functions of the model."""
    return onnx.inliner.inline_local_functions(model)


def quantised(model: onnx.ModelProto, samples: Samples, *words: str) -> onnx.ModelProto:
    """Quantise a model with the registered transform of these words."""
    (transform,) = find_transforms(("-".join(("quantize-static", *words)),))
    return transform.transform(model, samples)


def changed(model: onnx.ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change an initializer."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), name))


def dequantised_weights(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that read a weight in steps."""
    held = {tensor.name for tensor in model.graph.initializer}
    yield from (node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in held)


def wrong_axis(model: onnx.ModelProto, samples: Samples) -> onnx.ModelProto:
    """Take the scales of matrices for those of the other dimension."""
    model = quantised(model, samples, "per-channel", "reduce-range")
    for node in dequantised_weights(model):
        for attribute in node.attribute:
            attribute.i = 1 - attribute.i
    return model


def zero_point_off(model: onnx.ModelProto, samples: Samples) -> onnx.ModelProto:
    """Add one to the zero point of each weight."""
    model = quantised(model, samples, "reduce-range")
    for node in dequantised_weights(model):
        changed(model, node.input[2], lambda zero: (zero + 1).astype(zero.dtype))
    return model


def other_scale(model: onnx.ModelProto, samples: Samples) -> onnx.ModelProto:
    """Dequantise the input by another scale than the one that it was quantised with."""
    model = quantised(model, samples, "reduce-range")
    quantise = next(node for node in model.graph.node if node.op_type == "QuantizeLinear")
    scale = next(tensor for tensor in model.graph.initializer if tensor.name == quantise.input[1])
    model.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1.5), "other"))
    reader = next(node for node in model.graph.node if quantise.output[0] in node.input)
    reader.input[1] = "other"
    return model


def packed(model: onnx.ModelProto, change: Callable[[np.ndarray], np.ndarray]) -> onnx.ModelProto:
    """Quantise to 4 bits, and change how the weights are packed."""
    (transform,) = find_transforms(("int4",))
    model = transform.transform(model, ())
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            changed(model, node.input[1], change)
    return model


def swapped_halves(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the first of two numbers into the upper half of a byte."""
    return packed(model, lambda bytes_: ((bytes_ >> 4) | (bytes_ << 4)).astype(np.uint8))


def transposed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Pack square matrices by rows in place of columns."""

    def change(bytes_: np.ndarray) -> np.ndarray:
        numbers = np.stack([bytes_ & 15, bytes_ >> 4], -1).reshape(bytes_.shape[0], -1).T
        pairs = numbers.reshape(*bytes_.shape, 2)
        return np.asarray(pairs[..., 0] | (pairs[..., 1] << 4), np.uint8)

    return packed(model, change)


#: Quantisers that store something wrongly; the first three are calibrated.
WRONG_STORAGE: tuple[Callable[..., onnx.ModelProto], ...] = (
    *(wrong_axis, zero_point_off, other_scale),
    *(swapped_halves, transposed),
)

WRONG: tuple[Callable[[onnx.ModelProto], onnx.ModelProto], ...] = (
    *(wrong_sign, dropped_cast, lost_name, unsorted, raises, wrong_in_float16),
)
RIGHT: tuple[Callable[[onnx.ModelProto], onnx.ModelProto], ...] = (unchanged, through_ir, folded, inlined)

for transform in (*WRONG, *RIGHT):
    register(TransformEntry(name=transform.__name__, probe=lambda: None, apply=transform, version=lambda: "1"))
for storing in WRONG_STORAGE:
    register(
        TransformEntry(
            name=storing.__name__,
            probe=lambda: None,
            apply=storing,
            version=lambda: "1",
            precision="int8",
            takes_samples=storing in WRONG_STORAGE[:3],
        )
    )
