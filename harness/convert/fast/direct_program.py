"""Build the program that `torch.export` captures from a batch of operator calls, without tracing it.

The graph of such a batch is known beforehand: an input for each tensor, a node for each call, an output for each
result. `torch.export` finds it out by running the program under several layers of interception, about ten
milliseconds a call. Only the results of each call for tensors without values have to be computed; they decide shapes
and dtypes. The arguments of a call take the form in which PyTorch's dispatcher shows them to interceptors.

Calls that capturing rewrites, such as those of TorchScript's own operators, are traced one by one. If values decide
the size of a result, a symbol stands for that size, as in `torch.export`. That function also records constraints on
the symbol, which no converter translates. Calls that fail or that change their inputs are left to `torch.export`.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
from harness.convert.fast.passes import compiled_when_run, modules_not_traced
from harness.convert.fast.tracing import quick_fakes
from harness.convert.operator_calls import OperatorCalls
from harness.convert.torch_private import node_name, part, quiet
from harness.core.control_flow import is_flow_operator
from harness.core.tensors import BoundCall, output_tensors
from harness.core.torch_operators import META, OpOverload, is_dispatched, python_dispatcher, pytree


class NotDirect(Exception):
    """Capturing the call would rewrite it, or it fails: it must be captured by `torch.export`."""


class ValuesDecide(NotDirect):
    """The values of the tensors decide the result of the call, or its size."""


@dataclass(frozen=True)
class TensorInput:
    """The place of a tensor among those of the call."""

    index: int


def dispatch_arguments(
    target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments as PyTorch's dispatcher shows them to interceptors of a call.

    It converts them to the types of the schema, passes by position all that it can, and leaves out arguments that equal
    their default: among positional arguments only the last ones.
    """
    positional: list[Any] = []
    defaults: list[bool] = []
    keywords: dict[str, Any] = {}
    parameters: Sequence[Any] = target._schema.arguments
    for i, parameter in enumerate(parameters):
        given = i < len(args) or parameter.name in kwargs
        value = parameter.default_value
        if given:
            value = _convert(args[i] if i < len(args) else kwargs[parameter.name], parameter.real_type, parameter.N)
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
    """Convert a value as the dispatcher does for a parameter of a type."""
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
    """Return an exported program of a graph, as `torch.export` would hold it.

    Args:
        graph: The complete graph.
        inputs: The kind of each of its placeholders.
        outputs: The nodes that it returns.
        tensors: Its arguments, as one variadic argument: a tensor for each user's input.
        constants: The constants that inputs stand for.
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
    """Return some nodes of a graph, and all nodes that they are computed from."""
    found: set[torch.fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def returned(graph: torch.fx.Graph) -> Sequence[torch.fx.Node]:
    """Return the nodes whose values a graph returns."""
    (output,) = graph.find_nodes(op="output")
    found: Sequence[torch.fx.Node] = output.args[0]
    return found


@dataclass(frozen=True)
class DirectCall:
    """One call as it will be a node of the graph.

    Attributes:
        args: Positional arguments, with a `TensorInput` for each tensor.
        kwargs: Keyword arguments.
        tensors: Its tensors.
        fakes: The same tensors without values.
        result: The result for the tensors without values.
        sized_by_values: Whether values decide the result's size.
    """

    target: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: tuple[torch.Tensor, ...]
    fakes: tuple[Any, ...]
    result: Any
    sized_by_values: bool = False

    @property
    def results(self) -> int:
        """Return the number of tensors that the call returns."""
        return 1 if isinstance(self.result, torch.Tensor) else len(self.result)

    def add_to(self, graph: torch.fx.Graph, inputs: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
        """Put it into a graph; the nodes of its results are returned."""
        args, kwargs = _substitute_nodes(self.args, inputs), _substitute_nodes(dict(self.kwargs), inputs)
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
        inputs: The nodes of its tensors in the graph that was traced.
        nodes: The nodes of the call, in order.
        returned: The nodes of its results.
        tensors: Its tensors.
        fakes: The same tensors without values.
    """

    inputs: tuple[torch.fx.Node, ...]
    nodes: tuple[torch.fx.Node, ...]
    returned: tuple[torch.fx.Node, ...]
    tensors: tuple[torch.Tensor, ...]
    fakes: tuple[Any, ...]

    @property
    def sized_by_values(self) -> bool:
        """Never: such calls are not traced."""
        return False

    @property
    def results(self) -> int:
        """Return the number of tensors that the call returns."""
        return len(self.returned)

    def add_to(self, graph: torch.fx.Graph, inputs: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
        """Put it into a graph; the nodes of its results are returned."""
        copies = dict(zip(self.inputs, inputs, strict=True))
        for node in self.nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        return [copies[node] for node in self.returned]


#: A call, its tensors, and the same without values.
_Parts: TypeAlias = "tuple[BoundCall, Sequence[torch.Tensor], Sequence[Any]]"


def captured_directly(calls: CapturedCalls) -> torch.export.ExportedProgram | None:
    """Return the program of some calls as `torch.export` captures it; None if `torch.export` must do that itself."""
    try:
        return calls.program()
    except NotDirect:
        return None


def failing_call(calls: CapturedCalls) -> tuple[BoundCall, BaseException] | None:
    """Return a single call and its error without values; None if there are several calls or it does not fail."""
    if len(calls) != 1:
        return None
    with quiet():
        error = calls.failure()
    return (calls.call(0), error) if error is not None else None


#: Operators that capturing wraps constants in. Decomposing replaces them although no table names them.
LIFTS = frozenset(("aten.lift.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default"))


def can_be_direct(request: ExportRequest) -> bool:
    """Whether calls of a request may be captured here: dynamic shapes, functions as arguments, buffers and the
    operators that capturing itself uses are left to `torch.export`."""
    if request.dynamic_dims is not None or not isinstance(request.program, OperatorCalls):
        return False
    if request.program.has_buffers:
        return False
    return not any(is_flow_operator(name) or name in LIFTS for name in request.program.overloads)


class CapturedCalls:
    """Calls of a request that are captured one by one.

    Args:
        request: One that `can_be_direct`.
    """

    def __init__(self, request: ExportRequest) -> None:
        assert isinstance(request.program, OperatorCalls)
        # A kernel that reads values fails, as it does in `torch.export`.
        with part("capture_settings")(fake_tensor_allow_unsafe_data_ptr_access=False):
            self._mode = part("fake_mode")(
                shape_env=part("shape_environment")(), allow_non_fake_inputs=True, export=True
            )
        # Remembering the results of a call takes longer than making it, and no two calls are the same.
        self._mode.cache_enabled = False
        self._tensors = request.inputs
        self._calls: list[tuple[BoundCall, slice]] = []
        start = 0
        for one in request.program.calls:
            self._calls.append((one.call, slice(start, start + one.tensors)))
            start += one.tensors
        self._captured: dict[int, DirectCall | TracedCall] = {}
        #: Why others are not.
        self._reasons: dict[int, NotDirect] = {}
        #: The results of some of the calls with some decompositions, and the operator that each result lacks.
        self.decomposed: dict[tuple[Hashable, tuple[int, ...]], tuple[Any, Sequence[str]]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def is_sized_by_values(self) -> bool:
        """Whether a call that has been captured has sizes that values decide."""
        decide = any(isinstance(reason, ValuesDecide) for reason in self._reasons.values())
        return decide or any(call.sized_by_values for call in self._captured.values())

    def capture(self, index: int) -> DirectCall | TracedCall:
        """Capture one of the calls; raises `NotDirect` if only `torch.export` can."""
        if index in self._reasons:
            raise self._reasons[index]
        if index not in self._captured:
            try:
                self._captured[index] = self._newly_captured(index)
            except NotDirect as reason:
                self._reasons[index] = reason
                raise
        return self._captured[index]

    def _newly_captured(self, index: int) -> DirectCall | TracedCall:
        call, tensors, fakes = self._parts_of(index)
        try:
            return _capture(call, tensors, fakes, self._mode)
        except NotDirect as reason:
            if reason.__cause__ is not None or isinstance(reason, ValuesDecide):
                raise
            return _trace([(call, tensors, fakes)], self._mode)[0]

    def trace(self, indices: Sequence[int]) -> None:
        """Trace calls that capturing rewrites together, which costs less than one by one.

        If that fails nothing is traced; `capture` finds out which of them fails.
        """
        with contextlib.suppress(NotDirect):
            traced = _trace([self._parts_of(index) for index in indices], self._mode)
            self._captured.update(zip(indices, traced, strict=True))

    def failure(self) -> BaseException | None:
        """Return the error of the first call that fails by itself, or of all calls whose results values decide."""
        deciding = []
        for index in range(len(self)):
            try:
                self.capture(index)
            except ValuesDecide:
                deciding.append(index)
            except NotDirect as reason:
                if reason.__cause__ is not None:
                    return reason.__cause__
        return self.values_fail(deciding)

    def values_fail(self, indices: Sequence[int]) -> BaseException | None:
        """Return the error of tracing calls whose results depend on values; None if tracing succeeds."""
        try:
            if indices:
                _trace([self._parts_of(index) for index in indices], self._mode)
        except NotDirect as reason:
            return reason.__cause__
        return None

    def call(self, index: int) -> BoundCall:
        """Return one of the calls as it was requested."""
        return self._calls[index][0]

    def is_rewritten(self, index: int) -> bool:
        """Whether capturing rewrites one of the calls, as far as its operator tells."""
        return _is_rewritten(self.call(index).target)

    def _parts_of(self, index: int) -> _Parts:
        call, place = self._calls[index]
        tensors = self._tensors[place]
        return call, tensors, [_make_fake(tensor, self._mode) for tensor in tensors]

    def program(self, indices: Sequence[int] | None = None) -> torch.export.ExportedProgram:
        """Return the program of all calls, or of some: with their tensors as one variadic argument."""
        chosen = range(len(self)) if indices is None else indices
        captured = [self.capture(index) for index in chosen]
        self._mode.cache_enabled = True
        return _program(captured)


def _make_fake(tensor: torch.Tensor, mode: Any) -> Any:
    if tensor.is_conj() or tensor.is_neg():
        return mode.from_tensor(tensor, static_shapes=True)
    # A view needs no base here, which takes ten times as long to make.
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    if tensor.storage_offset():
        empty = empty.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return part("fake_tensor")(mode, empty, tensor.device)


def _is_rewritten(target: Any) -> bool:
    return (
        not isinstance(target, OpOverload)
        or target._schema.is_mutable
        # TorchScript's own operators call others.
        or not is_dispatched(str(target))
    )


def _calls_python(target: OpOverload) -> bool:
    """Whether an operator has kernels in Python, which tracing calls though it writes down the operator."""
    return bool(target.py_kernels.keys() - {META})


def _capture(call: BoundCall, tensors: Sequence[torch.Tensor], fakes: Sequence[Any], mode: Any) -> DirectCall:
    target = call.target
    if _is_rewritten(target):
        raise NotDirect
    assert isinstance(target, OpOverload)
    args, kwargs = dispatch_arguments(target, *call.filled([TensorInput(i) for i in range(len(fakes))]))

    def fake(argument: Any) -> Any:
        if isinstance(argument, TensorInput):
            return fakes[argument.index]
        if isinstance(argument, list):
            return [fake(element) for element in argument]
        return argument

    try:
        kernels = python_dispatcher() if _calls_python(target) else contextlib.nullcontext()
        with mode, torch.no_grad(), quick_fakes(), kernels:
            result = target(*map(fake, args), **{name: fake(value) for name, value in kwargs.items()})
    except Exception as error:
        raise NotDirect from error
    elements = [result] if isinstance(result, torch.Tensor) else result
    if _calls_python(target) and mode.shape_env.pending_fresh_unbacked_symbols:
        # A kernel in Python that asks for values may end tracing, whatever it returns.
        mode.shape_env.pending_fresh_unbacked_symbols.clear()
        raise NotDirect
    sized = any(map(_holds_symbol, pytree.tree_leaves(result)))
    if sized:
        _bind_symbols(result, mode)
    if not isinstance(elements, list | tuple) or not elements or not all(map(_is_tensor, elements)):
        raise ValuesDecide if sized else NotDirect
    return DirectCall(target, args, kwargs, tuple(tensors), tuple(fakes), result, sized_by_values=sized)


def _bind_symbols(result: Any, mode: Any) -> None:
    """See that a result holds all new symbols, which PyTorch asks for at the next call at the latest."""
    try:
        part("symbol_bindings")(mode.shape_env, result)
    except Exception as error:
        raise NotDirect from error


def _is_tensor(element: Any) -> bool:
    return isinstance(element, torch.Tensor)


def _is_plain(element: Any) -> bool:
    """Whether a result is a tensor whose sizes do not depend on values."""
    return isinstance(element, torch.Tensor) and not _holds_symbol(element)


def _holds_symbol(element: Any) -> bool:
    """Whether a result, or one of its sizes, depends on values."""
    if isinstance(element, torch.Tensor):
        return not all(isinstance(size, int) for size in element.shape)
    return isinstance(element, torch.SymInt | torch.SymFloat | torch.SymBool)


def _trace(calls: Sequence[_Parts], mode: Any) -> list[TracedCall]:
    """Trace calls that capturing rewrites as `torch.export` does."""
    counts: list[int] = []

    def run(*values: torch.Tensor) -> list[torch.Tensor]:
        counts.clear()
        results: list[torch.Tensor] = []
        start = 0
        for call, tensors, _ in calls:
            returned = output_tensors(call(values[start : start + len(tensors)]))
            counts.append(len(returned))
            results += returned
            start += len(tensors)
        return results

    try:
        with mode, torch.no_grad(), quick_fakes(), python_dispatcher(), modules_not_traced():
            graph = make_fx(run, pre_dispatch=True)(*(fake for _, _, fakes in calls for fake in fakes)).graph
    except Exception as error:
        raise NotDirect from error
    nodes = list(graph.nodes)
    returned = nodes[-1].args[0]
    if not all(map(is_functional, nodes)) or not all(
        isinstance(result, torch.fx.Node) and _is_plain(result.meta["val"]) for result in returned
    ):
        raise NotDirect
    inputs = iter([node for node in nodes if node.op == "placeholder"])
    results = iter(returned)
    found = []
    for (_, tensors, fakes), count in zip(calls, counts, strict=True):
        own = list(itertools.islice(inputs, len(fakes)))
        ends = list(itertools.islice(results, count))
        needed = ancestors(ends)
        inner = [node for node in nodes if node in needed and node.op == "call_function"]
        found.append(TracedCall(tuple(own), tuple(inner), tuple(ends), tuple(tensors), tuple(fakes)))
    return found


def _program(captured: Sequence[DirectCall | TracedCall]) -> torch.export.ExportedProgram:
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


def _substitute_nodes(argument: Any, inputs: Sequence[torch.fx.Node]) -> Any:
    if isinstance(argument, TensorInput):
        return inputs[argument.index]
    if isinstance(argument, list | tuple):
        return type(argument)(_substitute_nodes(element, inputs) for element in argument)
    if isinstance(argument, dict):
        return {name: _substitute_nodes(value, inputs) for name, value in argument.items()}
    return argument


def _describe(node: torch.fx.Node, target: Any, value: Any) -> None:
    node.meta["val"] = value
    node.meta["nn_module_stack"] = {"L__self__": ("", "harness.convert.operator_calls.OperatorCalls")}
    node.meta["torch_fn"] = (f"{target.__name__}_1", f"{type(target).__name__}.{target.__name__}")
