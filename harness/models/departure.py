"""Whether a value that a backend computed is explained by the values that it was computed from.

A model's PyTorch graph with values beside it that a backend computed.

A *checkpoint* is a node whose value the backend gives. What lies between a checkpoint and the checkpoints and
inputs that it is computed from is its *region*: one operator mostly, several where an exporter or its
optimiser fused them.

Is a value that a backend computed explained by the values that it was computed from?
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from harness.compare.comparison import compare
from harness.compare.judge import CLOSE
from harness.compare.nearness import tolerance_of
from harness.compare.output_comparison import OutputComparison
from harness.convert.converter import tensor_inputs
from harness.core.dtypes import PRECISION, Array
from harness.core.tensors import output_tensors
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import OpOverload
from harness.generate.operator_case import OPERATOR_CASES
from harness.models.capture import module_path
from harness.pipeline.rounding_oracle import Move, RoundingOracle
from harness.pipeline.torch_call import quiet_call


@dataclass(frozen=True)
class Region:
    """A checkpoint and the nodes that compute it from others.

    Attributes:
        node: The checkpoint.
        nodes: All of the region, the checkpoint last.
        sources: Checkpoints and placeholders that these read, each once.
    """

    node: Node
    nodes: tuple[Node, ...]
    sources: tuple[Node, ...]

    @property
    def operators(self) -> tuple[Node, ...]:
        """Calls of operators in it, without those that only take one of several results."""
        return tuple(n for n in self.nodes if isinstance(n.target, OpOverload))

    @property
    def module(self) -> str:
        """The module that the checkpoint comes from, by its path."""
        return next((path for n in reversed(self.nodes) if (path := module_path(n))), "")


class PyTorchGraph:
    """A graph of ATen calls, with the values of its placeholders.

    Args:
        graph: As `torch.export` makes it.
        placeholders: Node name → value; weights, constants and inputs.
        attributes: What ``get_attr`` nodes get, by target.
        inputs: Names of the placeholders that are inputs.
    """

    def __init__(
        self,
        graph: torch.fx.Graph,
        placeholders: Mapping[str, Any],
        attributes: torch.nn.Module,
        inputs: Iterable[str],
    ) -> None:
        self.graph = graph
        self.nodes = tuple(n for n in graph.nodes if n.op == "call_function")
        results: Any = graph.output_node().args[0]
        self.outputs: tuple[Node, ...] = tuple(n for n in results if isinstance(n, Node))
        self._placeholders = dict(placeholders)
        self._attributes = attributes
        self._inputs = frozenset(inputs)
        #: Node name → strides of its value, once `sizes` has been asked for.
        self.strides: dict[str, tuple[int, ...]] = {}

    @classmethod
    def of_program(cls, program: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor]) -> PyTorchGraph:
        """The graph of an exported program with values for its inputs."""
        signature = program.graph_signature
        state = {**program.state_dict, **program.constants}
        named = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        placeholders = [n.name for n in program.graph.nodes if n.op == "placeholder"]
        given = [name for name, _ in tensor_inputs(program)]
        values = {name: state[named[name]].detach() for name in placeholders if name in named}
        # Flags and sizes that the user passes are constants of the program.
        values |= {
            n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder" and n.name not in named
        }
        values |= zip(given, inputs, strict=True)
        return cls(program.graph, values, program.graph_module, given)

    def is_input(self, node: Node) -> bool:
        """Whether a node is an input of the model, rather than a weight."""
        return node.name in self._inputs

    def value(self, node: Node) -> Any:
        """Of a placeholder or an attribute."""
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self._attributes)
        return self._placeholders[node.name]

    def sizes(self) -> dict[str, int]:
        """Node name → bytes of its value, of the nodes whose value is one tensor; runs the graph once."""
        sizes: dict[str, int] = {}
        last_use = {source: node for node in self.nodes for source in node.all_input_nodes}
        env: dict[Node, Any] = {}
        with quiet_call():
            for node in self.nodes:
                value = self.call(node, lambda n: env[n] if n in env else self.value(n))
                if isinstance(value, torch.Tensor):
                    sizes[node.name] = value.numel() * value.element_size()
                    self.strides[node.name] = value.stride()
                env[node] = value
                for source in node.all_input_nodes:
                    if last_use[source] is node:
                        env.pop(source, None)
                if node not in last_use:
                    env.pop(node, None)
        return sizes

    def call(self, node: Node, get: Callable[[Node], Any]) -> Any:
        """The value of one call."""
        args = torch.fx.map_arg(node.args, get)
        kwargs = torch.fx.map_arg(node.kwargs, get)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def region(self, node: Node, checkpoints: set[str]) -> Region:
        """The region of a checkpoint."""
        nodes: list[Node] = []
        sources: dict[Node, None] = {}
        seen: set[Node] = set()

        def visit(n: Node) -> None:
            seen.add(n)
            for source in n.all_input_nodes:
                if source in seen:
                    continue
                if source.op == "call_function" and source.name not in checkpoints:
                    visit(source)
                else:
                    sources[source] = None
            nodes.append(n)

        visit(node)
        return Region(node, tuple(nodes), tuple(sources))

    def compute(self, nodes: Iterable[Node], get: Callable[[Node], Any]) -> dict[Node, Any]:
        """The values of nodes in their order, from those of what they read in addition."""
        env: dict[Node, Any] = {}
        for node in nodes:
            env[node] = self.call(node, lambda n: env[n] if n in env else get(n))
        return env


#: Elements that are compared at once.
_PIECE = 1 << 21


@dataclass(frozen=True)
class Departure:
    """A value that its inputs do not explain, compared with PyTorch's result for the same inputs."""

    region: Region
    comparison: OutputComparison


def check(
    graph: PyTorchGraph, region: Region, get: Callable[[Node], Any], got: Array, *, thorough: bool
) -> Departure | None:
    """Compare a checkpoint's value with PyTorch's result for the backend's own values of its sources.

    Args:
        get: The values of the region's sources.
        got: The backend's value.
        thorough: Judge each element; else a value is passed over whose largest error is within the tolerance
            of its largest element, which costs a fraction.
    """
    with quiet_call():
        value = graph.compute(region.nodes, get)[region.node]
    expected = to_numpy(value)
    if expected.dtype == got.dtype and expected.shape == got.shape and _is_close(expected, got, thorough):
        return None
    comparison = judged(graph, region, get, (expected,), (got,))
    return Departure(region, comparison) if comparison.problem is not None else None


def judged(
    graph: PyTorchGraph,
    region: Region,
    get: Callable[[Node], Any],
    expected: tuple[Array, ...],
    got: Sequence[Array],
) -> OutputComparison:
    """A checkpoint's value element by element, by the rules for models, or by its operator's own rules."""

    @contextmanager
    def wide() -> Iterator[Callable[[Move], Sequence[torch.Tensor]]]:
        def compute(move: Move) -> Sequence[torch.Tensor]:
            given = {node: get(node) for node in region.sources}
            moved = {node: move(v.double()) if _is_floating(v) else v for node, v in given.items()}
            return output_tensors(graph.compute(region.nodes, moved.__getitem__)[region.node])

        yield compute

    dtypes = {str(a.dtype) for a in expected}
    dtypes |= {str(v.dtype).removeprefix("torch.") for n in region.sources if isinstance(v := get(n), torch.Tensor)}
    oracle = RoundingOracle(expected, dtypes, wide)
    calls = region.operators
    if len(calls) == 1 and calls[0] is region.node:
        case = OPERATOR_CASES.get(str(calls[0].target))
        if case is not None and case.judge.rules:
            oracle.arguments = _arguments(calls[0], get)
            return compare(case.judge, oracle, got)
    return compare(oracle.judge, oracle, got)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _arguments(node: Node, get: Callable[[Node], Any]) -> Mapping[str, Any]:
    schema = node.target._schema.arguments  # type: ignore[union-attr]

    def plain(value: Any) -> Any:
        return to_numpy(value) if isinstance(value, torch.Tensor) else value

    args = torch.fx.map_arg(node.args, lambda n: plain(get(n)))
    kwargs = torch.fx.map_arg(node.kwargs, lambda n: plain(get(n)))
    return {a.name: v for a, v in zip(schema, args, strict=False)} | dict(kwargs)


def _is_close(expected: Array, got: Array, thorough: bool) -> bool:
    """Whether no closer look is needed; in pieces, since a value may take a good part of the memory."""
    dtype = str(expected.dtype)
    if dtype not in PRECISION:
        return bool(np.array_equal(expected, got))
    tolerance = tolerance_of(CLOSE, dtype)
    e, g = expected.reshape(-1), got.reshape(-1)
    scale, worst = 0.0, 0.0
    for start in range(0, max(e.size, 1), _PIECE):
        piece, other = (array[start : start + _PIECE].astype(np.float64) for array in (e, g))
        same = (piece == other) | (np.isnan(piece) & np.isnan(other))
        with np.errstate(all="ignore"):
            error = np.where(same, 0.0, np.abs(other - piece))
        if not np.isfinite(error).all():
            return False
        if thorough and (error > tolerance.allowed(piece)).any():
            return False
        finite = piece[np.isfinite(piece)]
        scale = max(scale, float(np.abs(finite).max(initial=0.0)))
        worst = max(worst, float(error.max(initial=0.0)))
    return thorough or worst <= float(tolerance.allowed(np.asarray(scale)))
