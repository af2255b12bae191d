"""The right outputs of a drawn node: those of its operator's definition, at the version that it has in the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
import onnx

from harness.compare.judge import Judge, Leeway, anything
from harness.compare.nearness import Sensitivity
from harness.compare.output_comparison import OutputComparison
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Invocation
from harness.core.onnx_arrays import build_array, element_type
from harness.core.text import one_line
from harness.pipeline.case import CaseOracle
from harness.pipeline.case_run import CaseRun
from harness.pipeline.drawn_graph import build_graph, neighbours_kind, strip_neighbours
from harness.pipeline.graph_oracle import GraphOracle
from harness.pipeline.graph_structure import signature
from harness.pipeline.neighbours import append_copies, copied_values
from harness.pipeline.nodes.definition import Definition, Undefined, WhyUndefined, formed_arrays
from harness.pipeline.nodes.earlier_versions import has_earlier_meanings
from harness.pipeline.nodes.judged_nodes import NodeOracle, form_of, judge_node, not_as_defined
from harness.pipeline.nodes.node_steps import join_steps, split_steps
from harness.pipeline.nodes.preconditions import broken_precondition
from harness.pipeline.run_graph import run_graph
from harness.pipeline.torch_call import CallRejected, Forbidden
from harness.run.backend import Backend, HasPlain

_Fact = TypeVar("_Fact")

#: Returns the outputs of a graph for some inputs; none if it cannot.
Evaluate: TypeAlias = Callable[[onnx.ModelProto, Sequence[Array]], Sequence[Array]]


@dataclass(frozen=True)
class DrawnOracle(CaseOracle):
    """The right outputs of a node; `expected` is empty if they are unknown.

    Attributes:
        node: The node with its inputs.
        unknown: Why the right outputs are not known; "" if they are.
        copies: The values that outputs behind those of the node copy; see `harness.pipeline.neighbours.copied_values`.
    """

    node: Definition
    unknown: str = ""
    copies: tuple[int, ...] = ()

    @cached_property
    def _oracle(self) -> NodeOracle:
        return NodeOracle(self.node)

    @property
    def judge(self) -> Judge:
        """Accept what the operator's definition gives, rounded as the operator may round; of random numbers all."""
        if self.node.is_random:
            return Judge(rules=dict.fromkeys(range(len(self.expected)), anything))
        return judge_node(self.node)

    def compare(self, outputs: Sequence[Array], leeway: Leeway | None = None) -> OutputComparison:
        """Compare a backend's outputs; those of a backend that follows the definition step by step are right, too."""
        comparison = super().compare(outputs, leeway)
        forms = [form_of(array) for array in self.expected]
        if not comparison.problems or self.node.is_random or [form_of(array) for array in outputs] != forms:
            return comparison
        if self._is_as_defined(outputs):
            return comparison.excused_as("rounded as the definition's steps are")
        return comparison

    def _is_as_defined(self, outputs: Sequence[Array]) -> bool:
        """Whether the outputs of the node follow its definition step by step, and their copies do, too."""
        count = len(self.expected) - len(self.copies)
        got, copied = outputs[:count], [(outputs[count + i], place) for i, place in enumerate(self.copies)]
        if any(array.tobytes() != self.feeds[-1 - place].tobytes() for array, place in copied if place < 0):
            return False
        again = [array for array, place in copied if place >= 0]
        return not_as_defined(self.node, got) is None and (not again or not_as_defined(self.node, again) is None)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The inputs by their names in the graph."""
        return self.node.inputs

    @property
    def truth(self) -> tuple[Array | None, ...] | None:
        """See `NodeOracle`."""
        return self._append_copies(self._oracle.truth, lambda place: _wide(self.feeds[place]))

    @property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """See `NodeOracle`."""
        return self._append_copies(self._oracle.magnitude)

    @property
    def marked(self) -> tuple[Array | None, ...] | None:
        """See `NodeOracle`."""
        return self._append_copies(self._oracle.marked)

    @property
    def finite_terms(self) -> tuple[tuple[Array | None, ...] | None, tuple[Array | None, ...] | None]:
        """See `NodeOracle`."""
        truth, magnitude = self._oracle.finite_terms
        return self._append_copies(truth), self._append_copies(magnitude)

    @property
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """See `NodeOracle`."""
        return self._append_copies(self._oracle.sensitivity)

    def _append_copies(
        self, facts: Sequence[_Fact | None] | None, of_input: Callable[[int], _Fact | None] = lambda place: None
    ) -> tuple[_Fact | None, ...] | None:
        return None if facts is None else append_copies(facts, self.copies, of_input)


def _wide(array: Array) -> Array | None:
    return array.astype(np.float64) if str(array.dtype) in PRECISION else None


@dataclass(frozen=True, kw_only=True)
class PlainOracle(GraphOracle):
    """The outputs that a runtime gives a drawn graph without optimisations.

    Those that the nodes' definitions give are right, too: a runtime may drop a rounding in either form.

    Attributes:
        evaluator: Evaluates definitions.
    """

    evaluator: Backend

    def compare(self, outputs: Sequence[Array], leeway: Leeway | None = None) -> OutputComparison:
        """Compare a runtime's outputs with those that it gives without optimisations, and with the definitions'."""
        comparison = super().compare(outputs, leeway)
        if comparison.problems and self._defined is not None:
            by_definition = replace(self, expected=self._defined)
            if not GraphOracle.compare(by_definition, outputs, leeway).problems:
                return comparison.excused_as("as the definitions of the nodes give it")
        return comparison

    @cached_property
    def _defined(self) -> tuple[Array, ...] | None:
        """The outputs by onnx's own evaluator; None if it has no definition of a node at its version."""
        if has_earlier_meanings(self.model):
            return None
        run = _run_with(self.evaluator, self.model, self.feeds)
        return None if run.outputs is None else tuple(run.outputs)


def declare_outputs(graph: onnx.ModelProto, invocation: Invocation, evaluate: Evaluate) -> onnx.ModelProto:
    """Return a drawn graph whose outputs have the dtypes and ranks of some results, where inference gives none.

    ONNX's checker wants to know them.

    Args:
        graph: The graph, which is changed.
        invocation: The case whose inputs it gets.
        evaluate: Evaluates it.
    """
    outputs = [value for value in graph.graph.output if not value.type.tensor_type.HasField("shape")]
    if not outputs:
        return graph
    results = evaluate(graph, tuple(map(build_array, invocation.tensors())))
    known = {value.name: np.asarray(array) for value, array in zip(graph.graph.output, results, strict=False)}
    for value in outputs:
        if value.name in known:
            kind = value.type.tensor_type
            kind.elem_type = kind.elem_type or element_type(known[value.name].dtype.name)
            kind.shape.SetInParent()
            for _ in range(known[value.name].ndim):
                kind.shape.dim.add()
    return graph


def evaluate_definition(evaluator: Backend, graph: onnx.ModelProto, feeds: Sequence[Array]) -> Sequence[Array]:
    """Return what the definition of a drawn node gives; none where it is not defined."""
    try:
        return _define(graph, feeds, evaluator).own
    except Undefined:
        return ()


def evaluate_plainly(backend: Backend, graph: onnx.ModelProto, feeds: Sequence[Array]) -> Sequence[Array]:
    """Return what a runtime without optimisations gives for a graph; none if it fails or has no such form."""
    if not isinstance(backend, HasPlain):
        return ()
    return _run_with(backend.plain(), graph, feeds).outputs or ()


def _run_with(backend: Backend, graph: onnx.ModelProto, feeds: Sequence[Array]) -> CaseRun:
    named = dict(zip((value.name for value in signature(graph)), feeds, strict=True))
    return run_graph(backend, graph, named)


@dataclass(frozen=True, eq=False)
class DrawnNode:
    """A drawn node as a graph.

    Attributes:
        graph: The graph that is run: the node among its neighbours.
        core: The node without neighbours, whose definition tells what is right.
    """

    graph: onnx.ModelProto
    core: onnx.ModelProto


def build_node(
    invocation: Invocation,
    evaluator: Backend | None,
    *,
    opset: int | None = None,
    index: int = 0,
    is_open: bool = False,
) -> DrawnNode:
    """Return the graph of a drawn node with all types declared; further arguments and errors as those of `build_graph`.

    `evaluator` evaluates definitions, where a rank depends on values; None leaves such a rank open.
    """

    def build(part: Invocation) -> onnx.ModelProto:
        graph = build_graph(part, opset=opset, index=index, is_open=is_open)
        if evaluator is not None:
            return declare_outputs(graph, invocation, partial(evaluate_definition, evaluator))
        for value in graph.graph.output:
            value.type.tensor_type.shape.SetInParent()
        return graph

    graph = build(invocation)
    return DrawnNode(graph, build(strip_neighbours(invocation)) if neighbours_kind(invocation) else graph)


def expect_by_definition(drawn: DrawnNode, invocation: Invocation, evaluator: Backend) -> DrawnOracle:
    """Return the right outputs of a drawn node.

    Args:
        drawn: The node as a graph.
        invocation: The case.
        evaluator: Evaluates definitions.

    Raises:
        Forbidden: ONNX's checker rejects the graph, or the inputs break a limit of the operator's text.
        CallRejected: a node has no definition.
    """
    feeds = tuple(map(build_array, invocation.tensors()))
    node = _allowed(drawn, feeds, evaluator)
    try:
        expected = NodeOracle(node).expected
    except Undefined as reason:
        formed = formed_arrays(node.model) if node.is_random else None
        if not formed:
            return DrawnOracle(invocation, feeds, (), node, one_line(reason))
        expected = tuple(formed)
    copies = copied_values(neighbours_kind(invocation), len(expected), len(feeds))
    return DrawnOracle(invocation, feeds, append_copies(expected, copies, feeds.__getitem__), node, copies=copies)


def expect_refusal(drawn: DrawnNode, invocation: Invocation, evaluator: Backend) -> NoReturn:
    """Find out whether the text forbids a drawn node; arguments as those of `expect_by_definition`.

    Raises:
        Forbidden: see there.
        CallRejected: nothing forbids it, as far as is known.
    """
    _allowed(drawn, tuple(map(build_array, invocation.tensors())), evaluator)
    raise CallRejected from ValueError("drawn as forbidden, but no text forbids it")


def _allowed(drawn: DrawnNode, feeds: Sequence[Array], evaluator: Backend) -> Definition:
    """Return the definition of a node; raises `Forbidden` for one that its text forbids."""
    _check(drawn.graph)
    node = _define(drawn.core, feeds, evaluator)
    broken = broken_precondition(node)
    if broken:
        raise Forbidden from ValueError(f"{node.operator}: {_account(broken)}")
    return node


def expect_unoptimised(
    graph: onnx.ModelProto, invocation: Invocation, backend: Backend, evaluator: Backend
) -> PlainOracle:
    """Return the outputs that a runtime gives a graph without optimisations, which its optimisations must not change.

    Those of a runtime that cannot turn them off are compared with what onnx's own evaluator gives.

    Args:
        graph: The graph.
        invocation: The case.
        backend: The runtime.
        evaluator: Evaluates definitions.

    Raises:
        CallRejected: ONNX's checker rejects the graph, or the runtime without optimisations; or it cannot turn them
            off and onnx's evaluator has no definition of a node, so that nothing tells what is right.
    """
    _check(graph)
    if isinstance(backend, HasPlain):
        plain = backend.plain()
    elif backend.name == evaluator.name or has_earlier_meanings(graph):
        raise CallRejected from ValueError(f"nothing but {backend.name} itself tells what is right")
    else:
        plain = evaluator
    feeds = tuple(map(build_array, invocation.tensors()))
    run = _run_with(plain, graph, feeds)
    if run.failure is not None:
        raise CallRejected from run.failure.error
    return PlainOracle(invocation, feeds, run.outputs or (), graph, plain, evaluator=evaluator)


def _check(graph: onnx.ModelProto) -> None:
    """Raise `Forbidden` for an invalid graph; inference says why before the checker misses what it infers.

    Raises `CallRejected` if operators of other domains keep it from being checked.
    """
    try:
        if not all(value.type.tensor_type.HasField("shape") for value in graph.graph.output):
            onnx.shape_inference.infer_shapes(graph, check_type=True, strict_mode=True)
            others = [node.op_type for node in graph.graph.node if node.domain]
            if others:
                # The checker would only say that shapes are missing.
                raise Undefined(WhyUndefined.NO_DEFINITION, others[0])
        onnx.checker.check_model(graph, full_check=True)
    except Undefined as error:
        raise CallRejected from error
    except Exception as error:
        raise Forbidden from error


def _define(graph: onnx.ModelProto, feeds: Sequence[Array], evaluator: Backend) -> Definition:
    stepped = split_steps(graph)
    names = (value.name for value in signature(graph))
    values = {**stepped.constant_values, **dict(zip(names, feeds, strict=True))}
    step = join_steps(stepped)
    return Definition(stepped, step, {name: values[name] for name in step.inputs}, evaluator)


def _account(broken: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in broken.items())
