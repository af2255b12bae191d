"""A model's PyTorch graph with values beside it that a backend computed.

A *checkpoint* is a node whose value the backend gives. What lies between a checkpoint and the checkpoints and
inputs that it is computed from is its *region*: one operator mostly, several where an exporter or its
optimiser fused them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from harness.analyse.capture.call_capture import module_path
from harness.core import OpOverload
from harness.execute import quiet_call


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
        given = [name for name in placeholders if name not in named]
        values = {name: state[named[name]].detach() for name in placeholders if name in named}
        values |= zip(given, inputs, strict=False)
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
        """The values of nodes in their order, from those of what they read besides."""
        env: dict[Node, Any] = {}
        for node in nodes:
            env[node] = self.call(node, lambda n: env[n] if n in env else get(n))
        return env
