"""Decomposition of a program of functional calls in one pass.

`ExportedProgram.run_decompositions` traces a program twice, under a layer that turns mutation into functions,
after some fifty milliseconds of preparation. A program of functional operators needs that layer only where a
decomposition mutates something: here it is traced once without it, and the result is taken unless it holds
anything that the layer would have changed; then it is traced with it, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, TensorArgument
from torch.fx.experimental.proxy_tensor import make_fx

from harness.convert.exported_graph import assemble_program, is_direct, is_functional
from harness.convert.torch_private import part, replaceable
from harness.core import is_composite, overload, python_dispatcher, pytree


@cache
def _split_table(items: tuple[Any, ...]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    composites, others = part("split_table")(dict(items))
    return composites, others


def decompose_directly(
    program: ExportedProgram, table: tuple[tuple[Any, Callable[..., Any]], ...]
) -> ExportedProgram | None:
    """What `run_decompositions` makes of a program of `harness.convert.direct_program`.

    Args:
        program: The program.
        table: Its decompositions, as items.

    Returns:
        The decomposed program; None where only PyTorch's own way is known to give it.
    """
    if not is_direct(program):
        return None
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta["val"] for node in inputs]
    composites, others = _split_table(table)

    def run(*values: torch.Tensor) -> Any:
        return torch.fx.Interpreter(program.graph_module).run(*values)

    replaced = getattr(replaceable("overrides").owner, replaceable("overrides").attribute)
    own = frozenset(node.target for node in program.graph.nodes)
    for layered in (False, True) if own not in _layered else (True,):
        traced = part("functionalise")(run, part("functional_mode")(export=True)) if layered else run
        try:
            with torch.no_grad(), replaced(composites), python_dispatcher(), _fake_mode(program):
                graph = make_fx(traced, decomposition_table=others)(*fakes).graph
        except Exception:
            # PyTorch's own way says why once more, in the words that a user would read.
            return None
        _drop_assertions(graph)
        if all(is_functional(node) and (layered or not _differs(node, own)) for node in graph.nodes):
            graph.eliminate_dead_code()
            return _renamed(graph, inputs, program)
        _layered.add(own)
    return None


#: The operators of programs whose decomposition needs the layer that turns mutation into functions.
_layered: set[frozenset[Any]] = set()


def _drop_assertions(graph: torch.fx.Graph) -> None:
    """Drop what the layer says of the dtypes that it casts from, which is known of tensors in a graph."""
    for node in graph.find_nodes(op="call_function", target=_METADATA):
        graph.erase_node(node)


_METADATA = overload("aten._assert_tensor_metadata.default")


def _differs(node: torch.fx.Node, own: Set[Any]) -> bool:
    """Whether the layer may give another node.

    It keeps fewer composite operators within others, and takes conjugates, which are made when they are read,
    for what they are.
    """
    target = node.target
    return (is_composite(target) and target not in own) or "conj" in str(target)


def _fake_mode(program: ExportedProgram) -> Any:
    """What the program was captured in: tensors that a decomposition makes have no values either."""
    values = pytree.tree_leaves([node.meta.get("val") for node in program.graph.nodes])
    return next(value.fake_mode for value in values if hasattr(value, "fake_mode"))


def _renamed(
    traced: torch.fx.Graph, inputs: Sequence[torch.fx.Node], program: ExportedProgram
) -> ExportedProgram | None:
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    names = iter(inputs)
    returned: list[torch.fx.Node] = []
    for node in traced.nodes:
        if node.op == "placeholder":
            copies[node] = copy = graph.placeholder(next(names).name)
            copy.meta["val"] = node.meta["val"]
        elif node.op == "output":
            results = node.args[0]
            if not all(isinstance(result, torch.fx.Node) for result in results):
                return None
            returned = [copies[result] for result in results]
        else:
            copies[node] = copy = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(returned))
    specs = [InputSpec(s.kind, TensorArgument(s.arg.name), None) for s in program.graph_signature.input_specs]
    return assemble_program(graph, specs, returned, program.example_inputs[0], {})
