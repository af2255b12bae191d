"""Measure how near a graph comes to the ends of float16's range, and find a minimal set of nodes to keep in float32.

1. The graph is run in float32 on each input. The largest magnitude of each value is compared with float16's largest
   number, also where a later step hides it.
2. ONNX Runtime's converter makes a float16 graph that keeps a set of nodes in float32, and the graph is run as it asks
   (`harness.pipeline.emulation`). The set is enough if every output is finite where it should be, and off by no more
   than `_TIMES` what rounding every result to 11 bits costs if no number can leave the range.
3. Beginning with no node, the node that leaves the range is added; if it is in the set already, its cast back to
   float16 leaves the range, and those that read it are added. If no number leaves the range, the nodes are added whose
   results vanish.
4. Each node is then left out again if the others are enough, until none can be left out: the set is minimal, though
   another one may be smaller.
5. The float16 graph is loaded and run in ONNX Runtime with its optimisations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx

from harness.compare.largest import error_and_largest
from harness.core.dtypes import LARGEST, PRECISION, Array
from harness.pipeline.emulation import Emulation
from harness.pipeline.nodes.node_steps import NodeStep, split_steps
from harness.pipeline.run_graph import run_graph
from harness.pipeline.submodel import outer_names, sort_nodes
from harness.pipeline.transformed_graph import find_range_loss
from harness.run.backend import Backend

DTYPE = "float16"
#: Values that are reported.
_MOST_PEAKS = 20
#: How many times the error of rounding alone a kept set may have.
_TIMES = 4.0
#: Rounds of adding nodes.
_MOST_ROUNDS = 400
#: The smallest error limit: two roundings of the dtype.
_LEAST_ERROR = 2.0 ** (1 - PRECISION[DTYPE])


@dataclass(frozen=True)
class Peak:
    """The largest magnitude of a node's results.

    Attributes:
        node: The node's name.
        operator: Its operator.
        value: The name of the result.
        largest: The magnitude, over all inputs.
        share: It as a share of the dtype's largest number.
    """

    node: str
    operator: str
    value: str
    largest: float
    share: float


@dataclass(frozen=True)
class KeptNode:
    """A node that must stay in float32, and the error without it: infinite if an output is infinite or NaN."""

    node: str
    operator: str
    error_without: float


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """The range of a graph's values, and the nodes that must stay in float32.

    Attributes:
        inputs: Number of inputs that it was run with.
        nodes: Number of nodes.
        peaks: The largest magnitudes, the largest first.
        kept: A minimal set of nodes to keep in float32.
        error: The largest error with this set, relative to the largest element of its output.
        limit: The error that is allowed.
        runtime_error: The same as `error`, in ONNX Runtime; None if it does not run the graph.
        unnamed: Number of nodes without a name, which are called by their first result.
        problem: Why there is no set; "" if there is.
    """

    inputs: int
    nodes: int
    peaks: tuple[Peak, ...]
    kept: tuple[KeptNode, ...] = ()
    error: float = 0.0
    limit: float = 0.0
    runtime_error: float | None = None
    unnamed: int = 0
    problem: str = ""


@dataclass(eq=False)
class HeadroomSearch:
    """Looks for a set of nodes to keep.

    Attributes:
        model: The graph in float32, each node with a name of its own.
        inputs: The inputs of each run, by name.
        plain: The runtime without optimisations, which emulates.
        runtime: The runtime in which the result is verified.
        alive: Called before each run.
    """

    model: onnx.ModelProto
    inputs: Sequence[Mapping[str, Array]]
    plain: Backend
    runtime: Backend
    alive: Callable[[], None] = lambda: None
    _errors: dict[frozenset[str], float] = field(default_factory=dict)

    def find(self) -> Headroom:
        """Return the peaks and a minimal set."""
        found = Headroom(inputs=len(self.inputs), nodes=len(self._makers), peaks=self._peaks())
        kept = self._sufficient()
        if kept is None:
            problem = "no set of nodes in float32 makes a float16 graph that is near enough"
            return replace(found, limit=self._limit, problem=problem)
        kept = self._minimised(kept)
        nodes = (KeptNode(name, self._nodes[name].op_type, self.error(kept - {name})) for name in sorted(kept))
        return replace(
            found,
            kept=tuple(nodes),
            error=self.error(kept),
            limit=self._limit,
            runtime_error=self._runtime_error(kept),
        )

    @cached_property
    def _nodes(self) -> Mapping[str, onnx.NodeProto]:
        return {node.name: node for node in self.model.graph.node if node.op_type != "Constant"}

    @cached_property
    def _makers(self) -> Mapping[str, str]:
        """Value → the node that gives it."""
        return {value: name for name, node in self._nodes.items() for value in node.output if value}

    @cached_property
    def _right(self) -> list[Mapping[str, Array]]:
        """The values of each run in float32."""
        graph = split_steps(self.model)
        found = []
        for feeds in self.inputs:
            self.alive()
            asked = Emulation(graph, feeds, self.plain).asked
            if asked is None:
                raise ValueError("the graph cannot be run node by node")
            found.append(asked)
        return found

    def _peaks(self) -> tuple[Peak, ...]:
        largest: dict[str, float] = {}
        for values in self._right:
            for name, array in values.items():
                if name in self._makers and str(array.dtype) in PRECISION:
                    wide = np.abs(array[np.isfinite(array)].astype(np.float64))
                    largest[name] = max(largest.get(name, 0.0), float(wide.max(initial=0.0)))
        peaks = [
            Peak(self._makers[name], self._nodes[self._makers[name]].op_type, name, size, size / LARGEST[DTYPE])
            for name, size in largest.items()
        ]
        return tuple(sorted(peaks, key=lambda peak: -peak.largest)[:_MOST_PEAKS])

    @cached_property
    def _limit(self) -> float:
        """The error that is allowed, by rounding to float16's bits without its range."""
        graph = split_steps(self.model)
        worst = 0.0
        for feeds, right in zip(self.inputs, self._right, strict=True):
            self.alive()
            rounded = Emulation(graph, feeds, self.plain).run_with(_round_results)
            if rounded is not None:
                worst = max(worst, self._error_of(rounded, right))
        return max(_TIMES * worst, _LEAST_ERROR)

    def _error_of(self, values: Mapping[str, Array], right: Mapping[str, Array]) -> float:
        worst = 0.0
        for output in self.model.graph.output:
            e, g = right[output.name], values[output.name]
            if str(e.dtype) in PRECISION:
                error, largest = error_and_largest(e, g)
                worst = max(worst, error / largest if largest else error)
        return worst

    def converted(self, kept: Iterable[str]) -> onnx.ModelProto:
        """Return the float16 graph that keeps some nodes in float32."""
        from onnxruntime.transformers.float16 import convert_float_to_float16

        given = onnx.ModelProto()
        given.CopyFrom(self.model)
        half = convert_float_to_float16(given, keep_io_types=True, node_block_list=sorted(kept))
        return self._without_casts_back(sort_nodes(half))

    def _without_casts_back(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Return a graph without casts from float32 to float16 and back.

        The converter puts them between two nodes that stay in float32, and ONNX Runtime takes them out again.
        """
        graph = model.graph
        halved = {n.output[0]: n.input[0] for n in graph.node if _casts_to(n, onnx.TensorProto.FLOAT16)}
        put_in = {name: source for name, source in halved.items() if source not in self._makers}
        back = {n.output[0]: n.input[0] for n in graph.node if _casts_to(n, onnx.TensorProto.FLOAT)}
        wide = {name: put_in[source] for name, source in back.items() if source in put_in}
        for node in graph.node:
            node.input[:] = [wide.get(name, name) for name in node.input]
        nodes, read = list[onnx.NodeProto](), {value.name for value in graph.output}
        for node in reversed(graph.node):
            if node.op_type != "Cast" or node.output[0] in read:
                nodes.append(node)
                read.update(outer_names(node))
        del graph.node[:]
        graph.node.extend(reversed(nodes))
        return model

    def error(self, kept: frozenset[str]) -> float:
        """Return the largest error of the float16 graph as it asks; infinite if it cannot be run."""
        if kept not in self._errors:
            graph = split_steps(self.converted(kept))
            worst = 0.0
            for feeds, right in zip(self.inputs, self._right, strict=True):
                self.alive()
                asked = Emulation(graph, feeds, self.plain).asked
                worst = max(worst, np.inf if asked is None else self._error_of(asked, right))
                if worst > self._limit:
                    break
            self._errors[kept] = worst
        return self._errors[kept]

    def _is_enough(self, kept: frozenset[str]) -> bool:
        return self.error(kept) <= self._limit

    def _sufficient(self) -> frozenset[str] | None:
        kept: frozenset[str] = frozenset()
        for _ in range(_MOST_ROUNDS):
            if self._is_enough(kept):
                return kept
            further = self._to_add(kept) - kept
            if not further:
                return None
            kept |= further
        return None

    def _to_add(self, kept: frozenset[str]) -> frozenset[str]:
        """Return the nodes to keep next, by the first input on which a set is not enough."""
        graph = split_steps(self.converted(kept))
        for feeds, right in zip(self.inputs, self._right, strict=True):
            emulation = Emulation(graph, feeds, self.plain)
            if emulation.asked is not None and self._error_of(emulation.asked, right) <= self._limit:
                continue
            loss = find_range_loss(emulation)
            if loss is not None:
                return self._nodes_behind(loss.value, graph.steps, kept)
            return self._vanishing(emulation) - kept
        return frozenset()

    def _nodes_behind(self, value: str, steps: Sequence[NodeStep], kept: frozenset[str]) -> frozenset[str]:
        """Return the node whose result leaves the range; those that read it if it is kept already."""
        makers = {name: step for step in steps for name in step.outputs}
        while value not in self._makers:
            # A cast that the converter has put in.
            value = makers[value].node.input[0]
            if value not in makers:
                return frozenset()
        name = self._makers[value]
        readers = {other for other, node in self._nodes.items() if value in node.input}
        return frozenset(readers) if name in kept else frozenset({name})

    def _vanishing(self, emulation: Emulation) -> frozenset[str]:
        """Return the nodes whose results vanish, and those that read them."""
        asked, wide = emulation.asked or {}, emulation.widened.asked or {}
        lost = {
            name
            for name in self._makers
            if name in asked and name in wide and asked[name].shape == wide[name].shape
            if ((asked[name] == 0) & (wide[name] != 0)).any()
        }
        readers = {other for other, node in self._nodes.items() if lost.intersection(node.input)}
        return frozenset({self._makers[name] for name in lost} | readers)

    def _minimised(self, kept: frozenset[str]) -> frozenset[str]:
        """Return a set of which no node can be left out. Those that come last are tried first."""
        order = [name for name in reversed(list(self._nodes)) if name in kept]
        changed = True
        while changed:
            changed = False
            for name in order:
                if name in kept and self._is_enough(kept - {name}):
                    kept, changed = kept - {name}, True
        return kept

    def _runtime_error(self, kept: frozenset[str]) -> float | None:
        model, worst = self.converted(kept), 0.0
        names = [output.name for output in model.graph.output]
        for feeds, right in zip(self.inputs, self._right, strict=True):
            self.alive()
            outputs = run_graph(self.runtime, model, feeds).outputs
            if outputs is None:
                return None
            worst = max(worst, self._error_of(dict(zip(names, outputs, strict=True)), right))
        return worst


def _casts_to(node: onnx.NodeProto, dtype: int) -> bool:
    return node.op_type == "Cast" and node.attribute[0].i == dtype


def _round_results(step: NodeStep, inputs: Sequence[Array], results: Sequence[Array]) -> Sequence[Array]:
    """Return results with float16's number of bits, and float32's range."""
    return [_round_bits(array) if str(array.dtype) == "float32" else array for array in results]


def _round_bits(array: Array) -> Array:
    fraction, exponent = np.frexp(array)
    scale = 2.0 ** PRECISION[DTYPE]
    with np.errstate(all="ignore"):
        return np.asarray(np.ldexp(np.round(fraction * scale) / scale, exponent)).astype(array.dtype)


def name_nodes(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Return a model each of whose nodes has a name of its own, and how many had none."""
    named = onnx.ModelProto()
    named.CopyFrom(model)
    seen, unnamed = set[str](), 0
    for node in named.graph.node:
        if not node.name or node.name in seen:
            unnamed += 1
            node.name = next((value for value in node.output if value), f"node_{unnamed}")
        seen.add(node.name)
    return named, unnamed
