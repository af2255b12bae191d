"""What functions make of tensors without values, written down as a graph, without PyTorch's tracer.

`make_fx` can trace anything, and asks at each call about constants, symbols, objects and other tracers. Most
of what a decomposition calls takes tensors of known sizes and changes none of them: such a call is a node and
what it returns. Of anything else nothing is traced here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from harness.convert.quick_fakes import fake_result
from harness.convert.torch_private import node_name, part
from harness.core import OpOverload, TorchDispatchMode, overload


def traced_quickly(
    program: torch.fx.Graph,
    table: Mapping[Any, Callable[..., Any]],
    mode: Any,
    layer: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> torch.fx.Graph | None:
    """The calls that those of a program are made of, as `make_fx` writes them down.

    Args:
        program: Of functional calls whose inputs have tensors of `mode` in their metadata.
        table: Operator → function to call in its place.
        mode: That of tensors without values. It must not be active.
        layer: Makes of a function one that does the same under a layer of interception.

    Returns:
        The graph; None where `make_fx` must find it, or out what fails.

    Raises:
        NeedsLayer: a call changes what it is given.
        BeyondTracing: calls take constants that have values, or change tensors despite the layer.
    """
    recorder = _Recorder(table, mode, layered=layer is not None)
    beyond: set[torch.fx.Node] = set()

    def call_all(*inputs: torch.Tensor) -> list[Any]:
        values: dict[torch.fx.Node, Any] = {}
        left = iter(inputs)
        results: Any = ()
        for node in program.nodes:
            if node.op == "placeholder":
                values[node] = next(left)
            elif node.op == "output":
                results = [values.get(result) for result in node.args[0]]
            elif not beyond.isdisjoint(node.all_input_nodes):
                beyond.add(node)
            else:
                args = torch.fx.node.map_arg(node.args, values.__getitem__)
                kwargs = torch.fx.node.map_arg(node.kwargs, values.__getitem__)
                try:
                    values[node] = node.target(*args, **kwargs)
                except _Beyond:
                    beyond.add(node)
        return list(results)

    placeholders = program.find_nodes(op="placeholder")
    inputs = [recorder.add_input(node.name, node.meta["val"]) for node in placeholders]
    try:
        with recorder:
            results = (layer(call_all) if layer else call_all)(*inputs)
    except NeedsLayer:
        raise
    except Exception:
        return None
    if beyond:
        raise BeyondTracing(beyond)
    return recorder.graph_of(results)


#: What is called for the device of a tensor from C++.
_DEVICE = torch.ops.prim.device.default
_METADATA = overload("aten._assert_tensor_metadata.default")


class NeedsLayer(Exception):
    """A call changes what it is given, and must be under a layer that makes a function of it."""


class BeyondTracing(Exception):
    """Some calls of a program take constants that have values, or change tensors despite a layer.

    Args:
        nodes: These calls, and what is computed from them.
    """

    def __init__(self, nodes: Set[torch.fx.Node]) -> None:
        super().__init__(f"{len(nodes)} nodes are beyond tracing")
        self.nodes = nodes


class _Beyond(Exception):
    """A call that only PyTorch's own way decomposes."""


class _Irregular(Exception):
    """A call that is not traced here."""


class _Recorder(TorchDispatchMode):
    """Writes calls down, and makes those of the operators in a table from what stands there."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]], mode: Any, *, layered: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # It stands where the mode of tensors without values would: below all layers.
        self._mode_key = part("mode_key").FAKE
        self._table = table
        self._mode = mode
        self._layered = layered
        self._graph = torch.fx.Graph()
        #: By the identity of the tensors, which the metadata of the nodes keep alive.
        self._nodes: dict[int, torch.fx.Node] = {}
        self._created: Any = WeakTensorKeyDictionary()
        self._stopped = False

    @classmethod
    def is_infra_mode(cls) -> bool:
        """See PyTorch's."""
        return True

    def add_input(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Add an input of the graph, and return its value."""
        node = self._graph.placeholder(name)
        node.meta["val"] = value
        self._nodes[id(value)] = node
        return value

    def graph_of(self, results: Sequence[Any]) -> torch.fx.Graph | None:
        """The whole graph with its results; None where something was not traced."""
        nodes = [self._node_of(result) for result in results]
        if self._stopped or None in nodes:
            return None
        self._graph.output(tuple(nodes))
        return self._graph

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is _DEVICE:
            return fake_result(self._mode, func, types, args, kwargs)
        function = self._table.get(func)
        if function is not None:
            with self:
                return function(*args, **kwargs)
        creates = not any(map(_holds_tensor, (*args, *kwargs.values())))
        if creates or not _has_kernel(func):
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        if func is _METADATA:
            # What a layer says of the dtypes that it casts from is known of tensors in a graph.
            return None
        if isinstance(func, OpOverload) and func._schema.is_mutable:
            raise _Beyond if self._layered else NeedsLayer
        if not _is_regular(func):
            raise self._stop()
        arguments, keywords = self._with_nodes(tuple(args)), self._with_nodes(dict(kwargs))
        result = fake_result(self._mode, func, types, args, kwargs)
        node = self._graph.create_node("call_function", func, arguments, keywords, name=_name(func))
        if creates:
            self._check(result)
            # PyTorch detaches what it creates where anybody else holds it.
            self._created[result] = node
            node.meta["val"] = fake_result(self._mode, func, types, args, kwargs)
        else:
            self._note(node, result)
        return result

    def _check(self, result: Any) -> None:
        if not isinstance(result, part("fake_tensor")) or result._has_symbolic_sizes_strides:
            raise self._stop()

    def _stop(self) -> _Irregular:
        self._stopped = True
        return _Irregular()

    def _node_of(self, tensor: Any) -> torch.fx.Node | None:
        if not isinstance(tensor, torch.Tensor):
            return None
        return self._nodes.get(id(tensor)) or self._created.get(tensor)

    def _note(self, node: torch.fx.Node, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            self._check(result)
            node.meta["val"] = result
            self._nodes[id(result)] = node
        elif isinstance(result, list | tuple):
            node.meta["val"] = result
            for i, element in enumerate(result):
                item = self._graph.call_function(operator.getitem, (node, i))
                if element is not None:
                    self._note(item, element)
        else:
            raise self._stop()

    def _with_nodes(self, argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            node = self._node_of(argument)
            if node is None:
                raise self._stop() if isinstance(argument, part("fake_tensor")) else _Beyond
            return node
        if isinstance(argument, list | tuple):
            return type(argument)(map(self._with_nodes, argument))
        if isinstance(argument, dict):
            return {name: self._with_nodes(value) for name, value in argument.items()}
        return argument


def _holds_tensor(argument: Any) -> bool:
    if isinstance(argument, list | tuple):
        return any(map(_holds_tensor, argument))
    return isinstance(argument, torch.Tensor)


@cache
def _has_kernel(func: Any) -> bool:
    """Whether an operator has a kernel of its own for tensors on the CPU, whatever it could be made of."""
    return not part("would_decompose")(func, [torch.empty(0)])


@cache
def _is_regular(func: Any) -> bool:
    """Whether an operator returns tensors that do not depend on values."""
    return (
        isinstance(func, OpOverload)
        and bool(func._schema.returns)
        and func not in part("fake_mode").lift_fns
        and torch.Tag.data_dependent_output not in func.tags
    )


@cache
def _name(func: OpOverload) -> str:
    return node_name(torch.fx.Graph(), func)
