"""The right outputs of a drawn node: those of its operator's definition, at the version that it has in the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx

from harness.compare.judge import Judge, anything
from harness.compare.nearness import Sensitivity
from harness.compare.output_comparison import OutputComparison
from harness.compare.tolerances import Tolerance
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.onnx_arrays import build_array
from harness.core.text import one_line
from harness.pipeline.case import CaseOracle
from harness.pipeline.graph_oracle import GraphOracle
from harness.pipeline.graph_structure import signature
from harness.pipeline.nodes.definition import Definition, Undefined, formed_arrays
from harness.pipeline.nodes.judged_nodes import NodeOracle, form_of, judge_node, not_as_defined
from harness.pipeline.nodes.node_steps import join_steps, split_steps
from harness.pipeline.nodes.preconditions import broken_precondition
from harness.pipeline.run_case import run_graph
from harness.pipeline.torch_call import CallRejected
from harness.run.backend import Backend, HasPlain


@dataclass(frozen=True)
class DrawnOracle(CaseOracle):
    """The right outputs of a node; `expected` is empty if they are unknown.

    Attributes:
        node: The node with its inputs.
        unknown: Why the right outputs are not known; "" if they are.
    """

    node: Definition
    unknown: str = ""

    @cached_property
    def _oracle(self) -> NodeOracle:
        return NodeOracle(self.node)

    @property
    def judge(self) -> Judge:
        """Accept what the operator's definition gives, rounded as the operator may round; of random numbers all."""
        if self.node.is_random:
            return Judge(rules=dict.fromkeys(range(len(self.expected)), anything))
        return judge_node(self.node)

    def compare(self, outputs: Sequence[Array], tolerance: Tolerance | None = None) -> OutputComparison:
        """Compare a backend's outputs; those of a backend that follows the definition step by step are right, too."""
        comparison = super().compare(outputs, tolerance)
        forms = [form_of(array) for array in self.expected]
        if not comparison.problems or self.node.is_random or [form_of(array) for array in outputs] != forms:
            return comparison
        if not_as_defined(self.node, outputs) is None:
            return comparison.excused_as("rounded as the definition's steps are")
        return comparison

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The inputs by their names in the graph."""
        return self.node.inputs

    @property
    def truth(self) -> tuple[Array | None, ...] | None:
        """See `NodeOracle`."""
        return self._oracle.truth

    @property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """See `NodeOracle`."""
        return self._oracle.magnitude

    @property
    def marked(self) -> tuple[Array | None, ...] | None:
        """See `NodeOracle`."""
        return self._oracle.marked

    @property
    def finite_terms(self) -> tuple[tuple[Array | None, ...] | None, tuple[Array | None, ...] | None]:
        """See `NodeOracle`."""
        return self._oracle.finite_terms

    @property
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """See `NodeOracle`."""
        return self._oracle.sensitivity


def declare_ranks(graph: onnx.ModelProto, invocation: Invocation, evaluator: Backend) -> onnx.ModelProto:
    """Return a drawn graph whose outputs have the ranks that their definition gives, where inference gives none.

    ONNX's checker wants to know them.
    """
    outputs = [value for value in graph.graph.output if not value.type.tensor_type.HasField("shape")]
    if not outputs:
        return graph
    try:
        results = _define(graph, tuple(map(build_array, invocation.tensors())), evaluator).own
    except Undefined:
        return graph
    ranks = {value.name: array.ndim for value, array in zip(graph.graph.output, results, strict=False)}
    for value in outputs:
        value.type.tensor_type.shape.SetInParent()
        for _ in range(ranks.get(value.name, 0)):
            value.type.tensor_type.shape.dim.add()
    return graph


def expect_by_definition(graph: onnx.ModelProto, invocation: Invocation, evaluator: Backend) -> DrawnOracle:
    """Return the right outputs of a drawn node.

    Args:
        graph: The node as a graph.
        invocation: The case.
        evaluator: Evaluates definitions.

    Raises:
        CallRejected: ONNX's checker rejects the graph, or the inputs break a limit of the operator's text.
    """
    feeds = tuple(map(build_array, invocation.tensors()))
    _check(graph)
    node = _define(graph, feeds, evaluator)
    broken = broken_precondition(node)
    if broken:
        raise CallRejected from ValueError(f"{node.operator}: {_account(broken)}")
    try:
        return DrawnOracle(invocation, feeds, NodeOracle(node).expected, node)
    except Undefined as reason:
        if node.is_random and (formed := formed_arrays(node.model)):
            return DrawnOracle(invocation, feeds, formed, node)
        return DrawnOracle(invocation, feeds, (), node, one_line(reason))


def expect_unoptimised(graph: onnx.ModelProto, invocation: Invocation, backend: Backend) -> GraphOracle:
    """Return the outputs that a runtime gives a graph without optimisations, which its optimisations must not change.

    Args:
        graph: The graph.
        invocation: The case.
        backend: The runtime.

    Raises:
        CallRejected: ONNX's checker rejects the graph, or the runtime without optimisations; or it cannot turn them
            off, so that nothing tells what is right.
    """
    _check(graph)
    if not isinstance(backend, HasPlain):
        raise CallRejected from ValueError(f"{backend.name} cannot turn off its optimisations")
    plain = backend.plain()
    feeds = tuple(map(build_array, invocation.tensors()))
    named = dict(zip((value.name for value in signature(graph)), feeds, strict=True))
    run = run_graph(plain, graph, named)
    if run.failure is not None:
        raise CallRejected from run.failure.error
    return GraphOracle(invocation, feeds, run.outputs or (), graph, plain)


def _check(graph: onnx.ModelProto) -> None:
    """Raise `CallRejected` for an invalid graph; inference says why before the checker misses what it infers."""
    try:
        if not all(value.type.tensor_type.HasField("shape") for value in graph.graph.output):
            onnx.shape_inference.infer_shapes(graph, check_type=True, strict_mode=True)
        onnx.checker.check_model(graph, full_check=True)
    except Exception as error:
        raise CallRejected from error


def _define(graph: onnx.ModelProto, feeds: Sequence[Array], evaluator: Backend) -> Definition:
    stepped = split_steps(graph)
    names = (value.name for value in signature(graph))
    values = {**stepped.constant_values, **dict(zip(names, feeds, strict=True))}
    step = join_steps(stepped)
    return Definition(stepped, step, {name: values[name] for name in step.inputs}, evaluator)


def _account(broken: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in broken.items())
