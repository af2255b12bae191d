"""Edits of one tensor argument, each giving another `TensorSpec` with its values written out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import torch

from harness.core import INT_RANGE, Literal, TensorSpec, build_tensor, contiguous_strides, is_float

PlainNumber: TypeAlias = "bool | int | float | complex"

#: PyTorch does not select of the unsigned integers that came last, but their bits are as good.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


@lru_cache(maxsize=4096)
def literal(spec: TensorSpec) -> TensorSpec:
    """The same tensor with its storage's values in place of a recipe for them."""
    if isinstance(spec.values, Literal):
        return spec
    size = spec.storage_size
    storage = build_tensor(replace(spec, shape=(size,), strides=(1,), offset=0))
    return replace(spec, values=Literal(tuple(storage.tolist())))


def of_tensor(tensor: torch.Tensor, dtype: str) -> TensorSpec:
    """A row-major tensor of these values."""
    shape = tuple(tensor.shape)
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(tensor.flatten().tolist())))


def contiguous(spec: TensorSpec) -> TensorSpec:
    """The same values in row-major order, without gaps or a beginning left out."""
    return of_tensor(build_tensor(spec), spec.dtype)


def is_plain_layout(spec: TensorSpec) -> bool:
    """Whether it lies as `contiguous` would lay it."""
    return spec.offset == 0 and spec.strides == contiguous_strides(spec.shape)


def compact(spec: TensorSpec) -> TensorSpec:
    """The same order of dimensions in memory, expanded ones still expanded, without gaps between elements."""
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
    """Only these places along `dim`. A layout of its own is kept where they follow each other."""
    chosen = list(indices)
    if is_plain_layout(spec) or chosen != list(range(chosen[0], chosen[0] + len(chosen))):
        tensor = build_tensor(spec)
        bits = tensor.view(_SIGNED.get(tensor.dtype, tensor.dtype))
        return of_tensor(bits.index_select(dim, torch.tensor(chosen, dtype=torch.int64)).view(tensor.dtype), spec.dtype)
    shape = (*spec.shape[:dim], len(chosen), *spec.shape[dim + 1 :])
    return _rebased(literal(spec), shape, spec.strides, chosen[0] * spec.strides[dim])


def without_dim(spec: TensorSpec, dim: int) -> TensorSpec:
    """The first slice along `dim`."""
    shape = (*spec.shape[:dim], *spec.shape[dim + 1 :])
    if is_plain_layout(spec):
        return of_tensor(build_tensor(spec).select(dim, 0), spec.dtype)
    return _rebased(literal(spec), shape, (*spec.strides[:dim], *spec.strides[dim + 1 :]), 0)


def _rebased(spec: TensorSpec, shape: tuple[int, ...], strides: tuple[int, ...], skipped: int) -> TensorSpec:
    """A view of `spec` that begins `skipped` elements later, and no more storage than it needs."""
    assert isinstance(spec.values, Literal)
    view = replace(spec, shape=shape, strides=strides)
    start = spec.offset + skipped
    end = max(start, start - spec.offset + view.storage_size)
    if spec.offset == 0:
        return replace(view, values=Literal(spec.values.values[start:end]))
    return replace(view, offset=start, values=Literal(spec.values.values[:end]))


def element(spec: TensorSpec, place: Sequence[int]) -> TensorSpec:
    """One element, given its place in a shape that `spec` broadcasts to, as a vector of one."""
    own = place[len(place) - len(spec.shape) :]
    index = tuple(0 if size == 1 else i for i, size in zip(own, spec.shape, strict=True))
    return of_tensor(build_tensor(spec)[index].reshape(1), spec.dtype)


def cast(spec: TensorSpec, dtype: str) -> TensorSpec | None:
    """The same values in another dtype; None where it cannot hold them but for rounding."""
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
    """The storage's values."""
    values = literal(spec).values
    assert isinstance(values, Literal)
    return values.values


def with_numbers(spec: TensorSpec, values: Sequence[PlainNumber]) -> TensorSpec:
    """Other values in the same storage."""
    return replace(spec, values=Literal(tuple(values)))


def is_special(number: PlainNumber) -> bool:
    """NaN, an infinity or −0.0: values that code treats apart."""
    if not isinstance(number, float):
        return False
    return not math.isfinite(number) or (number == 0.0 and math.copysign(1.0, number) < 0.0)


def element_type(dtype: str) -> type[bool] | type[int] | type[float]:
    """The Python type of its elements."""
    if dtype == "bool":
        return bool
    return float if is_float(dtype) else int
