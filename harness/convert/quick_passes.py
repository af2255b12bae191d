"""The exporter's passes over a graph without the work that changes nothing.

The pass that makes type promotion explicit runs every node again, and the optimiser tries every rule at
every node: for a rule with two outputs it looks at all pairs of nodes of the graph, which takes longer than
all the rest in a program of many calls. The functions here replace private ones of PyTorch and of onnxscript
while `harness.convert.kept_constants` is active, call these where there is something to do, and give the same
graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from keyword import iskeyword
from typing import Any

import torch

from harness.convert.torch_private import PARTS, part, replaceable


def quick_passes() -> dict[str, Any]:
    """What replaces the functions that `harness.convert.torch_private.PARTS` calls so."""
    passes = {
        "promotion_table": _promotion_table,
        "promote_node": _promoted,
        "try_rule": _rule_tried,
        "match_pattern": _pattern_matched,
        "op_signature": classmethod(_signature_kept),
        "recompile": _compiled_when_run,
    }
    if "protocol_attributes" in PARTS:
        passes["protocol_attributes"] = _attributes_kept
    return passes


@cache
def _attributes_kept(protocol: type) -> Any:
    """What a protocol asks for, which Python before 3.12 finds out at each `isinstance` with one."""
    return replaceable("protocol_attributes").original(protocol)


def _compiled_when_run(module: Any) -> None:
    """Write the Python code of a graph when the module is called, which few modules of an export are.

    PyTorch has modules that do this, and makes them where its compiler asks for them only.
    """
    if any(iskeyword(getattr(node.target, "_overloadname", "")) for node in module.graph.nodes):
        # Nothing can be written of ``aten.random.from``, which ends an export.
        replaceable("recompile").original(module)
        return
    codegen = module.graph._codegen
    if hasattr(codegen, "pytree_info"):
        module._in_spec, module._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
    kind = type(module)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        replaceable("recompile").original(self)
        return kind.forward(self, *args, **kwargs)

    kind.forward = forward


@contextmanager
def compiled_when_run() -> Iterator[None]:
    """Let modules that are made in this block write their code when they are called."""
    with replaceable("recompile").replaced_by(_compiled_when_run):
        yield


@contextmanager
def modules_not_traced() -> Iterator[None]:
    """Trace functions in this block that call no module.

    For the sake of modules PyTorch's tracer changes methods of their class, and Python looks the methods of
    thousands of subclasses up anew.
    """
    with replaceable("patch_method").replaced_by(lambda patcher, *method, **options: None):
        yield


_signatures: dict[tuple[str, str, int], Any] = {}


def _signature_kept(cls: Any, op_schema: Any) -> Any:
    """The signature of an ONNX operator, which is made again for every node otherwise."""
    key = op_schema.domain, op_schema.name, op_schema.since_version
    if key not in _signatures:
        _signatures[key] = replaceable("op_signature").original.__get__(None, cls)(op_schema)
    return _signatures[key]


@cache
def _promotion_table() -> Any:
    """The rules of type promotion, which PyTorch checks anew for each program."""
    return replaceable("promotion_table").original()


def _promoted(interpreter: Any, n: torch.fx.Node) -> Any:
    """Insert type promotion at a node; run it where it, or what it is computed from, has changed."""
    before = n.args, n.kwargs
    changed: set[torch.fx.Node] = interpreter.__dict__.setdefault("_changed", set())
    with interpreter._set_current_node(n):
        rule = part("promotion_rule")(n, interpreter.type_promotion_table)
        if rule:
            interpreter._maybe_promote_node(n, rule)
    unchanged = (n.args, n.kwargs) == before and changed.isdisjoint(n.all_input_nodes)
    if unchanged and n.op == "call_function" and "val" in n.meta:
        return n.meta["val"]
    if not unchanged:
        changed.add(n)
    return torch.fx.Interpreter.run_node(interpreter, n)


def _rule_tried(
    rule: Any, model: Any, graph_or_function: Any, node: Any, *, verbose: Any = None, tracer: Any = None
) -> Any:
    """Try a rule of the optimiser where the node is of the operator that its pattern ends in."""
    try:
        domain, operator = rule._ends_in
    except AttributeError:
        # The third is an overload, which patterns do not compare.
        identifier = rule._target_pattern.output_nodes[0].op_identifier()
        domain, operator = rule._ends_in = identifier[:2] if identifier else (None, None)
    if operator is not None and (node.op_type != operator or node.domain != domain):
        return None
    original = replaceable("try_rule").original
    return original(rule, model, graph_or_function, node, verbose=verbose, tracer=tracer)


@dataclass(frozen=True)
class _Consumers:
    """A graph of which only those nodes are seen that can match the further outputs of a pattern.

    Attributes:
        graph: The graph itself.
        nodes: In the graph's order.
    """

    graph: Any
    nodes: Sequence[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.nodes)


def _pattern_matched(matcher: Any, model: Any, graph_or_function: Any, node: Any, **options: Any) -> Any:
    """Match a pattern; of one with several outputs only with nodes that share the input that it demands."""
    graph = getattr(graph_or_function, "graph", graph_or_function)
    if not matcher.pattern.has_single_output_node:
        place = _shared_input(matcher.pattern)
        if place is not None and place < len(node.inputs) and node.inputs[place] is not None:
            users = {id(use.node): use.node for use in node.inputs[place].uses()}
            nodes = list(users.values())
            if len(nodes) > 1:
                nodes = _last_order.of(graph, nodes)
            graph_or_function = _Consumers(graph, nodes)
    return replaceable("match_pattern").original(matcher, model, graph_or_function, node, **options)


class _Order:
    """The order of the nodes of the graph that was last asked about: nodes come and go, but none moves."""

    def __init__(self) -> None:
        self._graph: Any = None
        self._places: dict[Any, int] = {}

    def of(self, graph: Any, nodes: Sequence[Any]) -> list[Any]:
        """Some nodes in the order of a graph, without those of graphs within it."""
        own = [node for node in nodes if node.graph is graph]
        if graph is not self._graph or any(node not in self._places for node in own):
            self._graph = graph
            self._places = {node: place for place, node in enumerate(graph)}
        return sorted(own, key=self._places.__getitem__)


_last_order = _Order()


def _shared_input(pattern: Any) -> int | None:
    """Which input of a pattern's first output node all the other output nodes take, too; None for none."""
    first, *others = pattern.output_nodes
    for place, value in enumerate(first.inputs):
        if value is not None and all(any(value is taken for taken in other.inputs) for other in others):
            return place
    return None
