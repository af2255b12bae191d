"""Decomposition of a program of functional calls in one pass.

`ExportedProgram.run_decompositions` traces a program twice, under a layer that turns mutation into functions,
after some fifty milliseconds of preparation. A program of functional operators needs that layer only where a
decomposition mutates something: here it is traced once without it, and the result is taken unless it holds
anything that the layer would have changed; then it is traced with it, once. Calls that fail are all found at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, TensorArgument
from torch.fx.experimental.proxy_tensor import make_fx

from harness.convert.fast.direct_program import assemble_program, is_direct, is_functional, is_sized_by_values, returned
from harness.convert.fast.passes import modules_not_traced
from harness.convert.fast.tracing import BeyondTracing, NeedsLayer, traced_quickly
from harness.convert.torch_private import part, replaceable
from harness.core.tensors import overload
from harness.core.torch_operators import is_composite, python_dispatcher, pytree


@dataclass(frozen=True, eq=False)
class Decompositions:
    """The decompositions that the exporter makes.

    Attributes:
        table: Operator → function.
    """

    table: Mapping[Any, Callable[..., Any]]

    @cached_property
    def split(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return the decompositions of composite operators, and the others."""
        composites, others = part("split_table")(dict(self.table))
        return composites, others


class NotDecomposed(Exception):
    """Some calls of a program cannot be decomposed here.

    Args:
        results: The places of their results among those of the program.
        raised: The operators of the program, if decompositions raise, as they mostly do in PyTorch's own
            way, too.
    """

    def __init__(self, results: Set[int], raised: frozenset[Any] = frozenset()) -> None:
        super().__init__(f"results {sorted(results)} are not decomposed")
        self.results = results
        self.raised = raised

    def learn_otherwise(self) -> None:
        """Note that PyTorch's own decomposition does not raise, so that it is used for these operators."""
        _raised_wrongly.add(self.raised)


def decompose_directly(program: ExportedProgram, decompositions: Decompositions) -> ExportedProgram | None:
    """Decompose a program of `harness.convert.fast.direct_program` as `run_decompositions` does.

    Args:
        program: The program.
        decompositions: The decompositions to make.

    Returns:
        The decomposed program; None if the program is of another kind.

    Raises:
        NotDecomposed: only PyTorch's own function can decompose it.
    """
    if not is_direct(program):
        return None
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta["val"] for node in inputs]
    composites, others = decompositions.split
    calls = _Calls(program.graph_module)
    replaced = getattr(replaceable("overrides").owner, replaceable("overrides").attribute)
    own = frozenset(node.target for node in program.graph.nodes if node.op == "call_function")
    if own in _raised_wrongly:
        raise NotDecomposed(frozenset(range(len(returned(program.graph)))))
    other: set[torch.fx.Node] = set()
    sized_by_values = is_sized_by_values(program)
    for layered in (False, True) if own not in _layered else (True,):
        layer = _functionalised if layered else None
        try:
            with torch.no_grad(), replaced(composites), python_dispatcher():
                found = None
                if not sized_by_values:
                    found = traced_quickly(program.graph, others, _fake_mode(program), layer)
                if found is None:
                    with _fake_mode(program), modules_not_traced():
                        traced = layer(calls) if layer else calls
                        found = make_fx(traced, decomposition_table=others)(*fakes).graph
        except BeyondTracing as error:
            raise NotDecomposed(_reached(program.graph, error.nodes)) from error
        except NeedsLayer:
            _layered.add(own)
            continue
        except Exception as error:
            raise NotDecomposed(frozenset(range(len(returned(program.graph))))) from error
        if calls.failed:
            raise NotDecomposed(_reached(program.graph, calls.failed), own)
        graph: torch.fx.Graph = found
        _drop_assertions(graph)
        other = {n for n in graph.nodes if not is_functional(n) or (not layered and _differs(n, own))}
        if not other:
            graph.eliminate_dead_code()
            return _renamed(graph, inputs, program)
        _layered.add(own)
    raise NotDecomposed(_reached(graph, other))


def _functionalised(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function under the layer that turns mutation into functions."""
    layered: Callable[..., Any] = part("functionalise")(function, part("functional_mode")(export=True))
    return layered


class _Calls(torch.fx.Interpreter):
    """Makes the calls of a program, and notes those that raise."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.failed: set[torch.fx.Node] = set()

    def __call__(self, *values: torch.Tensor) -> Any:
        return self.run(*values)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node as PyTorch does; return None if it or one of its inputs raises."""
        if n.op != "output" and not self.failed.isdisjoint(n.all_input_nodes):
            return None
        try:
            return super().run_node(n)
        except Exception:
            self.failed.add(n)
            return None


def _reached(graph: torch.fx.Graph, nodes: Set[torch.fx.Node]) -> Set[int]:
    """Return the places of the results of a graph that depend on some of its nodes; all if none does."""
    reached = set(nodes)
    for node in graph.nodes:
        if not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
    results = returned(graph)
    return frozenset(i for i, node in enumerate(results) if node in reached) or frozenset(range(len(results)))


#: The operators whose decomposition needs the layer that turns mutation into functions.
_layered: set[frozenset[Any]] = set()
#: Those of programs that only PyTorch's own way decomposes.
_raised_wrongly: set[frozenset[Any]] = set()


def _drop_assertions(graph: torch.fx.Graph) -> None:
    """Drop the layer's statements about the dtypes that it casts from, which tensors in a graph have anyway."""
    for node in graph.find_nodes(op="call_function", target=_METADATA):
        graph.erase_node(node)


_METADATA = overload("aten._assert_tensor_metadata.default")


def _differs(node: torch.fx.Node, own: Set[Any]) -> bool:
    """Whether the layer may give another node.

    It keeps fewer composite operators within others. Conjugates, which are made when they are read, stay
    conjugates.
    """
    target = node.target
    return (is_composite(target) and target not in own) or "conj" in str(target)


def _fake_mode(program: ExportedProgram) -> Any:
    """Return the mode in which the program was captured: a decomposition's new tensors have no values either."""
    values = pytree.tree_leaves([node.meta.get("val") for node in program.graph.nodes])
    return next(value.fake_mode for value in values if hasattr(value, "fake_mode"))


def _renamed(
    traced: torch.fx.Graph, inputs: Sequence[torch.fx.Node], program: ExportedProgram
) -> ExportedProgram | None:
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    names = iter(inputs)
    results: list[torch.fx.Node] = []
    for node in traced.nodes:
        if node.op == "placeholder":
            copies[node] = copy = graph.placeholder(next(names).name)
            copy.meta["val"] = node.meta["val"]
        elif node.op == "output":
            if not all(isinstance(result, torch.fx.Node) for result in node.args[0]):
                return None
            results = [copies[result] for result in node.args[0]]
        else:
            copies[node] = copy = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(results))
    specs = [InputSpec(s.kind, TensorArgument(s.arg.name), None) for s in program.graph_signature.input_specs]
    return assemble_program(graph, specs, results, program.example_inputs[0], {})
