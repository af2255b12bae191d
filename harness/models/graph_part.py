"""The smallest part of an ONNX graph that fails as the whole does.

1. Compute all values of the graph without optimisations, a node at a time.
2. Find the fewest nodes that still fail. What the others give is fed: as a weight where it follows from weights
   alone, as an input elsewhere.
3. Put plain numbers in place of the values, where it fails with these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from harness.blame.nodes.node_steps import NodeStep, SteppedGraph
from harness.blame.nodes.walk import walk
from harness.core.dtypes import PRECISION, Array
from harness.core.fewest import fewest
from harness.run.backend import Backend

Feeds: TypeAlias = "dict[str, Array]"
#: Whether a model fails with some inputs as the whole does.
Fails: TypeAlias = "Callable[[onnx.ModelProto, Feeds], bool]"


@dataclass(frozen=True, kw_only=True)
class GraphPart:
    """A graph that fails, with what it is fed.

    Attributes:
        model: Serialised.
        inputs: Name → array.
        stage: ``load``, ``run`` or ``compare``.
        message: What the runtime says, or in what the result is wrong.
        ends_process: Whether the runtime crashes, or does not answer.
        expected: The right outputs; none where the runtime refuses the graph.
        output: Index of a wrong output, where results are wrong.
        element: The first wrong element; None where the shape or the dtype is wrong.
        allowed: How far a number may be from the right one.
        passes: Optimisations of the runtime without which it is right; `optimiser` says whether leaving out all
            of them helps.
        exporter: Whether it is the exporter's optimiser that breaks the graph, instead of the runtime's.
        nodes: Of the whole graph.
    """

    model: bytes
    inputs: Mapping[str, Array] = field(default_factory=dict)
    stage: str
    message: str = ""
    expected: tuple[Array, ...] = ()
    output: int = 0
    element: tuple[int, ...] | None = None
    allowed: float = 0.0
    optimiser: bool = False
    exporter: bool = False
    passes: tuple[str, ...] = ()
    nodes: int = 0
    ends_process: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators, in order, each once."""
        return tuple(dict.fromkeys(node.op_type for node in self.proto.graph.node))

    @property
    def proto(self) -> onnx.ModelProto:
        """The model."""
        return onnx.load_model_from_string(self.model)


def smallest_part(
    graph: SteppedGraph, feeds: Mapping[str, Array], plain: Backend, evaluator: Backend, fails: Fails
) -> tuple[onnx.ModelProto, Feeds] | None:
    """The fewest nodes of a graph that fail, with plain numbers where these fail, too.

    Args:
        plain: Runs nodes as they are written; `evaluator` stands in where it cannot.
        fails: Asked of each part that is tried.

    Returns:
        None where the graph does not fail once it is put together again with all of its nodes.
    """
    values = walk(graph, feeds, plain, evaluator, corrected=False).values
    known = [s for s in graph.steps if all(name in values for name in (*s.inputs, *s.outputs))]
    cut = _Cut(graph, values, _follows_from_weights(graph))
    chosen = fewest(known, lambda steps: fails(*cut.part(steps)))
    if not chosen:
        return None
    return with_plain_numbers(*cut.part(chosen), fails)


def _follows_from_weights(graph: SteppedGraph) -> frozenset[str]:
    found = set(graph.constants)
    for step in graph.steps:
        if found.issuperset(step.inputs):
            found.update(step.outputs)
    return frozenset(found)


@dataclass(frozen=True)
class _Cut:
    """A graph whose nodes can be left out; `fixed` names the values that follow from weights alone."""

    graph: SteppedGraph
    values: Mapping[str, Array]
    fixed: frozenset[str]

    def part(self, steps: Sequence[NodeStep]) -> tuple[onnx.ModelProto, Feeds]:
        """A graph of some steps, and what it is fed."""
        chosen = sorted(steps, key=lambda step: step.index)
        made = [name for step in chosen for name in step.outputs]
        read = dict.fromkeys(name for step in chosen for name in step.inputs if name not in made)
        part = onnx.ModelProto()
        part.ir_version = self.graph.model.ir_version
        part.opset_import.extend(self.graph.model.opset_import)
        part.graph.name = "part"
        part.graph.node.extend(node for step in chosen for node in step.nodes)
        inputs: Feeds = {}
        for name in read:
            if name in self.fixed:
                part.graph.initializer.append(numpy_helper.from_array(self.values[name], name))
            else:
                inputs[name] = self.values[name]
                part.graph.input.append(self._described(name))
        part.graph.output.extend(map(self._described, self._leaving(chosen, made)))
        return part, inputs

    def _described(self, name: str) -> onnx.ValueInfoProto:
        array = self.values[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    def _leaving(self, chosen: Sequence[NodeStep], made: Sequence[str]) -> list[str]:
        """What is read elsewhere; all that is not read here where nothing is."""
        inside = {step.index for step in chosen}
        read_elsewhere = {name for step in self.graph.steps if step.index not in inside for name in step.inputs}
        read_elsewhere |= {output.name for output in self.graph.model.graph.output}
        read_here = {name for step in chosen for name in step.inputs}
        leaving = [name for name in made if name in read_elsewhere]
        return leaving or [name for name in made if name not in read_here]


def with_plain_numbers(model: onnx.ModelProto, inputs: Feeds, fails: Fails) -> tuple[onnx.ModelProto, Feeds]:
    """With numbers of a pattern that a line of code makes, all at once or one array after the other."""
    weights = [tensor.name for tensor in model.graph.initializer]
    for names in ((*inputs, *weights), *((name,) for name in (*inputs, *weights))):
        tried = _patterned(model, inputs, frozenset(names))
        if tried is not None and fails(*tried):
            model, inputs = tried
    return model, inputs


def _patterned(model: onnx.ModelProto, inputs: Feeds, names: frozenset[str]) -> tuple[onnx.ModelProto, Feeds] | None:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    fed = {name: pattern(array) if name in names and _is_drawn(array) else array for name, array in inputs.items()}
    is_changed = any(fed[name] is not inputs[name] for name in inputs)
    for tensor in changed.graph.initializer:
        if tensor.name in names and _is_drawn(array := numpy_helper.to_array(tensor)):
            tensor.CopyFrom(numpy_helper.from_array(pattern(array), tensor.name))
            is_changed = True
    return (changed, fed) if is_changed else None


def _is_drawn(array: Array) -> bool:
    return array.size > 1 and str(array.dtype) in PRECISION


def pattern(array: Array) -> Array:
    """Multiples of a quarter between -1.5 and 1.5 in the array's form; any floating dtype has them."""
    numbers = (np.arange(array.size) * 7 % 13 - 6) / 4
    return numbers.reshape(array.shape).astype(array.dtype)


def renamed(part: GraphPart) -> GraphPart:
    """With short names in place of an exporter's: ``x0`` for inputs, ``w0`` for weights, ``y0`` for outputs."""
    model = part.proto
    graph = model.graph
    names = {value.name: f"x{i}" for i, value in enumerate(graph.input)}
    names |= {tensor.name: f"w{i}" for i, tensor in enumerate(graph.initializer)}
    names |= {value.name: f"y{i}" for i, value in enumerate(graph.output)}
    inner = dict.fromkeys(name for node in graph.node for name in node.output if name and name not in names)
    names |= {name: f"v{i}" for i, name in enumerate(inner)}
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        # Names in a body are its own.
        return part
    for value in (*graph.input, *graph.initializer, *graph.output):
        value.name = names[value.name]
    for i, node in enumerate(graph.node):
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        node.name = f"node{i}"
    fed = {names[name]: array for name, array in part.inputs.items()}
    return replace(part, model=model.SerializeToString(), inputs=fed)
