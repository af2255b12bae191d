"""Find the conversion function that makes the wrong part of a graph, by the functions that ran in an export."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from harness.blame.departing_nodes import departing_nodes, wrongly_formed
from harness.blame.failure_context import FailureContext
from harness.blame.translated_program import operators_of
from harness.blame.witness import Turn, Witness, backends_to_ask, witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Stage
from harness.convert import exporter_messages as exporter
from harness.convert.conversion_sources import ConversionFunction
from harness.convert.provenance import EmittedGraph
from harness.core.tensors import build_tensors
from harness.run import ort_messages as ort

#: Operators that bring tensors into form and compute nothing.
_FORM = frozenset(
    {
        *("Constant", "ConstantOfShape", "Cast", "CastLike", "Identity", "Shape", "Size", "Range"),
        *("Reshape", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Concat", "Slice", "Flatten"),
    }
)


def _find_emitting_function(context: FailureContext) -> Iterator[Testimony]:
    """Name the function that emits the rejected node, or the nodes of the first wrong call.

    If functions call each other, it is the innermost one that emits all of the nodes that compute.
    """
    try:
        graph = context.translation
    except Exception:
        # TorchScript infers no types behind some nodes that carry a note of their lines.
        return
    guilty = _guilty_nodes(context, graph)
    rule = context.failure.result.rule
    if rule:
        calls = (graph.target(graph.of_node[i]) for i in guilty)
        overload = next(filter(None, calls), context.invocation.overload)
        yield Testimony(Role.EMISSION, Finding.SAME, "emitting-rule", {"rule": rule, "overload": overload})
        return
    function = _common_function(graph, guilty)
    if function is None:
        return
    yield _emitting_function(context, graph, guilty, function)


def _emitting_function(
    context: FailureContext, graph: EmittedGraph, guilty: Sequence[int], function: ConversionFunction
) -> Testimony:
    calls = (graph.target(graph.of_node[i]) for i in guilty)
    facts = {
        "library": function.library,
        "function": function.name,
        "file": function.file,
        "overload": next(filter(None, calls), context.invocation.overload),
    }
    return Testimony(Role.EMISSION, Finding.SAME, "emitting-function", facts)


find_emitting_function = witness("the emitting function", place=12, turn=Turn.GRAPH, of_pytorch=True)(
    _find_emitting_function
)
#: The same for a failure before any runtime.
REJECTED_NODE = Witness("the emitting function", Turn.FIRST, 0, _find_emitting_function, of_pytorch=True)


def _find_emitter_of_unfoldable(context: FailureContext) -> Iterator[Testimony]:
    """Name the function that emits the node that the exporter's optimiser fails to evaluate.

    The optimiser is at fault if the graph without it gives PyTorch's result; `ask_broken_export` tells.
    """
    name = exporter.unfoldable_node(context.failure.result.message)
    graph = context.translation
    guilty = [i for i, node in enumerate(graph.model.graph.node) if name and node.name == name]
    function = _common_function(graph, guilty) if guilty else None
    backends = [context.backend(backend) for backend in backends_to_ask()]
    if function is None or any(context.is_right(backend, graph.model) for backend in backends):
        return
    yield _emitting_function(context, graph, guilty, function)


#: The same for an export that its optimiser ends.
UNFOLDABLE_NODE = Witness("the emitting function", Turn.FIRST, 0, _find_emitter_of_unfoldable, of_pytorch=True)


def _guilty_nodes(context: FailureContext, graph: EmittedGraph) -> Sequence[int]:
    """Return the places of the nodes that are wrong: the rejected one, or those of the first wrong call."""
    if context.failure.stage is Stage.COMPARE:
        return _departing_nodes(context, graph)
    message = context.failure.result.message
    operator, name = ort.refused_node(message), ""
    if context.failure.stage is Stage.CHECK:
        # In a batch, nodes have other names.
        invalid = context.check(context.model).failure
        operator, name = exporter.rejected_node(str(invalid.error) if invalid is not None else message) or ("", "")
    nodes = list(enumerate(graph.model.graph.node))
    named = [i for i, node in nodes if name and node.name == name]
    alike = [i for i, node in nodes if node.op_type == operator]
    return named or alike or _nodes_of(graph, wrongly_formed(graph)) or range(len(nodes))


def _departing_nodes(context: FailureContext, graph: EmittedGraph) -> Sequence[int]:
    every = range(len(graph.lines))
    if graph.program is None or len(operators_of(graph.program)) < 2:
        return every
    calls = departing_nodes(graph, build_tensors(context.invocation), context.feeds(graph.model), context.accused)
    return _nodes_of(graph, calls) or every


def _nodes_of(graph: EmittedGraph, calls: Collection[str]) -> list[int]:
    return [i for i, name in enumerate(graph.of_node) if name in calls]


def _common_function(graph: EmittedGraph, guilty: Sequence[int]) -> ConversionFunction | None:
    """Return the innermost function that all nodes that compute come from; None for none."""
    known = [i for i in guilty if graph.functions(i)]
    computing = [i for i in known if graph.model.graph.node[i].op_type not in _FORM] or known
    chains = [graph.functions(i) for i in computing]
    return next((f for f in chains[0] if all(f in chain for chain in chains)), None) if chains else None
