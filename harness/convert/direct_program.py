"""A program of operator calls as `torch.export` captures it, built without tracing it.

A batch of operator calls is a graph that is known beforehand: an input for each tensor, a node for each
call, an output for each result. `torch.export` finds it out by running the program under several layers of
interception, about ten milliseconds a call. What has to be computed is only what each call returns for
tensors without values, which decides shapes and dtypes.

Calls that capturing rewrites, of operators with kernels in Python for example, are traced one by one. Calls
that fail or that change their inputs are left to `torch.export`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx

from harness.convert.converter import ExportRequest
from harness.convert.operator_calls import OperatorCalls
from harness.convert.torch_private import node_name, part, quiet
from harness.core import META, BoundCall, OpOverload, is_dispatched, output_tensors, python_dispatcher, pytree


@dataclass(frozen=True)
class CapturedCall:
    """One call as it will be a node of the graph.

    Attributes:
        args: By position, with a `TensorInput` for each tensor.
        kwargs: By name.
        tensors: Its tensors.
        fakes: The same without values.
        result: What it returns for these.
    """

    target: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: tuple[torch.Tensor, ...]
    fakes: tuple[Any, ...]
    result: Any

    @property
    def results(self) -> int:
        """How many tensors it returns."""
        return 1 if isinstance(self.result, torch.Tensor) else len(self.result)

    def add_to(self, graph: torch.fx.Graph, inputs: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
        """Put it into a graph; the nodes of its results are returned."""
        args, kwargs = _with_nodes(self.args, inputs), _with_nodes(dict(self.kwargs), inputs)
        name = node_name(graph, self.target)
        node = graph.create_node("call_function", self.target, args, kwargs, name=name)
        _describe(node, self.target, self.result)
        if isinstance(self.result, torch.Tensor):
            return [node]
        items = []
        for i, element in enumerate(self.result):
            item = graph.call_function(operator.getitem, (node, i))
            _describe(item, self.target, element)
            items.append(item)
        return items


@dataclass(frozen=True)
class TracedCall:
    """A call that is several nodes of the graph.

    Attributes:
        graph: Of the call alone.
        returned: The nodes of its results there.
        tensors: Its tensors.
        fakes: The same without values.
    """

    graph: torch.fx.Graph
    returned: tuple[torch.fx.Node, ...]
    tensors: tuple[torch.Tensor, ...]
    fakes: tuple[Any, ...]

    @property
    def results(self) -> int:
        """How many tensors it returns."""
        return len(self.returned)

    def add_to(self, graph: torch.fx.Graph, inputs: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
        """Put it into a graph; the nodes of its results are returned."""
        supply = iter(inputs)
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                copies[node] = next(supply)
            elif node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return [copies[node] for node in self.returned]


@dataclass(frozen=True)
class TensorInput:
    """The place of a tensor among those of the call."""

    index: int


#: In the metadata of a graph: whether it was built here, of functional calls and without constants.
_DIRECT = "harness_direct"


def is_direct(program: torch.export.ExportedProgram) -> bool:
    """Whether a program was built here, of functional calls and without constants."""
    return bool(program.graph_module.meta.get(_DIRECT))


class NotDirect(Exception):
    """Capturing the call would rewrite it, or it fails: it must be captured by `torch.export`."""


def captured_directly(request: ExportRequest) -> torch.export.ExportedProgram | None:
    """The program of a request as `torch.export` captures it; None where it must do that itself."""
    if not can_be_direct(request):
        return None
    try:
        return CapturedCalls(request).program()
    except NotDirect:
        return None


def failure_kind(request: ExportRequest) -> tuple[object, ...] | None:
    """What tells the failure of a call without values from others; None where no single call fails.

    Calls of an operator with the same arguments given, which fail in the same words but for numbers, are of
    one kind.
    """
    if not isinstance(request.program, OperatorCalls) or len(request.program.calls) != 1:
        return None
    if not can_be_direct(request):
        return None
    try:
        with quiet():
            CapturedCalls(request).capture(0)
    except NotDirect as reason:
        error = reason.__cause__
        if error is None:
            return None
        call = request.program.calls[0].call
        given = len(call.positional), tuple(name for name, _ in call.keywords)
        return str(call.target), given, type(error), re.sub(r"[\d.]+", "0", str(error))
    return None


def can_be_direct(request: ExportRequest) -> bool:
    """Whether calls of a request may be captured here: dynamic shapes are left to `torch.export`."""
    return request.dynamic_dims is None and isinstance(request.program, OperatorCalls)


class CapturedCalls:
    """Calls of a request that are captured one by one.

    Args:
        request: One that `can_be_direct`.
    """

    def __init__(self, request: ExportRequest) -> None:
        assert isinstance(request.program, OperatorCalls)
        self._mode = part("fake_mode")(
            shape_env=part("shape_environment")(), allow_non_fake_inputs=True, export=True
        )
        # Remembering what a call gives takes longer than making it, and no two are the same.
        self._mode.cache_enabled = False
        self._tensors = request.inputs
        self._calls: list[tuple[BoundCall, slice]] = []
        start = 0
        for one in request.program.calls:
            self._calls.append((one.call, slice(start, start + one.tensors)))
            start += one.tensors
        self._captured: dict[int, CapturedCall | TracedCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def capture(self, index: int) -> CapturedCall | TracedCall:
        """One of the calls; raises `NotDirect` where `torch.export` must do it."""
        if index not in self._captured:
            call, place = self._calls[index]
            tensors = self._tensors[place]
            fakes = [_without_values(tensor, self._mode) for tensor in tensors]
            try:
                self._captured[index] = _capture(call, tensors, fakes, self._mode)
            except NotDirect as reason:
                if reason.__cause__ is not None:
                    raise
                self._captured[index] = _trace(call, tensors, fakes, self._mode)
        return self._captured[index]

    def program(self, indices: Sequence[int] | None = None) -> torch.export.ExportedProgram:
        """The program of all calls, or of some: with their tensors as one variadic argument."""
        chosen = range(len(self)) if indices is None else indices
        captured = [self.capture(index) for index in chosen]
        self._mode.cache_enabled = True
        return _program(captured)


def _without_values(tensor: torch.Tensor, mode: Any) -> Any:
    if tensor.storage_offset() or tensor.is_conj() or tensor.is_neg():
        return mode.from_tensor(tensor, static_shapes=True)
    with mode:
        # A view needs no base here, which takes ten times as long to make.
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _capture(
    call: BoundCall, tensors: Sequence[torch.Tensor], fakes: Sequence[Any], mode: Any
) -> CapturedCall:
    target = call.target
    if (
        not isinstance(target, OpOverload)
        or target._schema.is_mutable
        or target.py_kernels.keys() - {META}
        # TorchScript's own operators call others.
        or not is_dispatched(str(target))
    ):
        raise NotDirect
    args, kwargs = _as_dispatched(target, *call.filled([TensorInput(i) for i in range(len(fakes))]))

    def fake(argument: Any) -> Any:
        if isinstance(argument, TensorInput):
            return fakes[argument.index]
        if isinstance(argument, list):
            return [fake(element) for element in argument]
        return argument

    try:
        with mode, torch.no_grad():
            result = target(*map(fake, args), **{name: fake(value) for name, value in kwargs.items()})
    except Exception as error:
        raise NotDirect from error
    elements = [result] if isinstance(result, torch.Tensor) else result
    if not isinstance(elements, list | tuple) or not elements or not all(map(_is_plain, elements)):
        raise NotDirect
    return CapturedCall(target, args, kwargs, tuple(tensors), tuple(fakes), result)


def _is_plain(element: Any) -> bool:
    """Whether a result is a tensor whose sizes do not depend on values."""
    return isinstance(element, torch.Tensor) and all(isinstance(size, int) for size in element.shape)


def _trace(call: BoundCall, tensors: Sequence[torch.Tensor], fakes: Sequence[Any], mode: Any) -> TracedCall:
    """A call that capturing rewrites, traced by itself as `torch.export` traces a whole program."""

    def run(*values: torch.Tensor) -> list[torch.Tensor]:
        return output_tensors(call(values))

    try:
        with mode, torch.no_grad(), python_dispatcher():
            graph = make_fx(run, pre_dispatch=True)(*fakes).graph
    except Exception as error:
        raise NotDirect from error
    (output,) = (node for node in graph.nodes if node.op == "output")
    if not all(map(is_functional, graph.nodes)) or not all(
        isinstance(result, torch.fx.Node) and _is_plain(result.meta["val"]) for result in output.args[0]
    ):
        raise NotDirect
    return TracedCall(graph, tuple(output.args[0]), tuple(tensors), tuple(fakes))


def is_functional(node: torch.fx.Node) -> bool:
    """Whether a traced node changes nothing and needs nothing but its inputs."""
    if node.op == "get_attr":
        return False
    target = node.target
    if not isinstance(target, OpOverload):
        return node.op != "call_function" or target is operator.getitem
    return not target._schema.is_mutable and bool(target._schema.returns)


def _as_dispatched(
    target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as PyTorch's dispatcher shows them to what intercepts a call.

    It converts them to the types of the schema, passes by position what may be, and leaves out what equals
    its default: of positional arguments the last ones only.
    """
    positional: list[Any] = []
    defaults: list[bool] = []
    keywords: dict[str, Any] = {}
    parameters: Sequence[Any] = target._schema.arguments
    for i, parameter in enumerate(parameters):
        given = i < len(args) or parameter.name in kwargs
        value = parameter.default_value
        if given:
            value = _convert(
                args[i] if i < len(args) else kwargs[parameter.name], parameter.real_type, parameter.N
            )
        elif not parameter.has_default_value():
            raise NotDirect
        is_default = not given or (
            parameter.has_default_value() and _same(value, parameter.default_value, parameter.real_type)
        )
        if not parameter.kwarg_only:
            positional.append(value)
            defaults.append(is_default)
        elif not is_default:
            keywords[parameter.name] = value
    while defaults and defaults[-1]:
        positional.pop()
        defaults.pop()
    for i, parameter in enumerate(parameters[: len(positional)]):
        if defaults[i]:
            positional[i] = _convert(positional[i], parameter.real_type, parameter.N)
    return tuple(positional), keywords


def _convert(value: Any, kind: Any, size: int | None = None) -> Any:
    """A value as the dispatcher holds it for a parameter of a type."""
    if value is None or isinstance(value, TensorInput):
        return value
    name = kind.kind()
    if name == "OptionalType":
        return _convert(value, kind.getElementType(), size)
    if name == "ListType":
        element = kind.getElementType()
        if not isinstance(value, list | tuple):
            if size is None:
                raise NotDirect
            value = [value] * size
        return [_convert(one, element) for one in value]
    if name in ("IntType", "SymIntType"):
        return int(value)
    if name == "FloatType":
        return float(value)
    if name == "BoolType":
        return bool(value)
    if name == "DeviceObjType":
        return torch.device(value)
    if isinstance(value, int) and not isinstance(value, bool) and name in _ENUMERATIONS:
        # A default is shown as the number that stands for it.
        raise NotDirect
    return value


_ENUMERATIONS = {"ScalarTypeType", "LayoutType", "MemoryFormatType"}


def _same(value: Any, default: Any, kind: Any) -> bool:
    """Whether the dispatcher takes a converted value for the default."""
    if value is None or default is None:
        return value is default
    default = _convert(default, kind, len(value) if isinstance(value, list) else None)
    if isinstance(value, list):
        return (
            isinstance(default, list)
            and len(value) == len(default)
            and all(type(a) is type(b) and a == b for a, b in zip(value, default, strict=True))
        )
    return type(value) is type(default) and bool(value == default)


def _program(captured: Sequence[CapturedCall | TracedCall]) -> torch.export.ExportedProgram:
    graph = torch.fx.Graph()
    inputs: list[torch.fx.Node] = []
    places = []
    for call in captured:
        nodes = [graph.placeholder(f"tensors_{len(inputs) + i}") for i in range(len(call.fakes))]
        for node, value in zip(nodes, call.fakes, strict=True):
            node.meta["val"] = value
        places.append(nodes)
        inputs += nodes
    outputs: list[torch.fx.Node] = []
    for call, nodes in zip(captured, places, strict=True):
        outputs += call.add_to(graph, nodes)
    graph.output(tuple(outputs))
    user = InputKind.USER_INPUT
    return assemble_program(
        graph,
        [InputSpec(user, TensorArgument(node.name), None) for node in inputs],
        outputs,
        [tensor for call in captured for tensor in call.tensors],
        {},
    )


def _with_nodes(argument: Any, inputs: Sequence[torch.fx.Node]) -> Any:
    if isinstance(argument, TensorInput):
        return inputs[argument.index]
    if isinstance(argument, list | tuple):
        return type(argument)(_with_nodes(element, inputs) for element in argument)
    if isinstance(argument, dict):
        return {name: _with_nodes(value, inputs) for name, value in argument.items()}
    return argument


def _describe(node: torch.fx.Node, target: Any, value: Any) -> None:
    node.meta["val"] = value
    node.meta["nn_module_stack"] = {"L__self__": ("", "harness.convert.OperatorCalls")}
    node.meta["torch_fn"] = (f"{target.__name__}_1", f"{type(target).__name__}.{target.__name__}")


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
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    module.meta["inline_constraints"] = {}
    module.meta[_DIRECT] = not constants
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
    return torch.export.ExportedProgram(
        root=module,
        graph=graph,
        graph_signature=signature,
        state_dict={},
        range_constraints={},
        module_call_graph=[call],
        example_inputs=(tuple(tensors), {}),
        constants=dict(constants),
        verifiers=[part("training_verifier")],
    )
