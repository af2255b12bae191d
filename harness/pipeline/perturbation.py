"""Run PyTorch on calls near a case: with inputs moved by their last place, and with subnormal inputs made zero."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch

from harness.compare.nearness import Sensitivity, ulp
from harness.core.dtypes import MIN_EXPONENT, PRECISION, Array, is_float
from harness.core.invocation import Argument, Enumerated, Invocation, TensorSpec
from harness.core.program import map_arguments
from harness.core.tensors import build_tensors
from harness.core.torch_arrays import to_numpy
from harness.pipeline.torch_call import call_in_float64, call_invocation

#: Number of neighbours: each moves every input up or down at random.
_NEIGHBOURS = 4
_FLOAT64_PER_FLOAT32 = 2.0 ** (PRECISION["float32"] - PRECISION["float64"])
#: A smooth response to a step twice as long is about twice as large, or four times at an extremum.
_LEAST_GROWTH, _MOST_GROWTH = 1.2, 8.0

_REJECTIONS = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)


def sensitivity(
    invocation: Invocation,
    truth: Sequence[Array | None] | None,
    outputs: Sequence[str],
    coordinates: Collection[str] = (),
) -> tuple[Sensitivity | None, ...] | None:
    """Return how much the outputs move, and PyTorch's error, when every floating input moves by its last place.

    Float64 gives the movement, since it can tell numbers apart that the case's dtype cannot; inputs in the case's own
    dtypes give the error. A float64 case has no wider dtype: both are computed in float32 and scaled by the ratio of
    the two unit roundoffs, to which they are proportional.

    Args:
        invocation: The case.
        truth: Its outputs in float64; the result has None for an output that float64 cannot compute.
        outputs: Dtypes of its outputs.
        coordinates: See `harness.compare.judge.Judge`.
    """
    floats = [dtype for dtype in outputs if is_float(dtype)]
    if truth is None or not floats:
        return None
    neighbourhood = _Neighbourhood(
        invocation=invocation,
        truth=truth,
        narrowest=min(floats, key=PRECISION.__getitem__),
        least=[float(name in coordinates) for name in tensor_arguments(invocation)],
    )
    return tuple(None if o is None else _MeasuredSensitivity(neighbourhood, i) for i, o in enumerate(truth))


#: For each output the largest of a measure; None for an output that float64 cannot compute.
_Totals: TypeAlias = "list[Array | None]"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Neighbourhood:
    """The answers to calls near a case, each of which is made when it is first needed.

    Attributes:
        invocation: The case.
        truth: Its outputs in float64.
        narrowest: The narrowest floating dtype of its outputs.
        least: See `_moved`.
    """

    invocation: Invocation
    truth: Sequence[Array | None]
    narrowest: str
    least: Sequence[float]
    #: After each neighbour: the largest errors, and the largest responses with their curvatures.
    _errors: list[_Totals] = field(default_factory=list)
    _responses: list[tuple[_Totals, _Totals]] = field(default_factory=list)

    @cached_property
    def _tensors(self) -> Sequence[torch.Tensor]:
        return build_tensors(self.invocation)

    @property
    def scale(self) -> float:
        """The ratio of the unit roundoff of the case to that of the calls near it."""
        return _FLOAT64_PER_FLOAT32 if self.narrowest == "float64" else 1.0

    def errors(self, neighbour: int) -> _Totals:
        """Return PyTorch's largest errors at the neighbours up to one."""
        while len(self._errors) <= neighbour:
            signs = len(self._errors)
            before = self._errors[-1] if self._errors else self._zeros()
            with np.errstate(all="ignore"):
                tensors = [_narrow(t) for t in self._tensors]
                call = _moved(_narrowed(self.invocation), tensors, None, signs, 1, self.least)
                after = _raised(before, self.truth, call_in_float64(*call), _own(*call), _distance)
            self._errors.append(after)
        return self._errors[neighbour]

    def responses(self, neighbour: int) -> tuple[_Totals, _Totals]:
        """Return the largest responses at the neighbours up to one, and their largest curvatures."""
        step = "float32" if self.narrowest == "float64" else self.narrowest
        while len(self._responses) <= neighbour:
            signs = len(self._responses)
            conditions, curvatures = self._responses[-1] if self._responses else (self._zeros(), self._zeros())
            with np.errstate(all="ignore"):
                near, far = (
                    call_in_float64(*_moved(self.invocation, self._tensors, step, signs, steps, self.least))
                    for steps in (1, 2)
                )
                conditions = _raised(conditions, self.truth, near, far, _response)
                curvatures = _raised(curvatures, self.truth, near, far, _curvature)
            self._responses.append((conditions, curvatures))
        return self._responses[neighbour]

    def _zeros(self) -> _Totals:
        return [None if o is None else np.zeros(o.shape) for o in self.truth]


@dataclass(frozen=True, eq=False)
class _MeasuredSensitivity:
    """See `harness.compare.nearness.Sensitivity`.

    Attributes:
        neighbourhood: The calls near the case.
        output: The index of the output, which float64 can compute.
    """

    neighbourhood: _Neighbourhood
    output: int

    def own_errors(self) -> Iterator[Array]:
        scale = self.neighbourhood.scale
        for neighbour in range(_NEIGHBOURS):
            error = self.neighbourhood.errors(neighbour)[self.output]
            assert error is not None
            yield error * scale

    def movements(self) -> Iterator[tuple[Array, Array]]:
        scale = self.neighbourhood.scale
        for neighbour in range(_NEIGHBOURS):
            condition, curvature = (totals[self.output] for totals in self.neighbourhood.responses(neighbour))
            assert condition is not None
            assert curvature is not None
            yield condition * scale, curvature * scale**2


def flushed(invocation: Invocation) -> list[Array] | None:
    """Return PyTorch's outputs with zeros for subnormal inputs; None if no input is subnormal."""
    tensors = list(build_tensors(invocation))
    found = False
    for i, tensor in enumerate(tensors):
        parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        if parts.is_floating_point():
            smallest = 2.0 ** MIN_EXPONENT[str(parts.dtype).removeprefix("torch.")]
            subnormal = (parts != 0) & (parts.double().abs() < smallest)
            if subnormal.any():
                found = True
                zeroed = torch.where(subnormal, torch.zeros_like(parts).copysign(parts), parts)
                tensors[i] = torch.complex(*zeroed.unbind(-1)) if tensor.is_complex() else zeroed
    return _own(invocation, tensors) if found else None


_Outputs: TypeAlias = "Sequence[Array | None] | None"


def _raised(
    totals: _Totals,
    truth: Sequence[Array | None],
    first: _Outputs,
    second: _Outputs,
    measure: Callable[[Array, Array, Array], Array],
) -> _Totals:
    """Return the totals raised to the results of `measure` for the truth and two further answers, element by
    element."""
    if first is None or second is None or not len(first) == len(second) == len(totals):
        return totals
    return [
        total
        if total is None or o is None or a is None or b is None or not o.shape == a.shape == b.shape
        else np.maximum(total, measure(o, a, b))
        for total, o, a, b in zip(totals, truth, first, second, strict=True)
    ]


def _response(truth: Array, near: Array, far: Array) -> Array:
    """|near - truth| if the response is smooth, else 0."""
    return np.where(_is_smooth(truth, near, far), np.abs(near - truth), 0.0)


def _curvature(truth: Array, near: Array, far: Array) -> Array:
    """Return the part of near - truth that is quadratic in the step if the response is smooth, else 0."""
    return np.where(_is_smooth(truth, near, far), np.abs((far - truth) - 2.0 * (near - truth)) / 2.0, 0.0)


def _is_smooth(truth: Array, near: Array, far: Array) -> Array:
    one, two = np.abs(near - truth), np.abs(far - truth)
    return np.asarray(np.isfinite(two) & (two >= _LEAST_GROWTH * one) & (two <= _MOST_GROWTH * one))


def _distance(truth: Array, true_beside: Array, own_beside: Array) -> Array:
    error = np.abs(own_beside.astype(np.float64) - true_beside)
    return np.where(np.isfinite(error), error, 0.0)


def _own(invocation: Invocation, tensors: Sequence[torch.Tensor]) -> list[Array] | None:
    """Return PyTorch's outputs in the dtypes of `tensors`, or None if it rejects them."""
    try:
        return [to_numpy(t) for t in call_invocation(invocation, tensors)]
    except _REJECTIONS:
        return None


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.complex128:
        return tensor.to(torch.complex64)
    return tensor.float() if tensor.dtype is torch.float64 else tensor


_NARROWER = {"float64": "float32", "complex128": "complex64"}


def _narrowed(invocation: Invocation) -> Invocation:
    """Return the invocation with float32 for float64 in dtype arguments."""

    def narrow(argument: Argument) -> Argument:
        if isinstance(argument, Enumerated) and argument.kind == "dtype":
            return replace(argument, name=_NARROWER.get(argument.name, argument.name))
        return argument

    return map_arguments(invocation, narrow)


def tensor_arguments(invocation: Invocation) -> Iterator[str]:
    """Return the name of the argument that holds each tensor of a call, in order."""
    for name, value in invocation.arguments:
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, TensorSpec):
                yield name


def _moved(
    invocation: Invocation,
    tensors: Sequence[torch.Tensor],
    dtype: str | None,
    signs: int,
    steps: int,
    least: Sequence[float],
) -> tuple[Invocation, list[torch.Tensor]]:
    """Return the call with every float, and every part of a complex number, moved by `steps` last places.

    Args:
        invocation: The case.
        tensors: Its inputs.
        dtype: The dtype whose last places count; the moved tensors are in float64 then. None for each tensor's own.
        signs: Seed of the directions, up or down.
        steps: Number of last places.
        least: For each tensor, the magnitude whose last place is the least that its numbers are moved by.
    """
    random = np.random.Generator(np.random.PCG64(signs))

    def move(values: Array, of: str, at_least: float = 0.0) -> Array:
        chance = random.integers(0, 2, values.shape) * 2.0 - 1.0
        finite = np.isfinite(values) & ((values != 0) | (at_least > 0))
        given = np.maximum(np.abs(np.where(finite, values, 0.0)), at_least)
        # Float32 stands in for float64: its last places stop shrinking earlier than float64's.
        unit = np.abs(np.spacing(given)) / _FLOAT64_PER_FLOAT32 if of == "float64" else ulp(given, of)
        return np.where(finite, values + steps * chance * unit, values)

    def move_number(argument: Argument) -> Argument:
        if isinstance(argument, float):
            return float(move(np.asarray(argument), dtype or "float32"))
        return argument

    def move_tensor(tensor: torch.Tensor, at_least: float) -> torch.Tensor:
        if tensor.is_complex():
            return torch.complex(move_tensor(tensor.real, at_least), move_tensor(tensor.imag, at_least))
        if not tensor.is_floating_point():
            return tensor
        own = str(tensor.dtype).removeprefix("torch.")
        of = own if dtype in (None, "float32") and own == "float64" else dtype or own
        values = torch.from_numpy(move(tensor.double().numpy(), of, at_least))
        return values if dtype else values.to(tensor.dtype)

    moved = [move_tensor(tensor, at_least) for tensor, at_least in zip(tensors, least, strict=True)]
    return map_arguments(invocation, move_number), moved
