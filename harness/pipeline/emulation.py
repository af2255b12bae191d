"""Emulate a graph: its values as it asks for them, and how far roundings in its dtypes may move them.

A transformed graph computes in float16, or in integers that stand for steps. A runtime may use more bits than the graph
asks for (ONNX Runtime runs many float16 operators on a CPU in float32), so that its answer does not show what the graph
costs. The emulation runs each node by itself in a runtime without optimisations, which rounds every result to its
dtype:

1. The values asked for are those of one such run.
2. In further runs each rounding goes another way: a number of a narrow dtype moves by one unit in the last place down,
   none, or up, before and after each node that computes, and an integer that stands for steps by one step. Weights move
   in the same way. What is exact stays: a cast that loses nothing, and numbers of three bits (0, 1, 0.75). The root
   mean square of the movements is D (Monte Carlo arithmetic; see `harness.pipeline.rounding_oracle`).
3. An element is right if it is within `SPREAD`·D of the right one, or within this of the value asked for if that is
   itself within twice as much of the right one. A rounding moves a number by 0.29 units (root mean square of a uniform
   error), a movement by 0.82, so that 3·D are eight standard deviations of one rounding. A value that leaves the
   dtype's range is not explained. If any value does, D is that of the same graph in float32 whose inputs and results
   move by as much: a runtime that computes in more bits is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from harness.compare.judge import Mask
from harness.compare.nearness import ulp
from harness.core.dtypes import Array
from harness.core.numbers import distance
from harness.pipeline.loaded_models import RANDOM_OPERATORS, LoadedModels
from harness.pipeline.nodes.node_steps import EXACT, NodeStep, SteppedGraph, node_attribute, split_steps
from harness.pipeline.run_graph import run_graph
from harness.pipeline.submodel import walk_nodes
from harness.run.backend import Backend

#: Times D that an element may be off.
SPREAD = 3.0
_RUNS = 12
#: Bytes of all values of a graph above which only the movements of its outputs are kept.
_MOST_BYTES = 2**27
#: Narrow dtype → bits of its significand after the first three; a number without any of them is taken as exact.
_LAST_BITS = {"float16": 0xFF, "bfloat16": 0x1F}
#: Operators whose first result is rounded to steps; ONNX Runtime's own begin with ``QLinear``, too.
_QUANTISE = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm"})
_CASTS = frozenset({"Cast", "CastLike"})
#: Operator → places of inputs that are numbers of steps if they are constants.
_WEIGHTS = {
    "DequantizeLinear": (0,),
    "QLinearConv": (3,),
    "QLinearMatMul": (0, 3),
    "QGemm": (3,),
    "MatMulInteger": (0, 1),
    "ConvInteger": (1,),
}
#: The operator whose constant weights are packed, two numbers of steps to a byte.
_PACKED = "MatMulNBits"
#: Its attribute for the precision of the kernel → how the other operand is rounded: a float dtype, or to int8.
_ACCURACY = {2: "float16", 3: "bfloat16", 4: "int8"}

#: Changes the inputs of a step.
_Before: TypeAlias = "Callable[[NodeStep, Sequence[Array]], Sequence[Array]]"
#: Changes the results of a step, given its inputs.
After: TypeAlias = "Callable[[NodeStep, Sequence[Array], Sequence[Array]], Sequence[Array]]"


def quantises(operator: str) -> bool:
    """Whether the first result of an operator is rounded to steps."""
    return operator in _QUANTISE or operator.startswith("QLinear")


def stores_steps(operator: str) -> bool:
    """Whether an operator gives or takes numbers as steps."""
    return quantises(operator) or operator in _WEIGHTS or operator == _PACKED


@dataclass(frozen=True, eq=False)
class Emulation:
    """A graph that is run node by node.

    Attributes:
        graph: The graph in steps.
        feeds: Its inputs by name, in the dtypes that it declares.
        rounded: Name of an input → the elements that have been rounded to such a dtype.
        runtime: Runs each node by itself: a runtime without optimisations.
        runs: Number of runs with other roundings.
        alive: Called before each run, so that a slow one is not taken for a hang.
    """

    graph: SteppedGraph
    feeds: Mapping[str, Array]
    runtime: Backend
    rounded: Mapping[str, Mask] = field(default_factory=dict)
    runs: int = _RUNS
    alive: Callable[[], None] = lambda: None

    @cached_property
    def _caching(self) -> Backend:
        return LoadedModels().caching(self.runtime)

    @cached_property
    def asked(self) -> Mapping[str, Array] | None:
        """The values by name as the graph asks for them; None if a node cannot be run, or draws at random."""
        nodes = walk_nodes(node for step in self.graph.steps for node in step.nodes)
        if any(node.op_type in RANDOM_OPERATORS for node in nodes):
            return None
        return self._run(self.graph, self.feeds)

    def run_with(self, after: After) -> Mapping[str, Array] | None:
        """Return the values by name, with the results of each step changed; None if a step fails."""
        return self._run(self.graph, self.feeds, after=after)

    @cached_property
    def moved(self) -> Mapping[str, Array]:
        """Name → root mean square of the movements of each element; of a large graph only for its outputs."""
        asked = self.asked
        if asked is None:
            return {}
        kept = asked.keys() if sum(a.nbytes for a in asked.values()) <= _MOST_BYTES else self.outputs
        squares = {name: np.zeros(asked[name].shape) for name in kept}
        done = 0
        for seed in range(self.runs):
            self.alive()
            random = np.random.default_rng(seed)
            graph = replace(self.graph, constants=_moved_constants(self.graph, random))
            feeds = {name: _moved(array, random, self.rounded.get(name)) for name, array in self.feeds.items()}
            values = self._run(graph, feeds, *_changes(random))
            if values is None:
                continue
            done += 1
            for name, total in squares.items():
                if values[name].shape == total.shape:
                    total += _movement(values[name], asked[name]) ** 2
        return {name: np.sqrt(total / max(done, 1)) for name, total in squares.items()}

    @property
    def outputs(self) -> list[str]:
        """The names of the graph's outputs."""
        return [value.name for value in self.graph.model.graph.output]

    def is_explained(self, name: str, right: Array, got: Array, *, pooled: bool = False) -> Mask:
        """Mark the elements of a result that roundings explain.

        Args:
            name: The value's name in the graph.
            right: The right elements, in float64; same shape as `got`.
            got: The elements to judge, in float64.
            pooled: Whether an element may be off by the root mean square of what all elements of the value move.
        """
        if self.asked is None or name not in self.moved or self.asked[name].shape != got.shape:
            return np.zeros(got.shape, bool)
        asked, moved = self.asked[name], self.moved[name]
        if self.leaves_range:
            moved = self._moved_without_limits.get(name, moved)
        if asked.dtype.kind in "iub" and name in self.outputs and not quantises(self._makers.get(name, "")):
            # Roundings decide which index it is.
            return moved > 0
        with np.errstate(all="ignore"):
            allowed = SPREAD * (np.maximum(moved, np.sqrt(np.mean(moved**2))) if pooled and moved.size else moved)
            wide = asked.astype(np.float64)
            near_right = np.abs(got - right) <= allowed
            near_asked = (np.abs(got - wide) <= allowed) & (np.abs(wide - right) <= 2 * allowed)
        return np.asarray(near_right | near_asked)

    @cached_property
    def leaves_range(self) -> bool:
        """Whether a value that is asked for is infinite or NaN, and is a number in float32."""
        asked = {n: a for n, a in (self.asked or {}).items() if n in self._makers and str(a.dtype) in _LAST_BITS}
        odd = {name: ~np.isfinite(array.astype(np.float32)) for name, array in asked.items()}
        if not any(mask.any() for mask in odd.values()):
            return False
        wide = self.widened.asked or {}
        return any(
            (mask & np.isfinite(wide[n])).any() for n, mask in odd.items() if n in wide and wide[n].shape == mask.shape
        )

    @cached_property
    def widened(self) -> Emulation:
        """The same graph in float32."""
        feeds = {n: a.astype(np.float32) if str(a.dtype) in _LAST_BITS else a for n, a in self.feeds.items()}
        return Emulation(split_steps(widen_graph(self.graph.model)), feeds, self.runtime)

    @cached_property
    def _moved_without_limits(self) -> Mapping[str, Array]:
        """Name of an output → its root mean square movement if no number can leave the range of a narrow dtype."""
        asked, wide = self.asked or {}, self.widened
        narrow = {name: str(array.dtype) for name, array in asked.items() if str(array.dtype) in _LAST_BITS}
        if wide.asked is None:
            return {}
        squares = {name: np.zeros(wide.asked[name].shape) for name in self.outputs if name in wide.asked}
        for seed in range(self.runs):
            self.alive()
            random = np.random.default_rng(seed)

            def after(
                step: NodeStep, inputs: Sequence[Array], results: Sequence[Array], random: np.random.Generator = random
            ) -> Sequence[Array]:
                pairs = zip(step.outputs, results, strict=True)
                return [
                    _moved_by_units(array, narrow[name], random) if name in narrow else array for name, array in pairs
                ]

            feeds = {
                name: _moved_by_units(array, str(self.feeds[name].dtype), random) if name in self.rounded else array
                for name, array in wide.feeds.items()
            }
            values = replace(wide, feeds=feeds).run_with(after)
            for name, total in squares.items():
                if values is not None:
                    total += _movement(values[name], wide.asked[name]) ** 2
        return {name: np.sqrt(total / self.runs) for name, total in squares.items()}

    @cached_property
    def _makers(self) -> Mapping[str, str]:
        return {name: step.node.op_type for step in self.graph.steps for name in step.outputs}

    def _run(
        self,
        graph: SteppedGraph,
        feeds: Mapping[str, Array],
        before: _Before = lambda step, inputs: inputs,
        after: After = lambda step, inputs, results: results,
    ) -> dict[str, Array] | None:
        """Run every step; return all values by name, or None if a step fails."""
        values: dict[str, Array] = {**graph.constant_values, **feeds}
        for step in graph.steps:
            inputs = before(step, [values[name] for name in step.inputs])
            given = dict(zip(step.inputs, inputs, strict=True))
            alone = graph.alone(step, given)
            results = run_graph(self._caching, alone, graph.feeds_alone(step, given)).outputs
            if results is None or len(results) != len(step.outputs):
                return None
            values.update(zip(step.outputs, after(step, inputs, results), strict=True))
        return values


def _changes(random: np.random.Generator) -> tuple[_Before, After]:
    """Return how the inputs of a step and its results are moved."""

    def before(step: NodeStep, inputs: Sequence[Array]) -> Sequence[Array]:
        if step.node.op_type == _PACKED:
            level = node_attribute(step.node, "accuracy_level", 0)
            return [_rounded_otherwise(inputs[0], _ACCURACY.get(int(str(level)), ""), random), *inputs[1:]]
        return [_moved(array, random) for array in inputs] if _computes(step) else inputs

    def after(step: NodeStep, inputs: Sequence[Array], results: Sequence[Array]) -> Sequence[Array]:
        if quantises(step.node.op_type):
            return [_stepped(results[0], random), *results[1:]]
        if step.node.op_type in _CASTS and step.is_single:
            return [_moved(results[0], random, _differ(inputs[0], results[0]))]
        return [_moved(array, random) for array in results] if _computes(step) else results

    return before, after


def _computes(step: NodeStep) -> bool:
    return any(node.op_type not in EXACT for node in step.nodes)


def _differ(a: Array, b: Array) -> Mask:
    return np.asarray(a.astype(np.float64) != b.astype(np.float64))


def _moved(values: Array, random: np.random.Generator, rounded: Mask | None = None) -> Array:
    """Return numbers of a narrow dtype moved by one unit in the last place down, none, or up; others as they are.

    Exact numbers stay, and so do those that would leave the range.

    Args:
        values: The numbers.
        random: Draws the movements.
        rounded: Marks the numbers that are not exact; None for those with more than three bits.
    """
    last_bits = _LAST_BITS.get(str(values.dtype))
    if last_bits is None or not values.size:
        return values
    bits = np.ascontiguousarray(values).view(np.int16)
    # Within a sign, the numbers of a floating dtype are in the order of their bits.
    steps = random.integers(-1, 2, bits.shape, dtype=np.int16)
    moved = (bits + steps).view(values.dtype)
    with np.errstate(all="ignore"):
        is_exact = (bits & last_bits) == 0 if rounded is None else ~rounded.reshape(bits.shape)
        is_finite = np.isfinite(values.astype(np.float32)) & np.isfinite(moved.astype(np.float32))
        keeps = is_exact | ~is_finite.reshape(bits.shape)
    return np.asarray(np.where(keeps, values, moved)).reshape(values.shape)


def _moved_by_units(values: Array, dtype: str, random: np.random.Generator) -> Array:
    """Return float32 numbers moved by one unit in the last place of a narrower dtype down, none, or up."""
    steps = random.integers(-1, 2, values.shape)
    with np.errstate(all="ignore"):
        moved = values + steps * np.where(np.isfinite(values) & (values != 0), ulp(np.abs(values), dtype), 0.0)
    return np.asarray(moved).astype(values.dtype)


def _rounded_otherwise(values: Array, precision: str, random: np.random.Generator) -> Array:
    """Return an operand as a kernel may round it that computes in a precision; itself for its own."""
    if precision in _LAST_BITS:
        return _moved(values.astype(precision), random).astype(values.dtype)
    if precision == "int8":
        step = np.abs(values.astype(np.float32)).max(axis=-1, keepdims=True, initial=0.0) / 127
        return np.asarray(values + step * random.uniform(-1.0, 1.0, values.shape)).astype(values.dtype)
    return values


def _stepped(values: Array, random: np.random.Generator) -> Array:
    """Return integers moved by one step down, none, or one up, within their dtype's range; floats as they are."""
    try:
        limits = ml_dtypes.iinfo(values.dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return values
    steps = random.integers(-1, 2, values.shape)
    moved = np.clip(values.astype(np.int64) + steps, int(limits.min), int(limits.max))
    return np.asarray(moved).astype(values.dtype)


def _moved_constants(graph: SteppedGraph, random: np.random.Generator) -> Mapping[str, TensorProto]:
    """Return the constants with the weights moved that a transform has rounded."""
    stepped, packed = set[str](), set[str]()
    for step in graph.steps:
        for node in step.nodes:
            stepped |= {node.input[place] for place in _WEIGHTS.get(node.op_type, ()) if place < len(node.input)}
            if node.op_type == _PACKED:
                packed.add(node.input[1])
    changed = dict(graph.constants)
    for name, array in graph.constant_values.items():
        if name in packed:
            low, high = _stepped_nibble(array & 0xF, random), _stepped_nibble(array >> 4, random)
            moved = (low | high << 4).astype(array.dtype)
        elif name in stepped:
            moved = _stepped(array, random)
        else:
            moved = _moved(array, random)
        if moved is not array:
            changed[name] = numpy_helper.from_array(moved, name)
    return changed


def _stepped_nibble(values: Array, random: np.random.Generator) -> Array:
    return np.asarray(np.clip(values.astype(np.int64) + random.integers(-1, 2, values.shape), 0, 15))


def _movement(now: Array, then: Array) -> Array:
    """Return how far elements move; 0 where one of the two is infinite or NaN, which no rounding explains."""
    if now.dtype.kind == "c":
        return np.zeros(now.shape)
    with np.errstate(all="ignore"):
        found = distance(now, then)
    return np.where(np.isfinite(found), found, 0.0)


def widen_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph that computes in float32 where the given one computes in float16 or bfloat16."""
    narrow = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.value_info[:]
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type in narrow:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    tensors = list(wide.graph.initializer)
    for node in walk_nodes(wide.graph.node):
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "softmax_precision") and attribute.i in narrow:
                attribute.i = TensorProto.FLOAT
            if attribute.HasField("t"):
                tensors.append(attribute.t)
    for tensor in tensors:
        if tensor.data_type in narrow:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return wide
