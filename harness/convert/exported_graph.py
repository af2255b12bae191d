"""A graph of PyTorch operators as an exported program."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import torch
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from harness.convert.quick_passes import compiled_when_run
from harness.convert.torch_private import part
from harness.core import OpOverload, pytree

#: In the metadata of a graph: whether it was built here, of functional calls and without constants.
_DIRECT = "harness_direct"


def is_direct(program: torch.export.ExportedProgram) -> bool:
    """Whether a program was built here, of functional calls and without constants."""
    return bool(program.graph_module.meta.get(_DIRECT))


def assemble_program(
    graph: torch.fx.Graph,
    inputs: Sequence[InputSpec],
    outputs: Sequence[torch.fx.Node],
    tensors: Sequence[torch.Tensor],
    constants: Mapping[str, torch.Tensor],
) -> torch.export.ExportedProgram:
    """An exported program of a graph, as `torch.export` would hold it.

    Args:
        graph: Complete.
        inputs: What each of its placeholders is.
        outputs: The nodes that it returns.
        tensors: What it is called with, as one variadic argument: one for each user's input.
        constants: Those that inputs stand for.
    """
    signature = ExportGraphSignature(
        list(inputs),
        [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in outputs],
    )
    call = part("module_call")(
        fqn="",
        signature=part("module_call_signature")(
            inputs=[],
            outputs=[],
            in_spec=pytree.tree_structure((tuple(tensors), {})),
            out_spec=pytree.tree_structure(tuple(outputs)),
            forward_arg_names=[spec.arg.name for spec in inputs if spec.kind is InputKind.USER_INPUT],
        ),
    )
    with compiled_when_run():
        program = torch.export.ExportedProgram(
            root=torch.nn.Module(),
            graph=graph,
            graph_signature=signature,
            state_dict={},
            range_constraints={},
            module_call_graph=[call],
            example_inputs=(tuple(tensors), {}),
            constants=dict(constants),
            verifiers=[part("training_verifier")],
        )
    program.graph_module.meta["inline_constraints"] = {}
    program.graph_module.meta[_DIRECT] = not constants
    return program


def is_functional(node: torch.fx.Node) -> bool:
    """Whether a traced node changes nothing and needs nothing but its inputs."""
    if node.op == "get_attr":
        return False
    target = node.target
    if not isinstance(target, OpOverload):
        return node.op != "call_function" or target is operator.getitem
    return not target._schema.is_mutable and bool(target._schema.returns)


def is_sized_by_values(program: torch.export.ExportedProgram) -> bool:
    """Whether values decide how large some results in a program are."""
    values = pytree.tree_leaves([node.meta.get("val") for node in program.graph.nodes])
    return any(
        isinstance(value, torch.Tensor) and not all(isinstance(size, int) for size in value.shape) for value in values
    )


def ancestors(nodes: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
    """Some nodes of a graph, and all that they are computed from."""
    found: set[torch.fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def returned(graph: torch.fx.Graph) -> Sequence[torch.fx.Node]:
    """The nodes whose values a graph returns."""
    (output,) = graph.find_nodes(op="output")
    found: Sequence[torch.fx.Node] = output.args[0]
    return found
