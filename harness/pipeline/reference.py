"""PyTorch's answer to a case: its outputs in the case's dtype, and in float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import torch

from harness.dtypes import PARTS, is_float, wider_float
from harness.invocation import Argument, Enumerated, Invocation, TensorSpec
from harness.tensors import bind, build_tensors, output_tensors
from harness.verdict.compare import SCALES
from harness.verdict.judge import Array


class NothingToCompare(Exception):
    """The call returns no tensor."""


def to_numpy(tensor: torch.Tensor) -> Array:
    """A C-contiguous array of the tensor's shape and values; bfloat16 as `ml_dtypes` has it, complex numbers as
    pairs of real and imaginary part in one more dimension, which is how exporters represent them."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype is torch.bfloat16:
        array: Array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return array
    return tensor.numpy()


@dataclass(frozen=True)
class Reference:
    """A case that PyTorch accepts; an `harness.verdict.compare.Oracle`.

    Attributes:
        invocation: The case.
        feeds: Its tensors as arrays, before the call.
        expected: PyTorch's outputs.
    """

    invocation: Invocation
    feeds: tuple[Array, ...]
    expected: tuple[Array, ...]

    @cached_property
    def dtypes(self) -> frozenset[str]:
        """Dtypes of all inputs and outputs."""
        return frozenset(str(a.dtype) for a in (*self.feeds, *self.expected))

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """Schema name → value, tensors as arrays, complex numbers as such; for rules."""
        supply = iter(self.feeds)
        return {name: _with_arrays(argument, supply) for name, argument in self.invocation.arguments}

    @property
    def has_strided_input(self) -> bool:
        """Whether an input does not lie row-major in memory, which runtimes never see."""
        return not all(spec.is_contiguous for spec in self.invocation.tensors())

    def on_contiguous_inputs(self) -> Reference:
        """The same call on row-major copies of the inputs.

        Raises:
            Exception: PyTorch's own, where it rejects them.
        """
        tensors = [tensor.contiguous() for tensor in build_tensors(self.invocation)]
        outputs = _call(self.invocation, tensors)
        return Reference(self.invocation, self.feeds, tuple(to_numpy(t) for t in outputs))

    @cached_property
    def truth(self) -> tuple[Array | None, ...] | None:
        """The outputs in float64; None for an output, or as a whole, where there is none."""
        return _in_float64(self.invocation)

    @cached_property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """The outputs in float64 for the absolute values of the inputs, likewise."""
        return _in_float64(self.invocation, torch.abs)

    @cached_property
    def unscaled(self) -> tuple[Array | None, ...] | None:
        """The magnitude with scales of at least one, likewise."""
        return _in_float64(self.invocation, torch.abs, least_scale=1)

    @cached_property
    def marked(self) -> tuple[Array | None, ...] | None:
        """The magnitude with 1 for every finite number, likewise: finite where only such take part."""
        return _in_float64(self.invocation, _marked)


def _with_arrays(argument: Argument, supply: Any) -> Any:
    if isinstance(argument, TensorSpec):
        array = next(supply)
        if argument.dtype in PARTS:
            return array.view(argument.dtype).reshape(argument.shape)
        return array
    if isinstance(argument, tuple):
        return [_with_arrays(element, supply) for element in argument]
    return argument


def _call(invocation: Invocation, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    # Random operators repeat, so that a case is the same wherever it runs.
    # (`torch.manual_seed` seeds every kind of device and formats a stack trace for each.)
    torch.default_generator.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return output_tensors(bind(invocation)(tensors))


def run_reference(invocation: Invocation) -> Reference:
    """Run the case in PyTorch eager on the CPU.

    Raises:
        NothingToCompare: no output is a tensor.
        Exception: PyTorch's own, where it rejects the invocation.
    """
    tensors = build_tensors(invocation)
    feeds = tuple(to_numpy(t) for t in tensors)
    outputs = _call(invocation, tensors)
    if not outputs:
        raise NothingToCompare(f"{invocation.overload} returned no tensor")
    return Reference(invocation, feeds, tuple(to_numpy(t) for t in outputs))


def _widened(argument: Argument) -> Argument:
    if isinstance(argument, Enumerated) and argument.kind == "dtype":
        return replace(argument, name=wider_float(argument.name))
    return argument


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _scale(name: str, argument: Argument, least: int) -> Argument:
    if name in SCALES and isinstance(argument, int | float) and not isinstance(argument, bool):
        return max(abs(argument), least)
    return argument


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor.isfinite(), 1, tensor.abs())


def _in_float64(
    invocation: Invocation,
    magnitude: Callable[[torch.Tensor], torch.Tensor] | None = None,
    *,
    least_scale: int = 0,
) -> tuple[Array | None, ...] | None:
    """The same call with floating tensors in float64, or None where PyTorch has no such call.

    Float64 is PyTorch's default dtype meanwhile: it decides in what integers are divided, and what dtype a
    sequence of Python floats has.

    Args:
        invocation: The case.
        magnitude: Applied to the floating inputs; to integer tensors too where no tensor is floating, and
            none is an index therefore. `SCALES` are made positive then.
        least_scale: What these are at least.
    """
    only_integers = not any(is_float(spec.dtype) for spec in invocation.tensors())
    wide = replace(invocation, arguments=tuple((n, _widened(a)) for n, a in invocation.arguments))
    if magnitude:
        wide = replace(wide, arguments=tuple((n, _scale(n, a, least_scale)) for n, a in wide.arguments))
    tensors = []
    for tensor in build_tensors(invocation):
        if tensor.is_floating_point():
            tensor = tensor.double()
        elif tensor.is_complex():
            tensor = tensor.to(torch.complex128)
        if magnitude and (tensor.is_floating_point() or (only_integers and tensor.dtype is not torch.bool)):
            tensor = magnitude(tensor)
        tensors.append(tensor)
    try:
        with _default_dtype(torch.float64):
            outputs = _call(wide, tensors)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return None
    return tuple(to_numpy(t) if t.dtype in (torch.float64, torch.complex128) else None for t in outputs)
