"""Bound the effect of quantisation in a graph: how far its outputs move when each quantised value moves by a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np

from harness.core.dtypes import Array
from harness.pipeline.nodes.definition import Definition
from harness.pipeline.nodes.node_steps import SteppedGraph
from harness.pipeline.nodes.walk import walk
from harness.pipeline.quantised import largest_distance
from harness.run.backend import Backend

#: Operators whose first result is rounded to steps; ONNX Runtime's own begin with ``QLinear``, too.
_QUANTISE = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm"})
_RUNS = 5


def moved_by_steps_of_graph(
    graph: SteppedGraph,
    feeds: Mapping[str, Array],
    plain: Backend,
    alive: Callable[[], None] = lambda: None,
) -> list[float] | None:
    """Return the largest movement of each output of a graph; None if it quantises nothing, or a run fails.

    Args:
        graph: The graph.
        feeds: Its inputs by name.
        plain: The runtime without optimisations.
        alive: Called before each run.
    """
    if not any(_quantises(node.op_type) for step in graph.steps for node in step.nodes):
        return None
    names = [value.name for value in graph.model.graph.output]
    # A fault of the runtime is in both runs, so that it does not count as a movement.
    unmoved = walk(graph, feeds, plain, plain, corrected=False)
    if not unmoved.ended or unmoved.failing:
        return None
    moved = [0.0] * len(names)
    for seed in range(_RUNS):
        alive()
        random = np.random.default_rng(seed)

        def altered(
            definition: Definition, got: Sequence[Array], random: np.random.Generator = random
        ) -> Sequence[Array]:
            is_constant = all(name in graph.constants for name in definition.step.inputs)
            if is_constant or not _quantises(definition.operator):
                return got
            return [_stepped(got[0], random), *got[1:]]

        found = walk(graph, feeds, plain, plain, corrected=False, altered=altered)
        if not found.ended or found.failing:
            return None
        distances = (largest_distance(found.values[name], unmoved.values[name]) for name in names)
        moved = [max(now, distance) for now, distance in zip(moved, distances, strict=True)]
    return moved


def _quantises(operator: str) -> bool:
    return operator in _QUANTISE or operator.startswith("QLinear")


def _stepped(values: Array, random: np.random.Generator) -> Array:
    """Return integers moved by one step down, none, or one up, within their dtype's range; floats as they are."""
    try:
        limits = ml_dtypes.iinfo(values.dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return values
    steps = random.integers(-1, 2, values.shape)
    moved = np.clip(values.astype(np.int64) + steps, int(limits.min), int(limits.max))
    return np.asarray(moved).astype(values.dtype)
