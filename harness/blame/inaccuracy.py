"""Explain wrong elements by the operators' own formulas: such an inaccuracy is not a defect of any component.

ONNX defines some operators by a function body, such as ``Elu`` by ``alpha * (Exp(x) - 1)``. A runtime that follows the
body step by step in the node's dtype does as the text says, though less exactly than PyTorch, which uses `expm1`.

1. The graph is evaluated in float64. It must give PyTorch's float64 result: it describes the same computation.
2. It is evaluated a few times more, and each step within a body is rounded as the node's dtype rounds: its result is
   multiplied by 1 + ru, r drawn from -1 … 1, u the unit roundoff (Monte Carlo arithmetic, as
   `harness.pipeline.rounding_oracle`). D is the difference of these runs from the first, element by element.
3. The backend's result is explained if it is within κ·D, and the dtype's tolerance, of the first: steps that are all
   right by rule 1 of `harness.compare.nearness` add up to an error of κ·D.

Nothing is explained if a rounding changes an integer or a truth value on the way, which is a jump and not a rounding;
if a graph has no operator with a body; if a result, with or without roundings, is infinite or NaN; or if
the result's dtype is wider than an input's: a graph that computes PyTorch's float64 result in float32 is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from harness.blame.failure_context import FailureContext
from harness.compare.judge import CLOSE
from harness.compare.nearness import tolerance_of
from harness.compare.tolerances import ROUNDINGS
from harness.core.dtypes import PRECISION, Array
from harness.pipeline.nodes.bodies import has_body, inline_bodies, widened
from harness.pipeline.nodes.definition import widen_attributes
from harness.pipeline.nodes.kernel_fault import node_facts_of_step
from harness.pipeline.nodes.node_steps import NodeStep, SteppedGraph, split_steps
from harness.pipeline.stages import emitted_opset

_RUNS = 6
#: The most of chance: see `harness.pipeline.rounding_oracle`.
_SPREAD = 2.0
#: Steps above which a graph is not evaluated: of calls and programs, and of models and files.
_MOST_STEPS, _MOST_STEPS_OF_MODEL = 40, 400
#: Operators whose results are elements of their inputs, except for the sign.
_EXACT = frozenset(
    {
        *("Constant", "Cast", "CastLike", "Identity", "Where", "Neg", "Abs", "Max", "Min", "Relu", "Clip"),
        *("ReduceMax", "ReduceMin"),
        *("Reshape", "Transpose", "Concat", "Slice", "Gather", "Squeeze", "Unsqueeze", "Expand", "Flatten"),
    }
)


class _NotExplained(Exception):
    """A graph cannot be evaluated with roundings, or jumps."""


def find_explaining_node(context: FailureContext) -> Mapping[str, Any] | None:
    """Return the node whose formula explains most of a wrong result; None if formulas do not explain it.

    Raises:
        Exception: an error of a backend or the evaluator.
    """
    if not context.is_onnx or context.got is None:
        return None
    graph = split_steps(context.model)
    formulas = [step for step in graph.steps if _has_formula(graph, step)]
    truth = context.reference.truth
    most = _MOST_STEPS if context.failure.source is None else _MOST_STEPS_OF_MODEL
    if not formulas or truth is None or len(graph.steps) > most:
        return None
    feeds = context.feeds(context.model)
    bits = min((PRECISION[str(a.dtype)] for a in feeds.values() if str(a.dtype) in PRECISION), default=24)
    if any(PRECISION.get(str(got.dtype), 0) > bits for got in context.got):
        return None
    roundoff = 2.0**-bits
    try:
        exact, *rounded = (
            _evaluated(graph, feeds, roundoff if seed else 0.0, np.random.default_rng(seed))
            for seed in range(1 + _RUNS)
        )
    except _NotExplained:
        return None
    outputs = [o.name for o in context.model.graph.output]
    explained = False
    for name, got, o, wrong in zip(outputs, context.got, truth, context.wrong, strict=True):
        if not wrong.any():
            continue
        if o is None or not _explains(exact[name], [run[name] for run in rounded], o, got, wrong):
            return None
        explained = True
    if not explained:
        return None

    def share(step: NodeStep) -> float:
        run = _evaluated(graph, feeds, roundoff, np.random.default_rng(1), only=step)
        moved = [np.abs(run[o] - exact[o])[w] for o, w in zip(outputs, context.wrong, strict=True) if w.any()]
        return max(float(np.max(m)) for m in moved)

    return node_facts_of_step(max(formulas, key=share) if len(formulas) > 1 else formulas[0], feeds)


def _explains(exact: Array, rounded: Sequence[Array], truth: Array, got: Array, wrong: Array) -> bool:
    """Whether roundings explain the wrong elements of one output."""
    if not exact.shape == truth.shape == got.shape == wrong.shape or str(got.dtype) not in PRECISION:
        return False
    tolerance = tolerance_of(CLOSE, str(got.dtype))
    e, o, g = exact[wrong], truth[wrong], got[wrong].astype(np.float64)
    moved = _SPREAD * np.sqrt(np.mean([np.square(run[wrong] - e) for run in rounded], axis=0))
    if not (np.isfinite(e) & np.isfinite(g) & np.isfinite(o) & np.isfinite(moved)).all():
        return False
    roundings = ROUNDINGS[str(got.dtype)] * moved
    # Float64 rounds within the formula, too.
    same = np.abs(e - o) <= tolerance.allowed(o) + roundings * 2.0 ** (PRECISION[str(got.dtype)] - PRECISION["float64"])
    near = np.abs(g - e) <= roundings + tolerance.allowed(e)
    return bool((same & near).all())


def _evaluated(
    graph: SteppedGraph,
    feeds: Mapping[str, Array],
    roundoff: float,
    random: np.random.Generator,
    only: NodeStep | None = None,
) -> dict[str, Array]:
    """Return the values of a graph in float64, with roundings within all formulas, or only within that of `only`."""
    values = {name: _wide(array) for name, array in {**graph.constant_values, **feeds}.items()}
    for step in graph.steps:
        inputs = {name: values[name] for name in step.inputs}
        model = widen_attributes(graph.alone(step, inputs, fed_with_constants=True))
        body = inline_bodies(model) if _has_formula(graph, step) else None
        given = {step.names_alone[name]: array for name, array in inputs.items()}
        rounds = body is not None and only in (None, step)
        outputs = _run(widened(body) if body else model, given, roundoff if rounds else 0.0, random)
        # A cast to a narrower dtype rounds once.
        values.update(zip(step.outputs, map(_wide, outputs), strict=True))
    return values


def _run(
    model: onnx.ModelProto, feeds: Mapping[str, Array], roundoff: float, random: np.random.Generator
) -> list[Array]:
    """Return a model's outputs after rounding each step's floating results.

    Raises:
        _NotExplained: a rounding changes a value that is not floating.
    """
    evaluator = ReferenceEvaluator(model)
    if not roundoff:
        return [np.asarray(array) for array in evaluator.run(None, dict(feeds))]
    exact: dict[str, Any] = {**evaluator.rt_inits_, **feeds}
    moved: dict[str, Any] = dict(exact)
    with np.errstate(all="ignore"):
        for node in evaluator.rt_nodes_:
            if any(attribute.HasField("g") for attribute in node.onnx_node.attribute):
                raise _NotExplained
            for values in (exact, moved):
                values.update(zip(node.output, node.run(*(values.get(name) for name in node.input)), strict=False))
            for name in node.output:
                a, b = np.asarray(exact[name]), np.asarray(moved[name])
                if a.dtype.kind != "f" and not np.array_equal(a, b):
                    raise _NotExplained
                if a.dtype.kind != "f" or node.op_type in _EXACT:
                    continue
                moved[name] = b * (1.0 + roundoff * random.uniform(-1.0, 1.0, b.shape))
    return [np.asarray(moved[output.name]) for output in model.graph.output]


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if str(array.dtype) in PRECISION else array


def _has_formula(graph: SteppedGraph, step: NodeStep) -> bool:
    return step.is_single and has_body(step.node, emitted_opset(graph.model) or 1)
