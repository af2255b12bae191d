"""Trace programs without PyTorch's tracer, and find the results of calls for tensors without values.

`make_fx` can trace anything, and asks at each call about constants, symbols, objects and other tracers. Most calls
of a decomposition take tensors of known sizes and change none of them: such a call is a node and its result. This
module traces only those.

To find a result, PyTorch looks at each call for constants, symbols, tensors of other kinds and rules of its own, or
for the same call in a cache, which takes longer than the result itself. A call whose tensors are all without values,
on the CPU and of known sizes takes the final dispatch path directly.

One call of a pointwise operator gives the results of all calls of its kind: the shape to which its tensors are
broadcast, in row-major order if theirs is. The dtype depends on the dtypes, on the numbers, and on which tensors have
dimensions. PyTorch takes up to some milliseconds a call to find it, since many operators do so in Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from harness.convert.torch_private import node_name, part, replaceable
from harness.core.tensors import overload
from harness.core.torch_operators import OpOverload, TorchDispatchMode, is_composite, pytree

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class _FakeParts:
    """PyTorch's private functions for tensors without values, see `harness.convert.torch_private.PARTS`."""

    dispatch: Callable[..., Any]
    tensor: type[Any]
    in_kernel: Callable[[Any], Any]
    rules: Mapping[Any, Callable[..., Any]]


@cache
def _parts() -> _FakeParts:
    return _FakeParts(replaceable("fake_dispatch").original, part("fake_tensor"), part("in_kernel"), part("fake_rules"))


@contextmanager
def quick_fakes() -> Iterator[None]:
    """Let `fake_result` find the results of operators for tensors without values in this block."""
    with replaceable("fake_dispatch").replaced_by(fake_result):
        yield


def fake_result(
    mode: Any,
    func: Any,
    types: Sequence[type],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Replace the method of PyTorch's mode that every call goes through."""
    kwargs = kwargs or {}
    parts = _parts()
    by_decomposition = _result_function(func)
    described = None if by_decomposition is None else _described(mode, parts.tensor, args, kwargs)
    if described is None:
        return parts.dispatch(mode, func, types, args, kwargs)
    device = kwargs.get("device") or _CPU
    call = (func, *described)
    form = _forms.get(call)
    alike = calls_alike(func, args, kwargs) if form is None and is_pointwise(func) else None
    if alike is not None:
        form = alike.known()
    if form is not None:
        with parts.in_kernel(mode):
            result = torch.empty_strided(form[0], form[1], dtype=form[2], device="meta")
        return parts.tensor(mode, result, device)
    if by_decomposition:
        with mode:
            result = by_decomposition(*args, **kwargs)
        if type(result) is parts.tensor and _is_new(result, args, kwargs):
            _remember(call, alike, result)
        return result
    rule = parts.rules.get(func)
    if rule is not None:
        result = rule(mode, func, *args, **kwargs)
        if result is not NotImplemented:
            return result
    try:
        with parts.in_kernel(mode):
            result = func(*args, **kwargs)
    except NotImplementedError:
        return parts.dispatch(mode, func, types, args, kwargs)
    if type(result) is not torch.Tensor:
        values = pytree.tree_leaves((args, kwargs))
        return mode.wrap_meta_outputs_with_default_device_logic(result, func, values, device=kwargs.get("device"))
    _remember(call, alike, result)
    return mode.fake_tensor_converter.from_meta_and_device(mode, result, device)


def _is_new(result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function in Python has made a tensor of known sizes on the CPU, and has not handed on
    another."""
    return (
        not result._is_view()
        and result.constant is None
        and result.fake_device == _CPU
        and not result._has_symbolic_sizes_strides
        and all(result is not value for value in pytree.tree_leaves((args, kwargs)))
    )


def _remember(call: tuple[Any, ...], alike: CallsAlike | None, result: torch.Tensor) -> None:
    """Remember the result of a call, if that is a tensor with memory of its own."""
    if _is_fresh(call[0]) and not (result.is_conj() or result.is_neg() or result.storage_offset()):
        if len(_forms) >= _MOST_FORMS:
            _forms.clear()
        _forms[call] = form = tuple(result.shape), result.stride(), result.dtype
        if alike is not None:
            alike.learn(form)


#: Call, with descriptions in place of tensors → its result.
_forms: dict[tuple[Any, ...], Form] = {}
#: So many take some ten megabytes.
_MOST_FORMS = 20_000


def _described(mode: Any, kind: type[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return arguments with descriptions in place of tensors, as a key for calls with the same result.

    None unless at least one argument is a tensor, and all of them are without values, on the CPU and of known
    sizes.
    """
    described: list[Any] = [len(args), *kwargs]
    found = False
    for argument in (*args, *kwargs.values()):
        several = isinstance(argument, list | tuple)
        if several:
            described.append(len(argument))
        for value in argument if several else (argument,):
            if isinstance(value, torch.Tensor):
                if (
                    not isinstance(value, kind)
                    or value.fake_mode is not mode
                    or value.constant is not None
                    or value.fake_device != _CPU
                    or value._has_symbolic_sizes_strides
                ):
                    return None
                found = True
                described += (value.dtype, value.shape, value.stride(), value.is_conj(), value.is_neg())
            elif isinstance(value, _DESCRIBED):
                # One equals 1.0 and True.
                described += (type(value), value)
            else:
                return None
    return tuple(described) if found else None


_DESCRIBED = (
    *(int, float, complex, str, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


@cache
def _is_fresh(func: OpOverload) -> bool:
    """Whether an operator returns a tensor with memory of its own."""
    return all(returned.alias_info is None for returned in func._schema.returns)


@cache
def _result_function(func: Any) -> Any:
    """Return the function with which PyTorch finds an operator's result, False for its kernel; None if more than the
    operator and its tensors decides that."""
    if (
        not isinstance(func, OpOverload)
        or func.namespace not in ("aten", "prims")
        or func._schema.is_mutable
        or func in part("fake_mode").lift_fns
        or any(check(func) for check, _ in part("fake_checks")[1:])
    ):
        return None
    table = part("python_decompositions")
    if func not in part("meta_table") and not part("fake_mode").cpp_meta_supports_symint(part("fake_mode"), func):
        if func in table and part("is_torch_decomposition")(func):
            return table[func]
        if is_composite(func):
            return None
    if func.namespace == "prims":
        return func.prim_meta_impl if hasattr(func, "prim_meta_impl") else None
    try:
        return False if part("has_meta")(func) else None
    except RuntimeError:
        # The dispatcher lacks TorchScript's own operators, such as `aten::size`.
        return None


#: Shape, strides and dtype of a new tensor.
Form: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

#: Operators that change dtypes alone, and are not tagged as pointwise.
_CASTS = frozenset(("aten._to_copy.default", "prims.convert_element_type.default"))
#: The operators of which numbers decide by their types alone, whatever they are.
_BY_TYPE = frozenset(
    f"aten::{name}"
    for name in (
        *("add", "sub", "rsub", "mul", "clamp", "clamp_min", "clamp_max"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
    )
)
#: Call, with descriptions in place of tensors → dtype of its result.
_dtypes: dict[tuple[Any, ...], torch.dtype] = {}
#: So many take some ten megabytes.
_MOST_DTYPES = 20_000


@dataclass(frozen=True)
class CallsAlike:
    """A call of a pointwise operator, and all others that differ from it in the sizes of their tensors alone.

    Attributes:
        kind: Everything they share; each size counts as 0, 1 or more.
        shape: The shape to which the tensors of this call are broadcast.
    """

    kind: tuple[Any, ...]
    shape: tuple[int, ...]

    def known(self) -> Form | None:
        """Return the form of the call's result if another call of its kind is known."""
        dtype = _dtypes.get(self.kind)
        return None if dtype is None else (self.shape, _row_by_row(self.shape), dtype)

    def learn(self, form: Form) -> None:
        """Remember the form of the call's result, if it is one that a pointwise operator should give."""
        if form[:2] == (self.shape, _row_by_row(self.shape)):
            if len(_dtypes) >= _MOST_DTYPES:
                _dtypes.clear()
            _dtypes[self.kind] = form[2]


@cache
def is_pointwise(func: OpOverload) -> bool:
    """Whether each element of an operator's result depends only on the elements in the same place."""
    return torch.Tag.pointwise in func.tags or str(func) in _CASTS


@cache
def _decides_by_type(func: OpOverload) -> bool:
    return func._schema.name in _BY_TYPE


def calls_alike(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallsAlike | None:
    """Return the kind of a pointwise call; None if its tensors cannot be broadcast or lie in another order, or if
    its result depends on more than tensors and numbers."""
    kind: list[Any] = [func, len(args), *kwargs]
    plain = (bool, int, float, complex) if _decides_by_type(func) else ()
    shapes: list[tuple[int, ...]] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            shape = tuple(value.shape)
            if value.stride() != _row_by_row(shape):
                return None
            shapes.append(shape)
            sizes = tuple(min(size, 2) for size in shape)
            kind.append((value.dtype, sizes, value.is_conj(), value.is_neg()))
        elif type(value) in plain:
            kind.append(type(value))
        elif value is None or isinstance(value, int | float | complex | str | torch.dtype):
            # One equals 1.0 and True.
            kind.append((type(value), value))
        else:
            return None
    whole = _broadcast(shapes)
    return None if whole is None else CallsAlike(tuple(kind), whole)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape to which some shapes are broadcast; None if they cannot be."""
    result = [1] * max(map(len, shapes))
    for shape in shapes:
        for place, size in enumerate(shape, len(result) - len(shape)):
            if size != 1:
                if result[place] not in (1, size):
                    return None
                result[place] = size
    return tuple(result)


@lru_cache(10_000)
def _row_by_row(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor in row-major order."""
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def traced_quickly(
    program: torch.fx.Graph,
    table: Mapping[Any, Callable[..., Any]],
    mode: Any,
    layer: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> torch.fx.Graph | None:
    """Trace the calls that a program's calls are made of, as `make_fx` does.

    Args:
        program: Functional calls whose inputs have tensors of `mode` in their metadata.
        table: Operator → function to call in its place.
        mode: The mode of tensors without values. It must not be active.
        layer: Wraps a function so that it runs under a layer of interception.

    Returns:
        The graph; None if only `make_fx` can find it, or the call that fails.

    Raises:
        NeedsLayer: a call changes its inputs.
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


#: Called from C++ to query a tensor's device.
_DEVICE = torch.ops.prim.device.default
_METADATA = overload("aten._assert_tensor_metadata.default")


class NeedsLayer(Exception):
    """A call changes its inputs, and must run under a layer that makes a function of it."""


class BeyondTracing(Exception):
    """Some calls of a program take constants that have values, or change tensors despite a layer.

    Args:
        nodes: These calls, and all nodes computed from them.
    """

    def __init__(self, nodes: Set[torch.fx.Node]) -> None:
        super().__init__(f"{len(nodes)} nodes are beyond tracing")
        self.nodes = nodes


class _Beyond(Exception):
    """A call that only PyTorch's own way decomposes."""


class _Irregular(Exception):
    """A call that is not traced here."""


class _Recorder(TorchDispatchMode):
    """Records calls, and replaces those of the operators in a table by calls of the functions there."""

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
        """Return the whole graph with its results; None if a call was not traced."""
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
            # A layer's statements about the dtypes that it casts from hold for tensors in a graph anyway.
            return None
        if isinstance(func, OpOverload) and func._schema.is_mutable:
            raise _Beyond if self._layered else NeedsLayer
        if not _is_regular(func):
            raise self._stop()
        arguments, keywords = self._substitute_nodes(tuple(args)), self._substitute_nodes(dict(kwargs))
        result = fake_result(self._mode, func, types, args, kwargs)
        node = self._graph.create_node("call_function", func, arguments, keywords, name=_name(func))
        if creates:
            self._check(result)
            # PyTorch detaches a tensor that it creates if there are other references to it.
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

    def _substitute_nodes(self, argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            node = self._node_of(argument)
            if node is None:
                raise self._stop() if isinstance(argument, part("fake_tensor")) else _Beyond
            return node
        if isinstance(argument, list | tuple):
            return type(argument)(map(self._substitute_nodes, argument))
        if isinstance(argument, dict):
            return {name: self._substitute_nodes(value) for name, value in argument.items()}
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
