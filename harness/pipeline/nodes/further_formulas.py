"""Definitions of operators that choose, count or round, where onnx's reference evaluator departs from the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from harness.core.dtypes import Array
from harness.pipeline.nodes.attention import attention
from harness.pipeline.nodes.node_call import Formula, NodeCall, widen


def _quantize(call: NodeCall) -> Sequence[Array] | None:
    """Divide, round to the nearest even integer, add the zero point, and saturate; None for targets that are floats.

    The evaluator casts before it saturates, so that infinities end anywhere.
    """
    x, scale, zero = (call.given(i) for i in range(3))
    assert x is not None
    assert scale is not None
    kind = call.attribute("output_dtype", 0) or onnx.TensorProto.UINT8
    target = onnx.helper.tensor_dtype_to_np_dtype(kind) if zero is None else zero.dtype
    if "int" not in target.name:
        return None
    scales, shift = (_spread(call, a, x.shape) for a in (scale, np.zeros((), target) if zero is None else zero))
    with np.errstate(all="ignore"):
        quotient = x / scales if x.dtype.kind == "f" and x.dtype.itemsize >= 4 else x.astype(np.float32) / scales
        exact = np.rint(quotient.astype(np.float64)) + shift.astype(np.float64)
    limits = ml_dtypes.iinfo(target)  # type: ignore[no-untyped-call]
    # The text does not say what NaN is quantised to.
    held = np.clip(np.where(np.isnan(exact), shift, exact), int(limits.min), int(limits.max))
    return [held.astype(target)]


def _requantized(exact: Array, scale: Array, zero: Array) -> Array:
    """Return real numbers divided by a scale, rounded to the nearest even integer, shifted and saturated."""
    limits = np.iinfo(zero.dtype)
    rounded = np.rint(exact / scale.astype(np.float64)) + zero.astype(np.float64)
    return np.asarray(np.clip(rounded, limits.min, limits.max)).astype(zero.dtype)


def _real(array: Array, scale: Array, zero: Array, axis: int) -> Array:
    """Return the numbers that quantised ones stand for, a scale for all or for each index of an axis."""
    along = [-1 if i == axis else 1 for i in range(array.ndim)]
    scales, zeros = (part.reshape(along) if part.size > 1 else part.reshape(()) for part in (scale, zero))
    return np.asarray((array.astype(np.float64) - zeros.astype(np.float64)) * scales.astype(np.float64))


def _quantized_product(call: NodeCall) -> Sequence[Array] | None:
    """Multiply the numbers that are meant; the evaluator rounds after it has added the zero point."""
    parts = [array for array in call.inputs if array is not None]
    if len(parts) != 8 or parts[7].size != 1 or parts[1].size != 1:
        return None
    return [_requantized(_product(parts), parts[6], parts[7])]


def _product(parts: Sequence[Array]) -> Array:
    left, right = parts[0], parts[3]
    scaled = _real(left, parts[1], parts[2], axis=-1) @ _real(right, parts[4], parts[5], axis=right.ndim - 1)
    return np.asarray(scaled)


def quantised_reals(operator: str, inputs: Sequence[Array | None]) -> Array | None:
    """Return the real numbers that a quantised operator rounds to integers; None for other operators.

    Args:
        operator: The operator.
        inputs: The inputs of a node by position.
    """
    parts = [array for array in inputs if array is not None]
    if operator == "QLinearMatMul" and len(parts) == 8 and parts[7].size == 1 and parts[1].size == 1:
        return np.asarray(_product(parts) / parts[6].astype(np.float64) + parts[7].astype(np.float64))
    return None


def _spread(call: NodeCall, array: Array, shape: Sequence[int]) -> Array:
    """Return scales or zero points for each element of a tensor: of all, of each index of an axis, or of each block."""
    if array.size == 1:
        return array.reshape(())
    axis = call.attribute("axis", 1)
    axis = axis % len(shape)
    block = call.attribute("block_size", 0)
    if block:
        return np.repeat(array, block, axis)
    return array.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _lp_normalization(call: NodeCall) -> Sequence[Array]:
    """Divide by the sum of magnitudes, or by the root of the sum of squares; a norm of zero gives zero."""
    x, axis, order = call.given(0), call.attribute("axis", -1), call.attribute("p", 2)
    assert x is not None
    wide = widen(x)
    norm = (np.abs(wide) ** order).sum(axis, keepdims=True) ** (1.0 / order)
    return [np.where(norm == 0, 0, wide / np.where(norm == 0, 1, norm)).astype(x.dtype)]


def _one_hot(call: NodeCall) -> Sequence[Array]:
    """Choose the off-value or the on-value, neither of which is computed."""
    indices, depth, values = (call.given(i) for i in range(3))
    assert indices is not None
    assert depth is not None
    assert values is not None
    count = int(depth.reshape(()))
    places = indices.astype(np.int64)
    axis = call.attribute("axis", -1)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    expanded = np.expand_dims(places, axis)
    numbers = np.arange(count).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
    wrapped = np.where(expanded < 0, expanded + count, expanded)
    return [np.where((wrapped == numbers) & (expanded >= -count), values[1], values[0]).astype(values.dtype)]


def _squeeze(call: NodeCall) -> Sequence[Array]:
    """Remove the named dimensions, or all of size 1."""
    x = call.given(0)
    assert x is not None
    axes = _axes(call)
    if axes is None:
        axes = tuple(i for i, size in enumerate(x.shape) if size == 1)
    return [np.squeeze(x, axes)]


def _unsqueeze(call: NodeCall) -> Sequence[Array]:
    """Add dimensions at places in the result."""
    x, axes = call.given(0), _axes(call)
    assert x is not None
    rank = x.ndim + len(axes or ())
    for axis in sorted(axis % rank for axis in axes or ()):
        x = np.expand_dims(x, axis)
    return [x]


def _axes(call: NodeCall) -> tuple[int, ...] | None:
    """Return the axes of a node, an input since version 13; None if it names none."""
    given = call.given(1)
    named = call.attribute("axes") if given is None else given.reshape(-1).tolist()
    return None if named is None else tuple(int(axis) for axis in named)


def _mean(call: NodeCall) -> Sequence[Array]:
    """Divide a sum by the number of its terms, which broadcast."""
    terms = [x for x in call.inputs if x is not None]
    wide = terms[0] if terms[0].dtype.itemsize >= 8 else terms[0].astype(np.float64)
    total = wide
    for term in terms[1:]:
        total = total + term
    return [np.asarray(total / len(terms)).astype(terms[0].dtype)]


def _reduce_log_sum(call: NodeCall) -> Sequence[Array]:
    """Return the logarithm of a sum."""
    x, axes = call.given(0), _axes(call)
    assert x is not None
    if not axes and call.attribute("noop_with_empty_axes", 0):
        return [np.log(x.astype(np.float64)).astype(x.dtype)]
    wide = widen(x)
    keep = bool(call.attribute("keepdims", 1))
    return [np.asarray(np.log(wide.sum(axes or None, keepdims=keep))).astype(x.dtype)]


def _unique(call: NodeCall) -> Sequence[Array] | None:
    """Return the distinct slices in their order, or in that of their first occurrence."""
    x, axis = call.given(0), call.attribute("axis")
    assert x is not None
    if not x.size or (x.dtype.kind == "f" and np.isnan(x).any()):
        return None
    flat = x.reshape(-1) if axis is None else x
    along = 0 if axis is None else axis
    if x.dtype.kind == "O" and axis is not None:
        return None
    found = np.unique(
        flat, return_index=True, return_inverse=True, return_counts=True, axis=None if axis is None else along
    )
    values, first, inverse, counts = (np.asarray(part) for part in found)
    inverse = inverse.reshape(-1)
    if not call.attribute("sorted", 1):
        order = np.argsort(first, kind="stable")
        values, first, counts = np.take(values, order, along), first[order], counts[order]
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        inverse = places[inverse]
    results = [values, *(part.astype(np.int64) for part in (first, inverse, counts))]
    return [array for array, name in zip(results, call.node.output, strict=False) if name]


def _non_max_suppression(call: NodeCall) -> Sequence[Array]:
    """Choose boxes by falling scores, of those that overlap no chosen box of their class by more than a threshold."""
    boxes, scores, most, overlap, least = (call.given(i) for i in range(5))
    assert boxes is not None
    assert scores is not None
    count = 0 if most is None else int(most.reshape(()))
    allowed = 0.0 if overlap is None else float(overlap.reshape(()))
    chosen: list[tuple[int, int, int]] = []
    corners = _corners(boxes, centred=bool(call.attribute("center_point_box", 0)))
    for batch, kind in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for box in np.argsort(-scores[batch, kind], kind="stable"):
            if len(kept) >= count:
                break
            if least is not None and not scores[batch, kind, box] > float(least.reshape(())):
                continue
            if all(_overlap(corners[batch, box], corners[batch, other]) <= allowed for other in kept):
                kept.append(int(box))
        chosen += [(batch, kind, box) for box in kept]
    return [np.asarray(chosen, np.int64).reshape(-1, 3)]


def _corners(boxes: Array, *, centred: bool) -> Array:
    """Return the lower and the upper corner of boxes, given by any two corners or by centre and size."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        first, second = first - second / 2, first + second / 2
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _overlap(box: Array, other: Array) -> float:
    shared = np.clip(np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]), 0, None).prod()
    whole = (box[2:] - box[:2]).prod() + (other[2:] - other[:2]).prod() - shared
    return float(shared / whole) if whole > 0 else 0.0


def _string_normalizer(call: NodeCall) -> Sequence[Array] | None:
    """Remove the words of a list, and then change the case of the others; without any left, one empty word stays."""
    x = call.given(0)
    assert x is not None
    cased = bool(call.attribute("is_case_sensitive", 0))
    stops = [word.decode() for word in call.attribute("stopwords", [])]
    removed = set(stops if cased else map(str.lower, stops))
    kept = [word for word in x.reshape(-1) if (word if cased else word.lower()) not in removed]
    change: dict[bytes, Any] = {b"LOWER": str.lower, b"UPPER": str.upper}
    action = change.get(call.attribute("case_change_action", b"NONE"), str)
    words = np.asarray([action(word) for word in kept] or [""], object)
    return [words.reshape(*x.shape[:-1], -1)]


def _scan(call: NodeCall) -> Sequence[Array] | None:
    """Run the body once for each slice, in either direction; the evaluator knows no axis but 0, and one direction."""
    body, count = call.attribute("body"), call.attribute("num_scan_inputs")
    inputs = [array for array in call.inputs if array is not None]
    if any(name for node in body.node for name in node.input if name and name not in _values_inside(body)):
        return None
    states, scanned = inputs[:-count], inputs[-count:]
    results = len(body.output) - len(states)
    axes, directions = (call.attribute(f"scan_input_{n}", [0] * count) for n in ("axes", "directions"))
    out_axes, out_directions = (call.attribute(f"scan_output_{n}", [0] * results) for n in ("axes", "directions"))
    model = onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", call.opset)])
    evaluator = ReferenceEvaluator(model)
    slices = [np.flip(x, a) if back else x for x, a, back in zip(scanned, axes, directions, strict=True)]
    collected: list[list[Array]] = [[] for _ in range(results)]
    for step in range(slices[0].shape[axes[0]]):
        taken = [np.take(x, step, a) for x, a in zip(slices, axes, strict=True)]
        feeds = dict(zip((value.name for value in body.input), [*states, *taken], strict=True))
        outputs: Any = evaluator.run(None, feeds)
        states = outputs[: len(states)]
        for kept, output in zip(collected, outputs[len(states) :], strict=True):
            kept.append(output)
    if not all(collected):
        return None
    stacked = [
        np.stack(kept[::-1] if back else kept, a)
        for kept, a, back in zip(collected, out_axes, out_directions, strict=True)
    ]
    return [array for array, name in zip([*states, *stacked], call.node.output, strict=False) if name]


def _values_inside(body: onnx.GraphProto) -> set[str]:
    inside = {value.name for value in (*body.input, *body.initializer)}
    return inside | {name for node in body.node for name in node.output}


#: Operators whose formula runs their body.
BODY_RUNNERS = frozenset({"Scan"})

FURTHER: dict[str, Formula] = {
    "QuantizeLinear": _quantize,
    "QLinearMatMul": _quantized_product,
    "LpNormalization": _lp_normalization,
    "OneHot": _one_hot,
    "Attention": attention,
    "Mean": _mean,
    "ReduceLogSum": _reduce_log_sum,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Unique": _unique,
    "NonMaxSuppression": _non_max_suppression,
    "StringNormalizer": _string_normalizer,
    "Scan": _scan,
}
