"""The exporter's passes over a graph without the work that changes nothing.

The pass that makes type promotion explicit runs every node again, and the optimiser tries every rule at every node:
for a rule with two outputs it looks at all pairs of nodes of the graph, which takes longer than all the rest in a
program of many calls. To evaluate a node of constants onnx makes an object of it; to infer its types the optimiser
writes the node as a message and parses the answer. Both take many times as long as the arithmetic, and most of the
nodes are alike: the same few sizes and axes. So results are kept for nodes that are alike.

The functions in this module replace private ones of PyTorch and of onnxscript while
`harness.convert.fast.exporter_caches` is active, call these if they have work to do, and give the same graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from keyword import iskeyword
from typing import Any

import numpy as np
import onnx_ir
import torch

from harness.convert.torch_private import PARTS, part, replaceable

#: More numbers than that are rarely the same twice.
_LARGEST = 64
#: Operator, inputs and attributes → output.
_evaluated: dict[tuple[Any, ...], Any] = {}
#: So many take some ten megabytes.
_MOST_EVALUATED = 20_000
_PLAIN = (int, float, str, bool)


class _Unlike(Exception):
    """Too much decides about a node to tell which others are like it."""


def evaluate(evaluator: Any, domain: str, op: str, version: int, *args: Any, **kwargs: Any) -> Any:
    """Replace the optimiser's method that evaluates a node."""
    original = replaceable("evaluate").original
    try:
        key = (domain, op, version, *map(_array, args), *_attributes(kwargs))
    except _Unlike:
        return original(evaluator, domain, op, version, *args, **kwargs)
    found = _evaluated.get(key)
    if found is None:
        found = original(evaluator, domain, op, version, *args, **kwargs)
        if not isinstance(found, np.ndarray) or found.size > _LARGEST:
            return found
        if len(_evaluated) >= _MOST_EVALUATED:
            _evaluated.clear()
        _evaluated[key] = found
    # A new array, since the reader may change it.
    return found.copy()


def _array(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.size > _LARGEST or value.dtype.kind not in "biufc":
        raise _Unlike
    return value.dtype, value.shape, value.tobytes()


def _attributes(values: Mapping[str, Any]) -> list[Any]:
    described: list[Any] = []
    for name, value in sorted(values.items()):
        several = isinstance(value, Sequence) and not isinstance(value, str)
        elements = tuple(value) if several else (value,)
        if not all(isinstance(element, _PLAIN) for element in elements):
            raise _Unlike
        # As text, since 0.0 equals −0.0, 0 and False.
        described.append((name, several, tuple(map(repr, elements))))
    return described


#: The optimiser hands ONNX no larger constants.
_LARGEST_CONSTANT = 20
#: Node, its attributes, and the known facts about its inputs and outputs → the facts about its outputs.
_inferred: dict[tuple[Any, ...], tuple[tuple[Any, Any], ...]] = {}
#: Node, its attributes, and the dtypes of its inputs → those that are inferred for its outputs.
_dtypes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
#: So many take some ten megabytes.
_MOST_INFERRED = 20_000
_PLAIN_INFERENCE = {onnx_ir.AttributeType[name] for name in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")}


class _Unlike_of_quick_inference(Exception):
    """Too much decides about a node to tell which others are like it."""


def infer_node(folding: Any, node: onnx_ir.Node) -> None:
    """Replace the optimiser's method that infers the types and shapes of the outputs of a node."""
    original = replaceable("infer_node").original
    try:
        inputs = [(None, None) if value is None else _known(value) for value in node.inputs]
        outputs = tuple(map(_known, node.outputs))
        kind = (
            node.domain,
            node.op_type,
            folding._opset_imports.get(node.domain),
            *((name, *_attribute(attribute)) for name, attribute in sorted(node.attributes.items())),
            *(dtype for dtype, _ in inputs),
            len(inputs),
        )
        dtypes = tuple(dtype for dtype, _ in outputs)
        whole = None not in dtypes and all(dims is not None for _, dims in outputs)
        # For an output of known shape only the dtype is used, which does not depend on sizes.
        if whole and _dtypes.get(kind) == dtypes:
            return
        constants = (None if value is None else _constant(value) for value in node.inputs)
        key = (*kind, *(dims for _, dims in inputs), *constants, *outputs)
    except _Unlike_of_quick_inference:
        original(folding, node)
        return
    found = _inferred.get(key)
    if found is None:
        before = [output.type for output in node.outputs]
        original(folding, node)
        if len(_inferred) >= _MOST_INFERRED:
            _inferred.clear()
            _dtypes.clear()
        with contextlib.suppress(_Unlike_of_quick_inference):
            _inferred[key] = now = tuple(map(_known, node.outputs))
            # If inference fails a type stays the same object.
            if all(output.type is not old for output, old in zip(node.outputs, before, strict=True)):
                _dtypes[kind] = tuple(dtype for dtype, _ in now)
        return
    # New objects, since the reader may change a type or a shape.
    for output, (kind, dims) in zip(node.outputs, found, strict=True):
        if kind is not None:
            output.type = onnx_ir.TensorType(kind)
        if dims is not None:
            output.shape = onnx_ir.Shape(dims)


def _attribute(attribute: onnx_ir.Attr) -> tuple[Any, ...]:
    if attribute.is_ref() or attribute.type not in _PLAIN_INFERENCE:
        raise _Unlike_of_quick_inference
    value = attribute.value
    return attribute.type, tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _known(value: onnx_ir.Value) -> tuple[Any, ...]:
    """Return the dtype and the sizes of a value."""
    kind, shape = value.type, value.shape
    if kind is not None and (type(kind) is not onnx_ir.TensorType or kind.denotation is not None):
        raise _Unlike_of_quick_inference
    if shape is not None and not shape.is_static():
        raise _Unlike_of_quick_inference
    return None if kind is None else kind.dtype, None if shape is None else shape.numpy()


def _constant(value: onnx_ir.Value) -> tuple[Any, ...] | None:
    tensor = value.const_value
    if tensor is None or tensor.size > _LARGEST_CONSTANT:
        return None
    if tensor.dtype == onnx_ir.DataType.STRING:
        raise _Unlike_of_quick_inference
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()


def quick_passes() -> dict[str, Any]:
    """Return the replacements for the functions in `harness.convert.torch_private.PARTS`, by their names there."""
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
    """Cache the attributes of a protocol, which Python before 3.12 finds out at each `isinstance` call."""
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
    """Cache the signature of an ONNX operator, which the exporter makes again for every node."""
    key = op_schema.domain, op_schema.name, op_schema.since_version
    if key not in _signatures:
        _signatures[key] = replaceable("op_signature").original.__get__(None, cls)(op_schema)
    return _signatures[key]


@cache
def _promotion_table() -> Any:
    """Return the rules of type promotion, which PyTorch checks anew for each program."""
    return replaceable("promotion_table").original()


def _promoted(interpreter: Any, n: torch.fx.Node) -> Any:
    """Insert type promotion at a node; run the node if it or one of its inputs has changed."""
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
    """Try a rule of the optimiser if the node is of the operator that its pattern ends in."""
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
    """A graph that shows only the nodes that can match the further outputs of a pattern.

    Attributes:
        graph: The graph itself.
        nodes: The visible nodes, in the graph's order.
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
        """Return some nodes in the order of a graph, without those of its subgraphs."""
        own = [node for node in nodes if node.graph is graph]
        if graph is not self._graph or any(node not in self._places for node in own):
            self._graph = graph
            self._places = {node: place for place, node in enumerate(graph)}
        return sorted(own, key=self._places.__getitem__)


_last_order = _Order()


def _shared_input(pattern: Any) -> int | None:
    """Return the index of a first output node's input that all other output nodes of a pattern share; None if none."""
    first, *others = pattern.output_nodes
    for place, value in enumerate(first.inputs):
        if value is not None and all(any(value is taken for taken in other.inputs) for other in others):
            return place
    return None
