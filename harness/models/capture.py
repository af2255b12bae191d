"""Capture the ATen calls of a model's forward pass as invocations, each kind once, with how often it is made."""

from __future__ import annotations

import contextlib
import io
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.convert.torch_private import quiet
from harness.core.described_tensor import describe_tensor
from harness.core.dtypes import INT_RANGE
from harness.core.invocation import Argument, Invocation, Recipe, TensorSpec
from harness.core.overloads import NAMESPACES
from harness.core.text import first_line
from harness.core.torch_operators import HigherOrderOperator, OpOverload, TorchDispatchMode, pytree
from harness.pipeline.captured_calls import CannotKeep, invocation_of, module_path
from harness.pipeline.model_loading import LoadedModel, ModelProblem


@dataclass
class CapturedCall:
    """One kind of call.

    Attributes:
        invocation: The first call of its kind.
        calls: Number of such calls in the model.
        places: Paths of the first few modules that make it; "" for the model itself.
    """

    invocation: Invocation
    calls: int = 0
    places: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Capture:
    """The calls of a model.

    Attributes:
        model: The model's name.
        calls: Kinds of call in the order of their first occurrence. Calls that differ only in the numbers of large
            tensors are of one kind.
        left_out: Why calls could not be captured → their number.
        eager: Whether they are the calls of eager mode, because `torch.export` fails.
        foreign: Operators of other libraries that it calls.
        obstacle: What of the model `torch.export` cannot capture, `BRANCH` or `CAUSAL_MASK`; "" if it can, or for
            another reason.
    """

    model: str
    calls: tuple[CapturedCall, ...]
    left_out: Mapping[str, int]
    eager: bool = False
    foreign: tuple[str, ...] = ()
    obstacle: str = ""

    @property
    def total(self) -> int:
        """The number of captured calls."""
        return sum(call.calls for call in self.calls)


#: Storage elements up to which a call keeps its exact values: for integers and bools, whose values mean more, and for
#: other dtypes.
_RUN_EXACTLY, _RUN_EXACTLY_FLOATING = 1 << 18, 1 << 14


def _describe_exactly(tensor: torch.Tensor, place: str) -> TensorSpec:
    floating = tensor.is_floating_point() or tensor.is_complex()
    return describe_tensor(tensor, place, exact=_RUN_EXACTLY_FLOATING if floating else _RUN_EXACTLY)


def capture_calls(model: LoadedModel, *, exact: bool = False) -> Capture:
    """Capture the calls that exporters see in a model: those of the program that `torch.export` captures.

    There a composite operator, such as `linear`, is one call. What only eager mode calls does not occur: the parts of a
    composite, and fused kernels such as attention's. The branches of `torch.cond` and of other operators that take
    functions are left out and counted. If the model cannot be captured, its calls in eager mode are recorded.

    Args:
        model: The model.
        exact: Keep the values of all but large tensors, so that failures that depend on them are reproduced; otherwise
            keep a short recipe for similar values.

    Raises:
        ModelProblem: The model can be neither captured nor run.
    """
    notes = _Notes(_describe_exactly if exact else describe_tensor)
    try:
        module, inputs = captured_program(model)
    except Exception as error:
        notes.left_out[f"torch.export fails ({first_line(error)}): these are the calls of eager mode"] += 1
        _record_eager(model, notes)
        return Capture(
            model.name,
            tuple(notes.calls.values()),
            dict(notes.left_out),
            eager=True,
            foreign=tuple(notes.foreign),
            obstacle=_obstacle(error),
        )
    with torch.no_grad():
        _Interpreted(module, notes).run(*inputs, enable_io_processing=False)
    return Capture(model.name, tuple(notes.calls.values()), dict(notes.left_out), foreign=tuple(notes.foreign))


#: A branch on the values of a tensor, and PyTorch's own such branch: on whether a mask is a causal one.
BRANCH, CAUSAL_MASK = "branch", "causal-mask"
#: The function of `torch.nn.modules.transformer` that compares a mask with a causal one.
_COMPARES_MASK = "_detect_is_causal_mask"
#: PyTorch's exception for a branch on data.
_BRANCHES_ON_DATA = "GuardOnDataDependentSymNode"


def _obstacle(error: Exception) -> str:
    """Return what a failing `torch.export` trips over, as far as there is a remedy for it."""
    frames: set[str] = set()
    cause: BaseException | None = error
    while cause is not None:
        frames |= {frame.name for frame in traceback.extract_tb(cause.__traceback__)}
        if type(cause).__name__ == _BRANCHES_ON_DATA:
            return CAUSAL_MASK if _COMPARES_MASK in frames else BRANCH
        cause = cause.__cause__ or cause.__context__
    return ""


@dataclass(frozen=True)
class ResizedCalls:
    """The calls of a model at other sizes, compared with those at the example's sizes.

    Attributes:
        pairs: Pairs of a call at the other sizes and the same call at the example's, if only sizes of tensors differ.
        computed: Overload, argument, and its values at the example's and at the other sizes, if they depend on sizes.
    """

    pairs: tuple[tuple[Invocation, Invocation], ...] = ()
    computed: tuple[tuple[str, str, str, str], ...] = ()


def resized_calls(model: LoadedModel, other_inputs: tuple[torch.Tensor, ...]) -> ResizedCalls:
    """Return the calls that differ from the example's; empty if the model makes other calls or cannot be captured."""
    sequences = []
    for inputs in (model.inputs, other_inputs):
        notes = _Notes()
        try:
            module, arguments = captured_program(replace(model, inputs=inputs))
            with torch.no_grad():
                _Interpreted(module, notes).run(*arguments, enable_io_processing=False)
        except Exception:
            return ResizedCalls()
        sequences.append(notes.sequence)
    example, other = sequences
    if len(example) != len(other):
        return ResizedCalls()
    pairs: dict[tuple[str, str], tuple[Invocation, Invocation]] = {}
    computed: dict[tuple[str, str, str, str], None] = {}
    for at_example, at_other in zip(example, other, strict=True):
        if at_example is None or at_other is None or at_example.overload != at_other.overload:
            continue
        differing = list(_differing_arguments(at_example, at_other))
        computed.update(dict.fromkeys((at_example.overload, *argument) for argument in differing))
        if not differing and at_example.structure_id != at_other.structure_id:
            pairs.setdefault((at_example.structure_id, at_other.structure_id), (at_other, at_example))
    return ResizedCalls(tuple(pairs.values()), tuple(computed))


def _differing_arguments(a: Invocation, b: Invocation) -> Iterator[tuple[str, str, str]]:
    """Yield the name and both values of each argument without tensors that differs."""
    other = dict(b.arguments)
    for name, value in a.arguments:
        if not isinstance(value, TensorSpec) and not _has_tensors(value) and other.get(name) != value:
            yield name, str(value), str(other.get(name))


def _has_tensors(value: Argument) -> bool:
    return isinstance(value, tuple) and any(isinstance(element, TensorSpec) for element in value)


def captured_program(model: LoadedModel) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Return the program that exporters translate, as a module, and a value for each placeholder of its graph."""
    inputs = tuple(tensor.clone() for tensor in model.inputs)
    # A failing capture prints the graph so far.
    with quiet(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exported = model.call(inputs, dynamic=False).captured()
        # Without guards, which only check sizes.
        module = exported.module(check_guards=False)
    return module, tuple(pytree.tree_leaves(model.program.arguments(inputs)))


def _record_eager(model: LoadedModel, notes: _Notes) -> None:
    inputs = [tensor.clone() for tensor in model.inputs]
    try:
        with _track_modules(model.module, notes), torch.inference_mode(), _Recorder(notes):
            model.program(*inputs)
    except Exception as error:
        raise ModelProblem(f"--model {model.name}: its calls cannot be captured: {first_line(error)}") from error


class _Notes:
    """Records calls."""

    def __init__(self, describe: Callable[[torch.Tensor, str], TensorSpec] = describe_tensor) -> None:
        self._describe = describe
        self.calls: dict[tuple[Any, ...], CapturedCall] = {}
        self.left_out: Counter[str] = Counter()
        self.foreign: dict[str, None] = {}
        self.stack: list[str] = []
        #: All calls in order; None for one that cannot be captured.
        self.sequence: list[Invocation | None] = []

    def add(self, target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if str(target) in BOOKKEEPING:
            return
        if target.namespace not in NAMESPACES:
            self.foreign[str(target)] = None
        try:
            invocation = invocation_of(target, args, kwargs, self._describe)
        except CannotKeep as reason:
            self.left_out[str(reason)] += 1
            self.sequence.append(None)
            return
        self.sequence.append(invocation)
        call = self.calls.setdefault(kind(invocation), CapturedCall(invocation))
        call.calls += 1
        place = self.stack[-1] if self.stack else ""
        if place not in call.places and len(call.places) < 4:
            call.places.append(place)


#: Calls that exporters do not see: they compute nothing, or `torch.export` turns them into guards.
BOOKKEEPING = frozenset(
    {
        *("aten.detach.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default", "aten.alias.default"),
        "aten.is_nonzero.default",
    }
)


def kind(invocation: Invocation) -> tuple[Any, ...]:
    """Return a key that is equal for calls that one invocation can represent."""
    return invocation.structure_id, tuple(map(_kind_of_values, invocation.tensors()))


def _kind_of_values(spec: TensorSpec) -> Any:
    # Statistics of drawn values differ between layers, but no conversion depends on them.
    if isinstance(spec.values, Recipe):
        return spec.values.domain if spec.values.domain[0] in ("constant", "steps", "triangular") else "drawn"
    return spec.values if spec.dtype in INT_RANGE or spec.dtype == "bool" else "few"


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records dispatched calls; a composite is recorded as such, without the calls that it is composed of."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._notes = notes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._notes.add(func, args, kwargs)
        return func(*args, **kwargs)


class _Interpreted(torch.fx.Interpreter):
    """Runs an exported program's graph and records its calls."""

    def __init__(self, module: torch.nn.Module, notes: _Notes) -> None:
        super().__init__(module)
        self._notes = notes

    def run_node(self, n: torch.fx.Node) -> Any:
        """Set the current module before a node runs."""
        self._notes.stack[:] = [module_path(n)]
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Record an operator before it is called."""
        if isinstance(target, OpOverload):
            self._notes.add(target, args, kwargs)
        elif isinstance(target, HigherOrderOperator):
            self._notes.left_out[f"calls within torch.{target}"] += 1
        return super().call_function(target, args, kwargs)


@contextlib.contextmanager
def _track_modules(module: torch.nn.Module, notes: _Notes) -> Iterator[None]:
    """Keep `notes.stack` up to date with the running modules, within the context."""
    handles = []
    for path, part in module.named_modules():

        def enter(_: Any, __: Any, path: str = path) -> None:
            notes.stack.append(path)

        def leave(_: Any, __: Any, ___: Any) -> None:
            notes.stack.pop()

        handles += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
