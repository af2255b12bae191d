"""A graph run node by node in a backend, each node judged on the backend's own inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from harness.compare.judge import Mask
from harness.core.dtypes import Array
from harness.pipeline.nodes.definition import Definition, Undefined
from harness.pipeline.nodes.judged_nodes import form_of, not_as_defined, right_results
from harness.pipeline.nodes.node_steps import NodeStep, SteppedGraph
from harness.pipeline.run_graph import run_graph
from harness.pipeline.stages import StageFailure
from harness.run.backend import Backend


@dataclass(frozen=True, eq=False)
class WrongStep:
    """A node whose results are not those of its definition for its inputs."""

    definition: Definition
    got: tuple[Array, ...]
    wrong: tuple[Mask, ...]

    @property
    def is_of_right_form(self) -> bool:
        """Whether only elements are wrong."""
        return [form_of(a) for a in self.definition.own] == [form_of(a) for a in self.got]


@dataclass(frozen=True, eq=False)
class FailingStep:
    """A node that the backend does not run by itself."""

    definition: Definition
    failure: StageFailure


@dataclass
class Walk:
    """The result of a walk.

    Attributes:
        values: Name → array. After a wrong node, the values that follow from its definition.
        wrong: Wrong steps, in order.
        failing: Failing steps, in order; the definition stands in for their results.
        unjudged: Steps whose right results are unknown, and why.
        ended: Whether the last value was reached.
    """

    values: dict[str, Array]
    wrong: list[WrongStep] = field(default_factory=list)
    failing: list[FailingStep] = field(default_factory=list)
    unjudged: list[tuple[NodeStep, Undefined]] = field(default_factory=list)
    ended: bool = False


#: Index of a step and the identities of its inputs → its definition for these, and the backend's results.
#: An array lives as long as the definition, so that its identity is not another's.
Attempts: TypeAlias = "dict[tuple[int, ...], tuple[Definition, tuple[Array, ...] | StageFailure]]"


def walk(
    graph: SteppedGraph,
    feeds: Mapping[str, Array],
    backend: Backend,
    evaluator: Backend,
    *,
    corrected: bool = True,
    strict: bool = False,
    only: Collection[int] | None = None,
    altered: Callable[[Definition, Sequence[Array]], Sequence[Array]] | None = None,
    attempts: Attempts | None = None,
) -> Walk:
    """Run every step in `backend`; `evaluator` evaluates definitions.

    Args:
        corrected: Whether the definition's results replace wrong ones; if not, nothing is judged.
        strict: See `NodeOracle`.
        only: Indices of the steps whose results are judged; None for all.
        altered: Replaces a step's results.
        attempts: Results of earlier walks over the same graph with the same backend and evaluator; added to.
    """
    found = Walk({**graph.constant_values, **feeds})
    attempts = {} if attempts is None else attempts
    for step in graph.steps:
        inputs = {name: found.values[name] for name in step.inputs}
        definition, got = _attempt(Definition(graph, step, inputs, evaluator), backend, attempts)
        try:
            if isinstance(got, StageFailure):
                found.failing.append(FailingStep(definition, got))
                got = right_results(definition)
            elif corrected and (only is None or step.index in only):
                wrong = not_as_defined(definition, got, strict=strict)
                if wrong is not None:
                    found.wrong.append(WrongStep(definition, got, wrong))
                    got = _mended(got, wrong, right_results(definition))
        except Undefined as reason:
            found.unjudged.append((step, reason))
            if isinstance(got, StageFailure):
                return found
        if altered is not None:
            got = tuple(altered(definition, got))
        found.values.update(zip(step.outputs, got, strict=True))
    found.ended = True
    return found


def _attempt(
    definition: Definition, backend: Backend, attempts: Attempts
) -> tuple[Definition, tuple[Array, ...] | StageFailure]:
    """Run a step in `backend`, or return the result of an earlier walk in which it got the same inputs."""
    key = (definition.step.index, *map(id, definition.inputs.values()))
    if key in attempts and not definition.is_random:
        return attempts[key]
    run = run_graph(backend, definition.model, definition.fed)
    attempts[key] = definition, run.failure or run.outputs_or_raise()
    return attempts[key]


def _mended(got: Sequence[Array], wrong: Sequence[Mask], right: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(
        np.where(w, r, g).astype(g.dtype) if g.shape == r.shape and g.dtype == r.dtype else r
        for g, w, r in zip(got, wrong, right, strict=True)
    )
