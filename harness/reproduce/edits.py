"""Edits of invocations and of tensor arguments that reductions are made of.

The values of a tensor stay within the domain that the generator promised the operator: a failure on other values would
be another failure, and no component's fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, TypeAlias

import torch

from harness.core.dtypes import INT_RANGE, LARGEST, PRECISION, is_float
from harness.core.invocation import (
    Argument,
    Invocation,
    Literal,
    Recipe,
    TensorSpec,
    contiguous_strides,
)
from harness.core.tensors import build_tensor, overload

#: Argument name, and the place within a list of tensors; None for an argument that is a tensor.
Path: TypeAlias = tuple[str, "int | None"]
#: Changes an invocation; returns None if it does not apply to it.
Rewrite: TypeAlias = Callable[[Invocation], "Invocation | None"]


def tensors_of(invocation: Invocation) -> dict[Path, TensorSpec]:
    """Return every tensor by its place, in order."""
    found: dict[Path, TensorSpec] = {}
    for name, argument in invocation.arguments:
        if isinstance(argument, TensorSpec):
            found[name, None] = argument
        elif isinstance(argument, tuple):
            found.update({(name, i): e for i, e in enumerate(argument) if isinstance(e, TensorSpec)})
    return found


def replace_tensors(invocation: Invocation, changed: Mapping[Path, TensorSpec]) -> Invocation:
    """Return a copy with other tensors at some places."""

    def change(name: str, argument: Argument) -> Argument:
        if isinstance(argument, tuple):
            return tuple(changed.get((name, i), element) for i, element in enumerate(argument))
        return changed.get((name, None), argument)

    return map_arguments(invocation, change)


def changing(path: Path, change: Callable[[TensorSpec], TensorSpec | None]) -> Rewrite:
    """Return a reduction of the tensor at `path`; it does not apply if there is none, or if `change` gives None."""

    def rewrite(invocation: Invocation) -> Invocation | None:
        spec = tensors_of(invocation).get(path)
        changed = None if spec is None else change(spec)
        return None if changed is None else replace_tensors(invocation, {path: changed})

    return rewrite


def map_tensors(invocation: Invocation, change: Callable[[TensorSpec], TensorSpec]) -> Invocation:
    """Return a copy with every tensor changed; the invocation itself if none is."""
    changed = invocation.map_tensors(change)
    return invocation if changed == invocation else changed


def map_arguments(invocation: Invocation, change: Callable[[str, Argument], Argument]) -> Invocation:
    """Return a copy with every argument changed, given its name."""
    return replace(invocation, arguments=tuple((n, change(n, a)) for n, a in invocation.arguments))


def replace_argument(invocation: Invocation, name: str, argument: Argument) -> Invocation:
    """Return a copy with another value for an argument that is given."""
    return map_arguments(invocation, lambda n, a: argument if n == name else a)


def omit_argument(invocation: Invocation, name: str) -> Invocation:
    """Return a copy that leaves an argument to its default."""
    return replace(invocation, arguments=tuple((n, a) for n, a in invocation.arguments if n != name))


@cache
def optional_arguments(name: str) -> dict[str, object]:
    """Return the arguments of an overload that may be left out, with their defaults."""
    arguments = overload(name)._schema.arguments
    return {a.name: a.default_value for a in arguments if a.has_default_value()}


#: Argument name → the domains of the recorded invocation's tensors there.
Domains: TypeAlias = Mapping[str, tuple[tuple[str | int | float, ...], ...]]


def domains_of(invocation: Invocation) -> Domains:
    """Return the domains that the recipes of `invocation` promise; literal values promise nothing."""
    return {name: tuple(dict.fromkeys(_domains(argument))) for name, argument in invocation.arguments}


def _domains(argument: Argument) -> list[tuple[str | int | float, ...]]:
    if isinstance(argument, tuple):
        return [domain for element in argument for domain in _domains(element)]
    if isinstance(argument, TensorSpec) and isinstance(argument.values, Recipe):
        return [argument.values.domain]
    return []


def allowed(domains: Sequence[tuple[str | int | float, ...]], dtype: str, numbers: Sequence[PlainNumber]) -> bool:
    """Whether these values may stand in a tensor of `domains` and `dtype`."""
    if dtype in INT_RANGE:
        low, high = INT_RANGE[dtype]
        if not all(low <= n <= high for n in _real(numbers)):
            return False
    # Finite numbers beyond the largest would be infinite in the tensor.
    if dtype in LARGEST and any(LARGEST[dtype] < abs(n) < math.inf for n in numbers):
        return False
    return all(_RULES[str(name)](dtype, numbers, *rest) for name, *rest in domains if name in _RULES)


def keeps_values(domains: Sequence[tuple[str | int | float, ...]]) -> bool:
    """Whether the values hang together, so that none may change alone."""
    return any(name in _TOGETHER for name, *_ in domains)


def _real(numbers: Sequence[Any]) -> list[float]:
    return [n for n in numbers if not isinstance(n, complex)]


def _distinct(dtype: str, numbers: Sequence[Any], *_: Any) -> bool:
    return len(set(numbers)) == len(numbers)


def _like(dtype: str, numbers: Sequence[Any], mean: float, deviation: float, *rest: float) -> bool:
    """Return whether numbers look like those of a model: in its range, zero, or -inf if it has these."""
    low, high, _, *minus_infinite = rest
    return all(low <= n <= high or n == 0 or (minus_infinite and n == -math.inf) for n in _real(numbers))


_RULES: Mapping[str, Callable[..., bool]] = {
    "finite": lambda dtype, numbers: all(map(math.isfinite, _real(numbers))),
    "at_least": lambda dtype, numbers, low: not any(n < low for n in _real(numbers)),
    "nonzero": lambda dtype, numbers: dtype in PRECISION or all(numbers),
    "range": lambda dtype, numbers, low, high: all(low <= n <= high for n in _real(numbers)),
    "signs": lambda dtype, numbers: all(abs(n) == 1 for n in numbers),
    "unique": _distinct,
    "distinct": _distinct,
    "like": _like,
}
#: Runs that ascend, matrices that are well conditioned: a part of them is as good, another number is not.
_TOGETHER = frozenset(
    (
        *("ascending", "descending", "countdown", "sorted", "steps", "offsets"),
        *("packed", "unique", "dominant", "triangular"),
    )
)


PlainNumber: TypeAlias = "bool | int | float | complex"

#: PyTorch does not select of the unsigned integers that came last, but their bits are as good.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


@lru_cache(maxsize=4096)
def literal(spec: TensorSpec) -> TensorSpec:
    """Return the same tensor with its storage's values in place of a recipe for them."""
    if isinstance(spec.values, Literal):
        return spec
    size = spec.storage_size
    storage = build_tensor(replace(spec, shape=(size,), strides=(1,), offset=0))
    return replace(spec, values=Literal(tuple(storage.tolist())))


def tensor_spec(tensor: torch.Tensor, dtype: str) -> TensorSpec:
    """Return a row-major tensor of these values."""
    shape = tuple(tensor.shape)
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(tensor.flatten().tolist())))


def contiguous(spec: TensorSpec) -> TensorSpec:
    """Return the same values in row-major order, without gaps or an offset."""
    return tensor_spec(build_tensor(spec), spec.dtype)


def is_plain_layout(spec: TensorSpec) -> bool:
    """Whether it lies as `contiguous` would lay it."""
    return spec.offset == 0 and spec.strides == contiguous_strides(spec.shape)


def compact(spec: TensorSpec) -> TensorSpec:
    """Return the same order of dimensions in memory, expanded ones still expanded, without gaps between elements."""
    kept = [d for d in range(len(spec.shape)) if spec.strides[d] != 0]
    order = sorted(kept, key=lambda d: -spec.strides[d])
    expanded = [d for d in range(len(spec.shape)) if d not in kept]
    tensor = build_tensor(spec)
    for d in expanded:
        tensor = tensor.narrow(d, 0, min(1, spec.shape[d]))
    storage = tensor.permute([*order, *expanded]).flatten().tolist()
    strides = [0] * len(spec.shape)
    for d, stride in zip(order, contiguous_strides(tuple(spec.shape[d] for d in order)), strict=True):
        strides[d] = stride
    return replace(spec, strides=tuple(strides), offset=0, values=Literal(tuple(storage)))


def keep(spec: TensorSpec, dim: int, indices: Sequence[int]) -> TensorSpec:
    """Keep only these places along `dim`. A layout of its own is kept if they follow each other."""
    chosen = list(indices)
    if is_plain_layout(spec) or chosen != list(range(chosen[0], chosen[0] + len(chosen))):
        tensor = build_tensor(spec)
        bits = tensor.view(_SIGNED.get(tensor.dtype, tensor.dtype))
        return tensor_spec(
            bits.index_select(dim, torch.tensor(chosen, dtype=torch.int64)).view(tensor.dtype), spec.dtype
        )
    shape = (*spec.shape[:dim], len(chosen), *spec.shape[dim + 1 :])
    return _rebased(literal(spec), shape, spec.strides, chosen[0] * spec.strides[dim])


def drop_dim(spec: TensorSpec, dim: int) -> TensorSpec:
    """Return the first slice along `dim`."""
    shape = (*spec.shape[:dim], *spec.shape[dim + 1 :])
    if is_plain_layout(spec):
        return tensor_spec(build_tensor(spec).select(dim, 0), spec.dtype)
    return _rebased(literal(spec), shape, (*spec.strides[:dim], *spec.strides[dim + 1 :]), 0)


def _rebased(spec: TensorSpec, shape: tuple[int, ...], strides: tuple[int, ...], skipped: int) -> TensorSpec:
    """Return a view of `spec` that begins `skipped` elements later, with no more storage than it needs."""
    assert isinstance(spec.values, Literal)
    view = replace(spec, shape=shape, strides=strides)
    start = spec.offset + skipped
    end = max(start, start - spec.offset + view.storage_size)
    if spec.offset == 0:
        return replace(view, values=Literal(spec.values.values[start:end]))
    return replace(view, offset=start, values=Literal(spec.values.values[:end]))


def element(spec: TensorSpec, place: Sequence[int]) -> TensorSpec:
    """Return one element, given its place in a shape that `spec` broadcasts to, as a vector of one."""
    own = place[len(place) - len(spec.shape) :]
    index = tuple(0 if size == 1 else i for i, size in zip(own, spec.shape, strict=True))
    return tensor_spec(build_tensor(spec)[index].reshape(1), spec.dtype)


def cast(spec: TensorSpec, dtype: str) -> TensorSpec | None:
    """Return the same values in another dtype; None if it cannot hold them except by rounding."""
    before = numbers(spec)
    if any(isinstance(n, complex) for n in before):
        return None
    if is_float(dtype):
        kind = torch.float64 if is_float(spec.dtype) else getattr(torch, spec.dtype)
        old = torch.tensor(before, dtype=kind)
        new = old.to(getattr(torch, dtype))
        if bool((torch.isinf(new.double()) != torch.isinf(old.double())).any()):
            return None
        return replace(spec, dtype=dtype, values=Literal(tuple(new.tolist())))
    if dtype not in INT_RANGE or is_float(spec.dtype):
        return None
    low, high = INT_RANGE[dtype]
    if not all(low <= n <= high for n in before):  # type: ignore[operator]
        return None
    return replace(spec, dtype=dtype, values=Literal(tuple(map(int, before))))  # type: ignore[arg-type]


def numbers(spec: TensorSpec) -> tuple[PlainNumber, ...]:
    """Return the storage's values."""
    values = literal(spec).values
    assert isinstance(values, Literal)
    return values.values


def replace_numbers(spec: TensorSpec, values: Sequence[PlainNumber]) -> TensorSpec:
    """Return other values in the same storage."""
    return replace(spec, values=Literal(tuple(values)))


def is_special(number: PlainNumber) -> bool:
    """NaN, an infinity or −0.0: values that code treats apart."""
    if not isinstance(number, float):
        return False
    return not math.isfinite(number) or (number == 0.0 and math.copysign(1.0, number) < 0.0)


def element_type(dtype: str) -> type[bool] | type[int] | type[float]:
    """Return the Python type of its elements."""
    if dtype == "bool":
        return bool
    return float if is_float(dtype) else int
