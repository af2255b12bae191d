"""Calling PyTorch for a reference: in the case's dtype and in float64."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from harness.core.dtypes import ALL, COMPLEX, WIDE_UNSIGNED, Array, wider_float
from harness.core.invocation import Argument, Enumerated, Invocation
from harness.core.program import map_arguments
from harness.core.tensors import bind, output_tensors
from harness.core.text import describe_error
from harness.core.torch_arrays import to_numpy


class CallRejected(Exception):
    """PyTorch itself raises for a call; its exception is the cause."""

    @property
    def account(self) -> str:
        """PyTorch's own words."""
        return describe_error(self.__cause__ or self)


class Forbidden(CallRejected):
    """The text of an ONNX operator forbids the call; the cause says which limit it breaks."""


class NothingToCompare(CallRejected):
    """The call returns no tensor, or one that ONNX has no counterpart of: sparse, quantised, an odd dtype."""


#: Dtypes of the outputs that can be compared.
_COMPARABLE = frozenset((*ALL, *WIDE_UNSIGNED, *COMPLEX, "complex32"))


def reference_outputs(invocation: Invocation, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that PyTorch returns for a case. An error of the harness itself is raised unchanged.

    Raises:
        CallRejected: PyTorch raises for the call.
        NothingToCompare: it returns nothing that can be compared.
    """
    call = bind(invocation)
    with quiet_call():
        try:
            result = call(tensors)
        except Exception as error:
            raise CallRejected(str(error)) from error
    outputs = output_tensors(result)
    if not outputs:
        raise NothingToCompare(f"{invocation.overload} returned no tensor")
    for output in outputs:
        dtype = str(output.dtype).removeprefix("torch.")
        if output.layout is not torch.strided or output.is_quantized or dtype not in _COMPARABLE:
            raise NothingToCompare(f"{invocation.overload} returned a tensor of {output.layout} {dtype}")
    return outputs


@contextmanager
def quiet_call() -> Iterator[None]:
    """PyTorch without gradients and warnings, and with the same random numbers each time."""
    # (`torch.manual_seed` seeds every kind of device and formats a stack trace for each.)
    torch.default_generator.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def call_invocation(invocation: Invocation, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the results of the call for `tensors` instead of the invocation's; PyTorch may reject it."""
    # Random operators repeat, so that a case is the same wherever it runs.
    with quiet_call():
        return output_tensors(bind(invocation)(tensors))


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make `dtype` PyTorch's default within the block: for divisions of integers, and for Python floats."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def call_in_float64(invocation: Invocation, tensors: Sequence[torch.Tensor]) -> tuple[Array | None, ...] | None:
    """Make the call with floating tensors in float64 and complex ones in complex128; return None if it fails."""

    def widened(argument: Argument) -> Argument:
        if isinstance(argument, Enumerated) and argument.kind == "dtype":
            return replace(argument, name=wider_float(argument.name))
        return argument

    try:
        with default_dtype(torch.float64):
            outputs = call_invocation(
                map_arguments(invocation, widened),
                [_wide(t) for t in tensors],
            )
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AssertionError):
        return None
    return tuple(to_numpy(t) if t.dtype in (torch.float64, torch.complex128) else None for t in outputs)
