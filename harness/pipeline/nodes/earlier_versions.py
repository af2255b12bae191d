"""Definitions of ONNX operators at the earlier versions whose meaning is another than today's.

onnx's reference evaluator has one rule for many operators, that of the newest version, and uses it for all. A node of
an earlier version is judged by the text of that version: by a formula here, or by today's operator with other
attributes. Where neither exists, the node is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from harness.core.dtypes import Array
from harness.pipeline.nodes.formulas import FORMULAS
from harness.pipeline.nodes.node_call import Formula, NodeCall
from harness.pipeline.stages import emitted_opset
from harness.pipeline.submodel import all_nodes

#: The opset of a model that has today's form of an earlier node: the first that has all of `_Earlier.restate`.
_RESTATED = 20


@dataclass(frozen=True)
class _Earlier:
    """An operator whose meaning changed.

    Attributes:
        until: The first opset with today's meaning, as the evaluator has it.
        formula: The meaning before; it returns None for what the text leaves open.
        restate: Writes a node in today's form, in place.
        is_earlier: Whether a node of an earlier version has the other meaning.
    """

    until: int
    formula: Formula | None = None
    restate: Callable[[onnx.NodeProto], None] | None = None
    is_earlier: Callable[[onnx.NodeProto], bool] = lambda node: True


def _flattened(compute: Callable[[Array], Array]) -> Formula:
    """Return a formula that coerces its input to two dimensions at `axis`, 1 by default, and works along the second."""

    def apply(call: NodeCall) -> Sequence[Array] | None:
        x = call.given(0)
        assert x is not None
        axis = call.attribute("axis", 1)
        rows = int(np.prod(x.shape[: axis % x.ndim if axis < 0 else axis]))
        if not x.size:
            return [x]
        return [np.asarray(compute(x.reshape(rows, -1))).reshape(x.shape).astype(x.dtype)]

    return apply


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _log_softmax(x: Array) -> Array:
    node = helper.make_node("LogSoftmax", ["x"], ["y"], axis=1)
    found = FORMULAS["LogSoftmax"](NodeCall(node, [x], _RESTATED, str(x.dtype)))
    assert found is not None
    return found[0]


def _hardmax(x: Array) -> Array:
    return np.asarray(np.arange(x.shape[1]) == np.argmax(x, 1)[:, None])


def _batch_normalization(call: NodeCall) -> Sequence[Array] | None:
    """Normalise with the given mean and variance; None in training mode, and for statistics of each activation."""
    if len([name for name in call.node.output if name]) > 1 or not call.attribute("spatial", 1):
        return None
    if call.opset < 7 and not call.attribute("is_test", 0):
        return None
    x, *statistics = (call.given(i) for i in range(5))
    assert x is not None
    along = [1, -1, *[1] * (x.ndim - 2)]
    scale, bias, mean, variance = (np.asarray(s).reshape(along) for s in statistics)
    epsilon = call.attribute("epsilon", 1e-5)
    return [np.asarray(scale * (x - mean) / np.sqrt(variance + x.dtype.type(epsilon)) + bias).astype(x.dtype)]


def _dropout(call: NodeCall) -> Sequence[Array] | None:
    """Return the input, as in test mode; the text leaves the mask open."""
    x = call.given(0)
    if x is None or len([name for name in call.node.output if name]) > 1:
        return None
    return [x] if call.opset >= 7 or call.attribute("is_test", 0) else None


def _dequantize(call: NodeCall) -> Sequence[Array] | None:
    """Compute ``y = (x - x_zero_point) * x_scale``, a scale and a zero point for all or for each index of `axis`."""
    x, scale, zero = (call.given(i) for i in range(3))
    assert x is not None
    assert scale is not None
    along = [1] * x.ndim
    if scale.ndim == 1 and scale.size > 1:
        along[call.attribute("axis", 1)] = -1
    shift = 0 if zero is None else zero.astype(np.int64).reshape(along if zero.size > 1 else ())
    exact = (x.astype(np.int64) - shift).astype(scale.dtype)
    return [np.asarray(exact * scale.reshape(along if scale.size > 1 else ())).astype(scale.dtype)]


def _upsample(call: NodeCall) -> Sequence[Array] | None:
    """Repeat elements by whole factors; the text says nothing about coordinates, which other modes and factors need."""
    x, given = call.given(0), call.given(1)
    scales = call.attribute("scales") if given is None else given.reshape(-1).tolist()
    if x is None or scales is None or call.attribute("mode", b"nearest") != b"nearest":
        return None
    if any(scale < 1 or scale != round(scale) for scale in scales):
        return None
    for axis, scale in enumerate(scales):
        x = np.repeat(x, int(scale), axis)
    return [x]


def _restate_roi_align(node: onnx.NodeProto) -> None:
    """Name the coordinates that version 16 has "for a backward-compatible behavior"."""
    node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "output_half_pixel"))


def _restate_grid_sample(node: onnx.NodeProto) -> None:
    """Write the modes as version 20 names them."""
    names = {b"bilinear": b"linear", b"bicubic": b"cubic"}
    for attribute in node.attribute:
        if attribute.name == "mode":
            attribute.s = names.get(attribute.s, attribute.s)


def _restate_scatter(node: onnx.NodeProto) -> None:
    """Use the name that version 11 gives the operator."""
    node.op_type = "ScatterElements"


def _has_broadcast(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "broadcast" and attribute.i for attribute in node.attribute)


def _lacks(name: str) -> Callable[[onnx.NodeProto], bool]:
    return lambda node: all(attribute.name != name for attribute in node.attribute)


#: Broadcasting along an axis that an attribute names.
_LIMITED = _Earlier(7, is_earlier=_has_broadcast)

#: Operator → its earlier meaning. Operators whose later versions only add dtypes, attributes with the old behaviour as
#: their default, or inputs in place of attributes, which the evaluator tells apart, are not here.
EARLIER: Mapping[str, _Earlier] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"), _LIMITED),
    "Gemm": _LIMITED,
    "BatchNormalization": _Earlier(14, _batch_normalization),
    "Concat": _Earlier(4, is_earlier=_lacks("axis")),
    "DequantizeLinear": _Earlier(19, _dequantize),
    "Dropout": _Earlier(12, _dropout),
    "GridSample": _Earlier(20, restate=_restate_grid_sample),
    "Hardmax": _Earlier(13, _flattened(_hardmax)),
    "LogSoftmax": _Earlier(13, _flattened(_log_softmax)),
    # The slope's axis is the channels'.
    "PRelu": _Earlier(7),
    "Reshape": _Earlier(5),
    "Resize": _Earlier(11, _upsample),
    "RoiAlign": _Earlier(16, restate=_restate_roi_align),
    # The first input is the lengths of sequences.
    "Scan": _Earlier(9),
    "Scatter": _Earlier(11, restate=_restate_scatter),
    # The defaults had fewer digits.
    "Selu": _Earlier(6),
    "Softmax": _Earlier(13, _flattened(_softmax)),
    "Split": _Earlier(2),
    "Tile": _Earlier(6),
    "Upsample": _Earlier(10, _upsample),
}


_OPTIONAL = ("Optional", "OptionalGetElement")


def earlier_meaning(node: onnx.NodeProto, opset: int) -> _Earlier | None:
    """Return the earlier meaning of a node at an opset of the default domain; None if today's applies."""
    earlier = EARLIER.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    return earlier if earlier is not None and opset < earlier.until and earlier.is_earlier(node) else None


def has_earlier_meanings(model: onnx.ModelProto) -> bool:
    """Whether onnx's evaluator would give a node of the model, or of a body in it, a meaning that it does not have."""
    opset = emitted_opset(model) or 1
    return any(earlier_meaning(node, opset) is not None for node in all_nodes(model))


def restated(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of one node in today's form, or the model itself if its node has that form.

    Optional values become what they hold: the evaluator adds a dimension to them.
    """
    opset = emitted_opset(model) or 1
    if any(node.op_type in _OPTIONAL for node in model.graph.node) and len(model.graph.node) > 1:
        plain = onnx.ModelProto()
        plain.CopyFrom(model)
        for node in plain.graph.node:
            if node.op_type in _OPTIONAL:
                node.op_type = "Identity"
        return plain
    earlier = earlier_meaning(model.graph.node[0], opset) if len(model.graph.node) == 1 else None
    if earlier is None or earlier.restate is None:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    earlier.restate(changed.graph.node[0])
    for entry in changed.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = _RESTATED
    return changed
