"""Find where a transform makes a graph wrong: the first node, by comparing the graph with the one before it.

The first of these that is seen is named:

1. A weight whose steps do not give the weight before the transform: axis of its scales, zero point, packing.
2. A value that is quantised and dequantised by different scales or zero points.
3. A value that leaves the range of its dtype, and does not in float32: the node that computes it, or the one before it
   whose result vanishes.
4. A value that both graphs have under one name, and that roundings do not explain.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import onnx

from harness.compare.judge import CLOSE
from harness.compare.nearness import tolerance_of
from harness.core.dtypes import PRECISION, Array
from harness.core.numbers import are_same
from harness.pipeline.emulation import Emulation
from harness.pipeline.model_task import GraphChange
from harness.pipeline.nodes.node_steps import NodeStep, SteppedGraph, node_attribute

#: Steps that a number in a weight may be off, unless it is at the end of the range of its integers.
_STEPS_OFF = 1.0


def find_wrong_storage(before: SteppedGraph, after: SteppedGraph) -> GraphChange | None:
    """Return the first weight or value that a transformed graph stores in wrong steps; None if all are right.

    Nothing is run.
    """
    return next(itertools.chain(_wrong_weights(before, after), _unlike_scales(after)), None)


def _wrong_weights(before: SteppedGraph, after: SteppedGraph) -> Iterator[GraphChange]:
    for step in after.steps:
        for place, weight in _dequantised_inputs(after, step):
            right = _constant_before(before, after, step, place)
            if right is None or right.shape != weight.values.shape:
                continue
            off = weight.steps_off(right)
            if off > _STEPS_OFF:
                yield _change_at(weight.explanation(right), step, steps=off)


def _constant_before(before: SteppedGraph, after: SteppedGraph, step: NodeStep, place: int) -> Array | None:
    """Return the constant that a node reads before a transform; None if the node is not known, or reads none.

    It is the node of the same kind with the same result, or at the same place among those of its kind.
    """
    kind = {"MatMulNBits": "MatMul"}.get(step.node.op_type, step.node.op_type)
    then = [other for other in before.steps if other.node.op_type == kind]
    now = [other for other in after.steps if other.node.op_type in (kind, step.node.op_type)]
    alike = [other for other in then if other.outputs[:1] == step.outputs[:1]]
    if not alike and len(then) == len(now):
        alike = [then[now.index(step)]]
    if not alike or place >= len(alike[0].node.input):
        return None
    return before.constant_values.get(alike[0].node.input[place])


def _unlike_scales(graph: SteppedGraph) -> Iterator[GraphChange]:
    makers = {step.outputs[0]: step for step in graph.steps if step.node.op_type == "QuantizeLinear"}
    for step in graph.steps:
        maker = makers.get(step.node.input[0]) if step.node.op_type == "DequantizeLinear" else None
        if maker is None:
            continue
        scales = ([graph.constant_values.get(name) for name in s.node.input[1:3]] for s in (maker, step))
        for what, first, second in zip(("scale", "zero-point"), *scales, strict=False):
            if first is not None and second is not None and not np.array_equal(first, second):
                yield _change_at(what, step)


def _change_at(change: str, step: NodeStep, *, steps: float = 0.0, largest: float = 0.0) -> GraphChange:
    return GraphChange(change, step.node.op_type, step.outputs[0] if step.outputs else "", steps, largest)


def find_range_loss(after: Emulation) -> GraphChange | None:
    """Return the first node whose result leaves the range of its narrow dtype, and does not in float32; None if none
    does.

    If a result vanishes before, and the node reads it, that one is named.
    """
    asked, wide = after.asked or {}, after.widened.asked or {}
    vanished: dict[str, NodeStep] = {}
    for step in after.graph.steps:
        for name in step.outputs:
            if name not in wide or str(asked[name].dtype) not in PRECISION or wide[name].shape != asked[name].shape:
                continue
            lost = ~np.isfinite(asked[name].astype(np.float64)) & np.isfinite(wide[name])
            if lost.any():
                cause = next((vanished[read] for read in step.inputs if read in vanished), None)
                if cause is not None:
                    return _change_at("vanishes", cause)
                return _change_at("overflows", step, largest=float(np.abs(wide[name][lost]).max()))
            if ((asked[name] == 0) & (wide[name] != 0)).any():
                vanished[name] = step
    return None


def find_unexplained_value(before: Emulation, after: Emulation) -> GraphChange | None:
    """Return the first node whose result has the name of a value before, and differs by more than roundings."""
    then, now = before.asked or {}, after.asked or {}
    for step in after.graph.steps:
        for name in step.outputs:
            right, got = then.get(name), now.get(name)
            if right is None or got is None or right.dtype.kind == "c":
                continue
            if right.shape != got.shape:
                return _change_at("shape", step)
            if not _is_same(name, right, got, after):
                return _change_at("values", step)
    return None


def _is_same(name: str, right: Array, got: Array, after: Emulation) -> bool:
    wide = right.astype(np.float64), got.astype(np.float64)
    is_float = str(right.dtype) in PRECISION
    same = tolerance_of(CLOSE, str(right.dtype)).accepts(*wide) if is_float else are_same(*wide)
    return bool((same | after.is_explained(name, *wide, pooled=True)).all())


def find_wrong_node(before: Emulation, after: Emulation) -> GraphChange | None:
    """Return the first node that a transform makes wrong; None if none is seen."""
    return (
        find_wrong_storage(before.graph, after.graph) or find_range_loss(after) or find_unexplained_value(before, after)
    )


@dataclass(frozen=True, eq=False)
class _Weight:
    """A weight in steps.

    Attributes:
        values: The numbers that its steps give, in float64.
        scale: The scale of each number, in the same shape.
        steps: The integers, in the same shape; None where they are packed.
        others: Explanations, and the numbers and scales if the steps are read so.
        is_at_end: Marks the integers at the ends of their range.
    """

    values: Array
    scale: Array
    is_at_end: Array
    others: tuple[tuple[str, Array, Array], ...]

    def steps_off(self, right: Array) -> float:
        """Return how many steps a number is off at most, apart from those at the ends of the range."""
        with np.errstate(all="ignore"):
            off = np.abs(self.values - right.astype(np.float64)) / np.abs(self.scale)
        return float(np.nan_to_num(off[~self.is_at_end], nan=0.0).max(initial=0.0))

    def explanation(self, right: Array) -> str:
        """Return what must be read otherwise to be right: ``axis``, ``zero-point``, ``packing``; ``weight`` for
        none of these."""
        read = ((name, replace(self, values=values, scale=scale)) for name, values, scale in self.others)
        return next((name for name, weight in read if weight.steps_off(right) <= _STEPS_OFF), "weight")


def _dequantised_inputs(graph: SteppedGraph, step: NodeStep) -> Iterator[tuple[int, _Weight]]:
    """Yield the weights of a node that steps give, with their places among its inputs."""
    constants = graph.constant_values
    if step.node.op_type == "MatMulNBits" and all(name in constants for name in step.node.input[1:3]):
        yield 1, _packed_weight(step.node, [constants.get(name) for name in step.node.input])
        return
    makers = {made.outputs[0]: made.node for made in graph.steps if made.node.op_type == "DequantizeLinear"}
    for place, name in enumerate(step.node.input):
        maker = makers.get(name)
        if maker is not None and all(name in constants for name in maker.input if name):
            yield place, _weight(maker, [constants[name] for name in maker.input if name])


def _weight(node: onnx.NodeProto, inputs: list[Array]) -> _Weight:
    """Return the weight that a DequantizeLinear gives: ``(x - zero point) · scale`` by its text, along an axis."""
    steps, scale = inputs[0].astype(np.float64), inputs[1].astype(np.float64)
    zero = inputs[2].astype(np.float64) if len(inputs) > 2 else np.zeros_like(scale)
    axis = int(str(node_attribute(node, "axis", 1)))

    def spread(array: Array, along: int) -> Array:
        if array.ndim == 0 or array.size == 1:
            return np.full(steps.shape, array.reshape(-1)[0] if array.size else 0.0)
        if array.ndim == steps.ndim:
            # In blocks.
            repeats = -(-steps.shape[along] // array.shape[along])
            return np.repeat(array, repeats, axis=along).take(range(steps.shape[along]), axis=along)
        shape = [1] * steps.ndim
        shape[along] = -1
        return np.broadcast_to(array.reshape(shape), steps.shape)

    others: list[tuple[str, Array, Array]] = []
    full, zeros = spread(scale, axis % max(steps.ndim, 1)), spread(zero, axis % max(steps.ndim, 1))
    for other in range(steps.ndim):
        if scale.ndim == 1 and scale.size == steps.shape[other] > 1 and other != axis % steps.ndim:
            others.append(("axis", (steps - spread(zero, other)) * spread(scale, other), spread(scale, other)))
    others += [("zero-point", (steps - zeros + off) * full, full) for off in (-1, 1)]
    limits = ml_dtypes.iinfo(inputs[0].dtype)  # type: ignore[no-untyped-call]
    is_at_end = (steps == float(limits.min)) | (steps == float(limits.max))
    return _Weight((steps - zeros) * full, full, is_at_end, tuple(others))


def _packed_weight(node: onnx.NodeProto, inputs: list[Array | None]) -> _Weight:
    """Return the weight of a MatMulNBits of four bits: of shape (K, N), packed as (N, blocks, bytes), the first of two
    numbers in the lower half of a byte (ONNX Runtime's ContribOperators.md)."""
    rows, columns = (int(str(node_attribute(node, name, 0))) for name in ("K", "N"))
    block = int(str(node_attribute(node, "block_size", 32)))
    packed, scale = inputs[1], inputs[2]
    assert packed is not None
    assert scale is not None
    blocks = -(-rows // block)
    zero = inputs[3] if len(inputs) > 3 else None
    low, high = packed & 0xF, packed >> 4
    points = np.full((columns, blocks), 8.0)
    if zero is not None and zero.size:
        halves = np.stack([zero & 0xF, zero >> 4], -1).reshape(columns, -1)
        points = halves[:, :blocks].astype(np.float64)
    scales = scale.astype(np.float64).reshape(columns, blocks)

    def unpacked(first: Array, second: Array) -> Array:
        return np.stack([first, second], -1).reshape(columns, -1).astype(np.float64)

    def weight(steps: Array) -> Array:
        values = (steps.reshape(columns, blocks, -1) - points[..., None]) * scales[..., None]
        return np.ascontiguousarray(values.reshape(columns, -1)[:, :rows].T)

    steps = unpacked(low, high)
    full = np.repeat(scales, block, axis=1)[:, :rows].T
    others = [("packing", weight(unpacked(high, low)), full)]
    if steps.shape[0] == steps.shape[1]:
        others.append(("transposed", weight(np.ascontiguousarray(steps.T)), full))
    is_at_end = ((steps == 0) | (steps == 15))[:, :rows].T
    return _Weight(weight(steps), full, is_at_end, tuple(others))
