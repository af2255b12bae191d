"""A call of a model with smaller sizes that stand to each other as before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from harness.core.invocation import Argument, Invocation, Literal, TensorSpec
from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.core.tensors import build_tensors
from harness.pipeline.torch_call import call_invocation

#: What sizes are divided by, the most first; sizes that are not made smaller than `_LEAST`.
_FACTORS = (32, 16, 8, 4, 2)
_LEAST = 2
#: Sizes from which on a size is made smaller, and elements that a call has at most.
_FROM, _MOST_ELEMENTS = 16, 1 << 15


def small_call(call: Invocation, process: IsolatedCalls) -> Invocation | None:
    """Return the call with its sizes divided by the largest factor with which PyTorch still takes it.

    Each size from 16 on that the factor divides is divided, wherever it stands: in shapes, and in arguments that
    hold the same number; or, if PyTorch does not take that, any such number. So equal sizes stay equal, and sizes that
    divide each other do so if both are divided. A small call is left as it is; None if the call is large with
    every factor. PyTorch is asked in `process`: it may die of sizes that do not fit each other.
    """
    if _elements(call) <= 512:
        return call
    sizes = {size for spec in call.tensors() for size in spec.shape}
    # A view splits a size into others.
    numbers = sizes | set(_numbers(call.arguments))
    for factor, among in product(_FACTORS, (sizes, numbers)):
        smaller = _divided(call, factor, among)
        if smaller is not None and _elements(smaller) <= _MOST_ELEMENTS and _is_taken(smaller, process):
            return smaller
    return call if _elements(call) <= _MOST_ELEMENTS else None


def _elements(call: Invocation) -> int:
    return sum(spec.numel for spec in call.tensors())


def _divided(call: Invocation, factor: int, among: set[int]) -> Invocation | None:
    smaller = {n: n // factor for n in among if n >= _FROM and n % factor == 0 and n // factor >= _LEAST}
    if not smaller:
        return None
    try:
        arguments = tuple((name, _shrink_sizes(value, smaller)) for name, value in call.arguments)
    except ValueError:
        return None
    return replace(call, arguments=arguments)


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for element in value:
            yield from _numbers(element)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _shrink_sizes(value: Argument, smaller: dict[int, int]) -> Argument:
    if isinstance(value, TensorSpec):
        return _small_tensor(value, smaller)
    if isinstance(value, tuple):
        return tuple(_shrink_sizes(element, smaller) for element in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return smaller.get(value, value)
    return value


def _small_tensor(spec: TensorSpec, smaller: dict[int, int]) -> TensorSpec:
    """The tensor with other sizes, dense in the same order of dimensions; expanded dimensions stay so."""
    shape = tuple(smaller.get(size, size) for size in spec.shape)
    if shape == spec.shape:
        return spec
    values = spec.values
    if isinstance(values, Literal):
        raise ValueError("its elements are given one by one")
    if values.domain[0] == "steps":
        values = replace(values, domain=(*values.domain[:3], shape[-1]))
    elif values.domain[0] == "triangular":
        values = replace(values, domain=("triangular", *shape[-2:], *values.domain[3:]))
    elif values.domain[0] in ("range", "sorted"):
        low, high = values.domain[1:3]
        values = replace(
            values, domain=(values.domain[0], low, max(int(low), smaller.get(int(high) + 1, int(high) + 1) - 1))
        )
    strides = [0] * len(shape)
    step = 1
    for dim in sorted(range(len(shape)), key=lambda d: (spec.strides[d], -d)):
        if spec.strides[dim] or spec.shape[dim] == 1:
            strides[dim] = step
            step *= shape[dim]
    return TensorSpec(shape, spec.dtype, tuple(strides), 0, values)


def _is_taken(call: Invocation, process: IsolatedCalls) -> bool:
    try:
        return process.call(gives_tensors, call.json)
    except ProcessDied:
        return False


def gives_tensors(text: str) -> bool:
    """Whether PyTorch takes the call and returns tensors."""
    call = Invocation.from_json(text)
    try:
        return bool(call_invocation(call, build_tensors(call)))
    except Exception:
        return False
