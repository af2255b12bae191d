"""The right outputs of an ONNX graph.

Only the definitions of its nodes can tell the right result of a graph. So the oracle of a run is the runtime's own
answer without optimisations. If one of its nodes departs from its definition, the oracle follows the definition:

1. The graph is run node by node without optimisations, and the results of each node are compared with its definition,
   evaluated on the same inputs. If a node is wrong or refused, the definition's results take its place. This is done
   for the first run of a file.
2. If a node was wrong or refused, the outputs of that walk are expected, or else those of the whole graph without
   optimisations. If the runtime cannot run it in this way, onnx's own evaluator gives the expected outputs, unless it
   has no definition of a node at its version.
3. An output is right by the rules of `harness.compare.nearness`, where its sensitivity is its movement when inputs and
   weights move by a few roundings, if its error is within the tolerance of the output's largest element, or if steps of
   quantised values explain it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from harness.compare.judge import CLOSE, Judge, Leeway, Mask
from harness.compare.nearness import KnownSensitivity, tolerance_of
from harness.compare.output_comparison import OutputComparison
from harness.compare.tolerances import ROUNDINGS
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Invocation
from harness.core.numbers import distance
from harness.pipeline.case import CaseOracle
from harness.pipeline.emulation import Emulation, quantises
from harness.pipeline.graph_structure import signature
from harness.pipeline.model_oracle import WITHIN_LARGEST
from harness.pipeline.model_task import NodesJudged, UnjudgedNode
from harness.pipeline.nodes.earlier_versions import has_earlier_meanings
from harness.pipeline.nodes.node_steps import SteppedGraph, split_steps
from harness.pipeline.nodes.walk import Walk, walk
from harness.pipeline.quantised import WITHIN_STEPS
from harness.pipeline.run_graph import run_graph
from harness.run.backend import Backend, HasPlain

#: Nodes of a graph above which, and elements of a node's values above which, no definition is evaluated.
_MOST_NODES, _MOST_ELEMENTS = 3000, 4_000_000
#: Runs with moved inputs and weights, by how many roundings, and how many times their spread is allowed.
_RUNS, _ROUNDINGS, _SPREAD = 3, 4.0, 16.0
#: Why a result is compared with nothing.
NOTHING_TO_COMPARE = "nothing runs the graph without optimisations: it is unknown what is right"


@dataclass(frozen=True)
class GraphOracle(CaseOracle):
    """The right outputs of a graph; `expected` is empty if they are unknown.

    Attributes:
        model: The graph.
        plain: The runtime without optimisations.
        nodes: The comparison of the nodes; None if they were not judged.
        is_runtimes: Whether the runtime itself gives the expected outputs, without optimisations.
        alive: Called before each run, so that a slow one is not taken for a hang.
    """

    model: onnx.ModelProto
    plain: Backend
    nodes: NodesJudged | None = None
    is_runtimes: bool = True
    alive: Callable[[], None] = lambda: None

    @property
    def judge(self) -> Judge:
        """Accept close results, and any result that roundings decide."""
        return Judge(undefined=lambda arguments, expected: self._decided_by_roundings)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Return no arguments: no rule of an operator applies."""
        return {}

    @property
    def truth(self) -> tuple[Array | None, ...] | None:
        """The floating outputs, as float64."""
        return tuple(e.astype(np.float64) if str(e.dtype) in PRECISION else None for e in self.expected)

    @cached_property
    def sensitivity(self) -> tuple[KnownSensitivity | None, ...] | None:
        """Return how much roundings of inputs and weights move each output."""
        return tuple(
            KnownSensitivity(_SPREAD / ROUNDINGS[str(e.dtype)] * moved, np.zeros(e.shape))
            if str(e.dtype) in PRECISION
            else None
            for e, moved in zip(self.expected, self._spread, strict=True)
        )

    @property
    def unknown(self) -> str:
        """Why the right outputs are not known; "" if they are."""
        return "" if self.expected else NOTHING_TO_COMPARE

    def compare(self, outputs: Sequence[Array], leeway: Leeway | None = None) -> OutputComparison:
        """Compare a runtime's outputs with the expected ones."""
        comparison = super().compare(outputs, leeway)
        if comparison.within_largest:
            return comparison.excused_as(WITHIN_LARGEST)
        if comparison.problems and self._is_within_roundings(outputs):
            return comparison.excused_as(WITHIN_STEPS)
        return comparison

    @cached_property
    def _emulation(self) -> Emulation | None:
        """The emulation of the graph; None if it quantises nothing, or has too many nodes."""
        graph = split_steps(self.model)
        operators = {node.op_type for step in graph.steps for node in step.nodes}
        if len(graph.steps) > _MOST_NODES or not any(map(quantises, operators)):
            return None
        names = (value.name for value in signature(self.model))
        feeds = dict(zip(names, self.feeds, strict=True))
        return Emulation(graph, feeds, self.plain, alive=self.alive)

    def _is_within_roundings(self, outputs: Sequence[Array]) -> bool:
        """Whether outputs have the right form, and steps of quantised values explain all that is wrong with them."""
        same = [(e.shape, e.dtype) for e in self.expected] == [(o.shape, o.dtype) for o in outputs]
        if not same or self._emulation is None:
            return False
        names = (value.name for value in self.model.graph.output)
        return all(
            bool(self._emulation.is_explained(name, e.astype(np.float64), o.astype(np.float64), pooled=True).all())
            for name, e, o in zip(names, self.expected, outputs, strict=True)
        )

    def allowed(self, output: int) -> Array:
        """Return the allowed difference of each element of an output; 0 for integers and truth values."""
        expected = self.expected[output]
        dtype = str(expected.dtype)
        if dtype not in PRECISION:
            return np.zeros(expected.shape)
        finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
        tolerance = tolerance_of(CLOSE, dtype).allowed(np.asarray(finite.max(initial=0.0)))
        return np.asarray(tolerance + _SPREAD * self._spread[output])

    @property
    def _decided_by_roundings(self) -> list[Mask | None]:
        if all(str(e.dtype) in PRECISION for e in self.expected):
            return [None] * len(self.expected)
        spread = self._spread
        return [
            None if str(e.dtype) in PRECISION else moved > 0 for e, moved in zip(self.expected, spread, strict=True)
        ]

    @cached_property
    def _spread(self) -> list[Array]:
        """Element by element, how far the outputs move with inputs and weights that are moved by some roundings."""
        names = [value.name for value in signature(self.model)]
        moved = [np.zeros(e.shape) for e in self.expected]
        unmoved = run_graph(self.plain, self.model, dict(zip(names, self.feeds, strict=True))).outputs
        if unmoved is None:
            return moved
        for seed in range(_RUNS):
            self.alive()
            random = np.random.default_rng(seed)
            altered = _move_weights(self.model, random)
            feeds = {name: _moved(array, random) for name, array in zip(names, self.feeds, strict=True)}
            outputs = run_graph(self.plain, altered, feeds).outputs
            if outputs is None:
                continue
            for i, (now, then) in enumerate(zip(outputs, unmoved, strict=False)):
                if now.shape == then.shape == moved[i].shape:
                    moved[i] = np.maximum(moved[i], distance(now, then))
        return moved


@dataclass(frozen=True)
class Judges:
    """The runtimes that tell the right outputs of a graph.

    Attributes:
        backend: The runtime that the graph is run in; without its optimisations it is the oracle.
        evaluator: Evaluates the definitions of nodes.
        first: The case in which the nodes are judged; None if they are judged in none.
        alive: Called before each run, so that a slow one is not taken for a hang.
    """

    backend: Backend
    evaluator: Backend
    first: Invocation | None = None
    alive: Callable[[], None] = lambda: None


def expect(model: onnx.ModelProto, feeds: Sequence[Array], judges: Judges, invocation: Invocation) -> GraphOracle:
    """Return the right outputs of a graph in a runtime, by the steps above.

    Args:
        model: The graph.
        feeds: Its inputs, in the order of its signature.
        judges: The runtimes that are asked.
        invocation: The name of the case in the record.
    """
    plain, evaluator, alive = plain_form(judges.backend), judges.evaluator, judges.alive
    named = dict(zip((value.name for value in signature(model)), feeds, strict=True))
    nodes, expected, is_runtimes = None, None, False
    if judges.first is not None and judges.first.case_id == invocation.case_id:
        alive()
        nodes, expected = _judge_nodes(model, named, plain, evaluator)
    for candidate in (plain, evaluator) if expected is None else ():
        alive()
        if candidate is evaluator and has_earlier_meanings(model):
            break
        outputs = run_graph(candidate, model, named).outputs
        if outputs is not None:
            expected, is_runtimes = outputs, candidate is plain
            break
    return GraphOracle(invocation, tuple(feeds), expected or (), model, plain, nodes, is_runtimes, alive)


def plain_form(backend: Backend) -> Backend:
    """Return a runtime without its optimisations, or the runtime itself if they cannot be turned off."""
    return backend.plain() if isinstance(backend, HasPlain) else backend


def _judge_nodes(
    model: onnx.ModelProto, feeds: Mapping[str, Array], plain: Backend, evaluator: Backend
) -> tuple[NodesJudged, tuple[Array, ...] | None]:
    """Compare nodes with their definitions; return the outputs that follow from a wrong or refused one, else None."""
    graph = split_steps(model)
    if len(graph.steps) > _MOST_NODES:
        return NodesJudged(len(graph.steps), 0, 0), None
    moderate = steps_of_moderate_size(graph, feeds)
    found = walk(graph, feeds, plain, evaluator, only=moderate)
    unjudged = _unjudged_nodes(graph, found, moderate)
    judged = len(graph.steps) - len(unjudged)
    return NodesJudged(len(graph.steps), judged, len(found.wrong), unjudged), _mended_outputs(model, found)


def _unjudged_nodes(graph: SteppedGraph, found: Walk, moderate: Collection[int]) -> tuple[UnjudgedNode, ...]:
    """Return the steps that a walk did not judge, and why."""
    reasons = {step.index: reason for step, reason in found.unjudged}
    last = max(reasons, default=0) if not found.ended else len(graph.steps)
    names = [node.name for node in graph.model.graph.node if node.op_type != "Constant"]
    unjudged = []
    for step in graph.steps:
        reason, node = reasons.get(step.index), step.node
        if reason is not None:
            why, detail = str(reason.why), " ".join(reason.detail.split())[:160]
        elif step.index > last and not found.ended:
            why, detail = "not-reached", ""
        elif step.index not in moderate:
            why, detail = "too-large", ""
        else:
            continue
        operator = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        name = names[step.index] if step.index < len(names) else ""
        unjudged.append(UnjudgedNode(operator, name or f"node {step.index}", why, detail))
    return tuple(unjudged)


def _mended_outputs(model: onnx.ModelProto, found: Walk) -> tuple[Array, ...] | None:
    if not found.ended or not (found.wrong or found.failing):
        return None
    return tuple(found.values[value.name] for value in model.graph.output)


def steps_of_moderate_size(graph: SteppedGraph, feeds: Mapping[str, Array]) -> set[int]:
    """Return the indices of the steps whose values are few enough to be judged, as shape inference sees them."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(graph.model)
    for value in fixed.graph.input:
        if value.name in feeds:
            for dim, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=False):
                dim.dim_value = size
    try:
        inferred = onnx.shape_inference.infer_shapes(fixed, data_prop=True)
    except Exception:
        # The model is too large for protobuf, or invalid: each node reports that itself.
        inferred = fixed
    sizes = {
        v.name: int(np.prod([dim.dim_value or 1 for dim in v.type.tensor_type.shape.dim]))
        for v in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    }
    return {
        step.index
        for step in graph.steps
        if sum(sizes.get(name, 0) for name in (*step.inputs, *step.outputs)) <= _MOST_ELEMENTS
    }


def _move_weights(model: onnx.ModelProto, random: np.random.Generator) -> onnx.ModelProto:
    altered = onnx.ModelProto()
    altered.CopyFrom(model)
    for tensor in altered.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if str(array.dtype) in PRECISION:
            tensor.CopyFrom(numpy_helper.from_array(_moved(array, random), tensor.name))
    return altered


def _moved(array: Array, random: np.random.Generator) -> Array:
    if str(array.dtype) not in PRECISION:
        return array
    unit = _ROUNDINGS * 2.0 ** -PRECISION[str(array.dtype)]
    factors = 1.0 + unit * random.uniform(-1.0, 1.0, array.shape)
    return np.asarray(array.astype(np.float64) * factors).astype(array.dtype)
