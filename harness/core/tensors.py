"""Rebuild an invocation in PyTorch: its tensors, its overload, its call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from harness.core import values
from harness.core.control_flow import is_flow_operator
from harness.core.dtypes import PARTS, is_float
from harness.core.invocation import (
    Argument,
    Enumerated,
    Input,
    Invocation,
    Literal,
    Recipe,
    Result,
    TensorSpec,
    Weight,
)
from harness.core.onnx_operators import find_schema, is_onnx_operator
from harness.core.program import Program, is_program
from harness.core.size_operators import SIZE_OPERATORS, is_size_operator
from harness.core.torch_operators import OpOverload, register_operators


@cache
def overload(name: str) -> OpOverload:
    """Return the callable of ``aten.add.Tensor``.

    Raises:
        LookupError: This PyTorch has no such overload.
    """
    try:
        namespace, packet, overload_name = name.split(".")
        register_operators(namespace)
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload_name)
    except (AttributeError, ValueError):
        raise LookupError(f"PyTorch {torch.__version__} has no operator overload {name}") from None
    assert isinstance(found, OpOverload)
    return found


def _callable(name: str) -> Callable[..., Any]:
    """Return the overload, or PyTorch's function for a control-flow operator."""
    if not is_flow_operator(name):
        return overload(name)
    from harness.core.control_flow_calls import FlowCall

    return FlowCall(name)


def argument_names(name: str) -> tuple[str, ...]:
    """Return the argument names of an overload, of a size operator or of an ONNX operator.

    Raises:
        LookupError: The installed packages have no such operator.
    """
    if is_size_operator(name):
        return SIZE_OPERATORS[name].arguments
    if is_onnx_operator(name):
        return find_schema(name).argument_names
    return tuple(argument.name for argument in overload(name)._schema.arguments)


def draws_at_random(call: Invocation) -> bool:
    """Whether the call's result is random."""
    return not is_size_operator(call.overload) and torch.Tag.nondeterministic_seeded in overload(call.overload).tags


def build_tensor(spec: TensorSpec) -> torch.Tensor:
    """Return the tensor that `spec` describes, bit for bit the same on every machine."""
    if isinstance(spec.values, Literal):
        storage = _literal_storage(spec.values, spec.dtype)
    else:
        storage = _recipe_storage(spec.values, spec.dtype, spec.storage_size)
    if spec.offset == 0 and spec.is_contiguous:
        return storage[: spec.numel].reshape(spec.shape)
    return storage.as_strided(spec.shape, spec.strides, spec.offset)


def _literal_storage(literal: Literal, dtype: str) -> torch.Tensor:
    own = getattr(torch, dtype)
    kind = torch.float64 if is_float(dtype) else torch.complex128 if dtype in PARTS else own
    return _same_nan(torch.tensor(literal.values, dtype=kind).to(own))


#: Elements of a storage that is kept, at most: 512 of them take 64 MB.
_LARGEST_KEPT = 2**13


def _recipe_storage(recipe: Recipe, dtype: str, count: int) -> torch.Tensor:
    if count > _LARGEST_KEPT:
        return _compute_storage(recipe, dtype, count)
    # By text, since 0.0 equals -0.0. Calls may change their tensors, so each gets its own.
    return _kept_storage(recipe, repr(recipe.domain), dtype, count).clone()


# The reference, float64, the export and the witnesses build the same tensors one after the other.
@lru_cache(maxsize=512)
def _kept_storage(recipe: Recipe, domain: str, dtype: str, count: int) -> torch.Tensor:
    return _compute_storage(recipe, dtype, count)


def _compute_storage(recipe: Recipe, dtype: str, count: int) -> torch.Tensor:
    own = getattr(torch, dtype)
    if not count:
        # NumPy gives an empty array, and hence a tensor made from it, other strides than PyTorch does.
        return torch.empty(0, dtype=own)
    return _same_nan(torch.from_numpy(np.ascontiguousarray(values.compute(recipe, dtype, count))).to(own))


def _same_nan(storage: torch.Tensor) -> torch.Tensor:
    if storage.dtype is torch.bfloat16:
        # Vector instructions and scalar loops convert NaN to different bits.
        storage.masked_fill_(storage.isnan(), math.nan)
    return storage


def weight_tensor(weight: Weight) -> torch.Tensor:
    """Return the tensor of a program's weight."""
    found = build_tensor(weight.spec)
    return found.to(getattr(torch, weight.dtype)) if weight.dtype else found


def graph_input_shape(spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape of the graph input for `spec`, in which complex numbers are pairs of reals."""
    return (*spec.shape, 2) if spec.dtype in PARTS else spec.shape


def build_tensors(invocation: Invocation) -> tuple[torch.Tensor, ...]:
    """Return all tensor arguments of `invocation` in order, including those in lists."""
    return tuple(build_tensor(spec) for spec in invocation.tensors())


@dataclass(frozen=True)
class BoundCall:
    """An overload with its arguments, except for the tensors.

    Tensors are passed when it is called, so that one bound call serves the reference, float64, every exporter and every
    further draw of values.
    """

    target: Callable[..., Any]
    positional: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]

    @property
    def targets(self) -> tuple[Callable[..., Any], ...]:
        """The overloads that it calls: one, or those of a program."""
        if isinstance(self.target, ProgramSteps):
            return tuple(target for call in self.target.calls for target in call.targets)
        return (self.target,)

    def with_target(self, target: Callable[..., Any]) -> BoundCall:
        """Return a copy with another callable."""
        return replace(self, target=target)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Call the overload with one tensor per tensor argument, in order."""
        positional, keywords = self.filled(tensors)
        return self.target(*positional, **keywords)

    def filled(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments with `tensors` in the open places, in order."""
        supply = iter(tensors)
        return [_fill(a, supply) for a in self.positional], {n: _fill(a, supply) for n, a in self.keywords}


#: Marks the place of a tensor among the arguments of a `BoundCall`.
TENSOR_PLACE = object()


def _fill(argument: Any, supply: Iterator[Any]) -> Any:
    if argument is TENSOR_PLACE:
        return next(supply)
    if isinstance(argument, list):
        return [_fill(element, supply) for element in argument]
    return argument


def _template(argument: Argument, held: dict[Weight, torch.Tensor]) -> Any:
    if isinstance(argument, TensorSpec):
        return TENSOR_PLACE
    if isinstance(argument, tuple):
        return [_template(element, held) for element in argument]
    if isinstance(argument, Enumerated):
        return torch.device(argument.name) if argument.kind == "device" else getattr(torch, argument.name)
    if isinstance(argument, Weight):
        if argument not in held:
            held[argument] = weight_tensor(argument)
        return held[argument]
    return argument


_SIZE_FUNCTIONS = frozenset(operator.compute for operator in SIZE_OPERATORS.values())


@dataclass(frozen=True, eq=False)
class ProgramSteps:
    """The calls of a program in order, callable with the program's inputs."""

    calls: tuple[BoundCall, ...]
    returns: tuple[Result | Input | torch.Tensor, ...]

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what the program returns."""
        results = self.results(tensors)

        def returned(value: Result | Input | torch.Tensor) -> torch.Tensor:
            if isinstance(value, Input):
                return tensors[value.place]
            return results[value.call][value.output] if isinstance(value, Result) else value

        return tuple(map(returned, self.returns))

    def results(self, tensors: Sequence[torch.Tensor]) -> list[list[Any]]:
        """Return the tensors of every call, or the number for a call that computes sizes."""
        supply = iter(tensors)
        results: list[list[Any]] = []

        def taken(argument: Any) -> Any:
            if isinstance(argument, Result):
                return results[argument.call][argument.output]
            if isinstance(argument, Input):
                return tensors[argument.place]
            if isinstance(argument, list):
                return [taken(element) for element in argument]
            return next(supply) if argument is TENSOR_PLACE else argument

        def step(place: int) -> None:
            call = self.calls[place]
            # Inputs are supplied in the order of the schema, which has positional arguments first.
            positional = [taken(argument) for argument in call.positional]
            keywords = {name: taken(argument) for name, argument in call.keywords}
            result = call.target(*positional, **keywords)
            results.append([result] if call.target in _SIZE_FUNCTIONS else output_tensors(result))

        _unrolled(len(self.calls))(step)
        return results


@cache
def _unrolled(count: int) -> Callable[[Callable[[int], None]], None]:
    """Return a function that takes some steps, each on a line of its own, as people write calls.

    TorchScript loses a write through a view only if the view and the write are on different lines: a loop hides that.
    """
    lines = "".join(f"    step({place})\n" for place in range(count))
    namespace: dict[str, Any] = {}
    exec(compile(f"def take(step):\n{lines or '    pass'}", "<program>", "exec"), namespace)
    steps: Callable[[Callable[[int], None]], None] = namespace["take"]
    return steps


def python_form(call: Invocation, program: Program) -> str:
    """Return the name of PyTorch's function for a call of a program that takes a size as a number; "" for other calls.

    While TorchScript traces a program its sizes are tensors. An overload for numbers rejects them, and the function,
    which is what people write, chooses another overload.
    """
    sized = {
        name
        for name, value in call.arguments
        if isinstance(value, Result) and is_size_operator(program.calls[value.call].overload)
    }
    # Most calls take no size, and reading a schema takes long.
    schema = overload(call.overload)._schema.arguments if sized else ()
    if not any(argument.name in sized and "number" in str(argument.type) for argument in schema):
        return ""
    packet = call.overload.split(".")[1]
    if hasattr(torch, packet):
        return f"torch.{packet}"
    return f"torch.Tensor.{packet}" if hasattr(torch.Tensor, packet) else ""


def _bind_program(invocation: Invocation) -> BoundCall:
    program = Program.of(invocation)
    # A weight that is used in two places is one tensor.
    held: dict[Weight, torch.Tensor] = {}

    def bound(call: Invocation) -> BoundCall:
        bare = _bound(call, held)
        name = "" if is_size_operator(call.overload) else python_form(call, program)
        return bare.with_target(attrgetter(name.removeprefix("torch."))(torch)) if name else bare

    calls = tuple(map(bound, program.calls))
    steps = ProgramSteps(calls, tuple(_template(value, held) for value in program.returns))
    return BoundCall(steps, (TENSOR_PLACE,) * sum(1 for _ in invocation.tensors()), ())


def bind(invocation: Invocation) -> BoundCall:
    """Prepare the call of an invocation.

    Arguments are positional up to the first omitted or keyword-only one, as a person would write them.

    Raises:
        LookupError: This PyTorch lacks the overload, or the overload has no argument of that name.
    """
    return _bind_program(invocation) if is_program(invocation) else _bound(invocation, {})


def _bound(invocation: Invocation, held: dict[Weight, torch.Tensor]) -> BoundCall:
    given = dict(invocation.arguments)
    if is_size_operator(invocation.overload):
        operator = SIZE_OPERATORS[invocation.overload]
        return BoundCall(operator.compute, tuple(_template(given[name], held) for name in operator.arguments), ())
    target = _callable(invocation.overload)
    positional: list[Any] = []
    keywords: list[tuple[str, Any]] = []
    open_positions = True
    schema = overload(invocation.overload)._schema
    for argument in schema.arguments:
        if argument.name not in given:
            open_positions = False
            continue
        value = _template(given.pop(argument.name), held)
        if open_positions and not argument.kwarg_only:
            positional.append(value)
        else:
            keywords.append((argument.name, value))
    if given:
        raise LookupError(f"{invocation.overload} has no argument {next(iter(given))!r}: {schema}")
    return BoundCall(target, tuple(positional), tuple(keywords))


def output_tensors(result: Any) -> list[torch.Tensor]:
    """Return the tensors of an operator's result in order: lists are flattened, numbers and None in them dropped.

    If the whole result is a number, it becomes a 0-d tensor, since a program can return nothing else; an integer that
    int64 cannot hold, from a uint64, is dropped.
    """
    if isinstance(result, torch.Tensor):
        return [result]
    # A compiler that captures this would add a guard on the number.
    if isinstance(result, int) and not torch.compiler.is_compiling() and not -(2**63) <= result < 2**63:
        return []
    for plain, symbolic, dtype in _NUMBERS:
        if isinstance(result, plain):
            return [torch.tensor(result, dtype=dtype)]
        if isinstance(result, symbolic):
            return [torch.scalar_tensor(result, dtype=dtype)]  # type: ignore[arg-type]
    return _tensors_in(result)


#: Kinds of numbers that operators return, concrete and while a program is captured, with a dtype that holds them
#: exactly. bool comes first because a bool is also an int.
_NUMBERS: tuple[tuple[type, type, torch.dtype], ...] = (
    (bool, torch.SymBool, torch.bool),
    (int, torch.SymInt, torch.int64),
    (float, torch.SymFloat, torch.float64),
)


def _tensors_in(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, list | tuple):
        return [tensor for element in result for tensor in _tensors_in(element)]
    return []
