"""Describe a tensor seen in a model as a specification with a recipe for similar values.

The description is exact where that is short: few elements, one repeated value, positions that count up, a causal mask.
Otherwise the shape, dtype and strides are kept, and values are drawn with the tensor's mean, deviation, range and
shares of zeros and of -inf, to three digits.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

import torch

from harness.core.invocation import Literal, Recipe, TensorSpec, contiguous_strides

#: Storage elements up to which values are kept: for integers, whose exact values matter more, and for other dtypes.
_EXACT_INTEGERS, _EXACT = 64, 8
#: Elements that statistics are taken from; larger tensors are sampled evenly.
_SAMPLED = 1 << 18
#: A storage with more than this many times the tensor's elements is replaced by a contiguous one.
_SPARSEST = 4


def describe_tensor(tensor: torch.Tensor, place: str, *, exact: int | None = None) -> TensorSpec:
    """Return the specification of `tensor`.

    Args:
        tensor: A tensor whose dtype invocations support.
        place: A name for where the tensor was seen; the seed depends on it, so that equal shapes get different values.
        exact: Storage elements up to which values are kept; None means the default.
    """
    tensor = tensor.detach()
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    dtype = str(tensor.dtype).removeprefix("torch.")
    spec = TensorSpec(shape, dtype, strides, int(tensor.storage_offset()), Literal(()))
    if _is_sparse(spec):
        spec = replace(spec, offset=0)
    if _is_sparse(spec) or not spec.numel:
        spec = replace(spec, strides=contiguous_strides(shape), offset=0)
    storage = _storage(tensor, spec)
    floating = tensor.is_floating_point() or tensor.is_complex()
    limit = exact if exact is not None else _EXACT if floating else _EXACT_INTEGERS
    values: Recipe | Literal
    if storage.numel() <= limit:
        values = Literal(tuple(storage.tolist()))
    else:
        seed = zlib.crc32(f"{place} {dtype}{list(shape)}".encode())
        values = Recipe(_domain(storage, spec), "plain", seed)
    return replace(spec, values=values)


def _is_sparse(spec: TensorSpec) -> bool:
    return spec.storage_size > _SPARSEST * max(spec.numel, 16)


def _storage(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Return the storage elements that `spec` covers, as far as `tensor` has them."""
    if spec.strides != tuple(tensor.stride()) or tensor.is_conj() or tensor.is_neg():
        return tensor.contiguous().reshape(-1)
    return tensor.as_strided((spec.storage_size,), (1,), int(tensor.storage_offset()) - spec.offset)


def _domain(storage: torch.Tensor, spec: TensorSpec) -> tuple[str | int | float, ...]:
    if storage.is_complex():
        return _floating(torch.view_as_real(storage).reshape(-1))
    first = storage[0]
    if bool((storage == first).all()) or (storage.is_floating_point() and bool(storage.isnan().all())):
        return ("constant", _word(first.item()))
    if spec.is_contiguous and spec.offset == 0:
        special = _steps(storage, spec) or _triangular(storage, spec)
        if special is not None:
            return special
    if storage.dtype is torch.bool:
        return ("share", _rounded(float(storage.double().mean())))
    if not storage.is_floating_point():
        return _integers(storage)
    return _floating(storage)


def _steps(storage: torch.Tensor, spec: TensorSpec) -> tuple[str | int | float, ...] | None:
    """Return the domain of values that count up by integer steps within each row; None if they do not."""
    run = spec.shape[-1] if spec.shape else 1
    if run < 2 or storage.dtype is torch.bool:
        return None
    start, step = storage[0].item(), (storage[1] - storage[0]).item()
    if not (float(start).is_integer() and float(step).is_integer()) or step == 0:
        return None
    row = start + step * torch.arange(run, dtype=torch.float64)
    same = bool((storage.reshape(-1, run).double() == row).all())
    return ("steps", int(start), int(step), run) if same else None


def _triangular(storage: torch.Tensor, spec: TensorSpec) -> tuple[str | int | float, ...] | None:
    """Return the domain of matrices whose two values are separated by a diagonal; None if they are not."""
    if len(spec.shape) < 2 or min(spec.shape[-2:]) < 2:
        return None
    rows, columns = spec.shape[-2:]
    inside, outside = storage[(rows - 1) * columns].item(), storage[columns - 1].item()
    first = storage[:columns]
    if inside == outside or not bool(((first == inside) | (first == outside)).all()):
        return None
    matrices = storage.reshape(-1, rows, columns)
    diagonal = int((first == inside).sum()) - 1
    where = torch.ones(rows, columns, dtype=torch.bool).tril(diagonal)
    wanted = torch.where(where, torch.tensor(inside).to(storage), torch.tensor(outside).to(storage))
    if not bool((matrices == wanted).all()):
        return None
    return ("triangular", rows, columns, diagonal, _word(inside), _word(outside))


def _integers(storage: torch.Tensor) -> tuple[str | int | float, ...]:
    low, high = int(storage.min()), int(storage.max())
    if bool((storage[1:] >= storage[:-1]).all()):
        return ("sorted", low, high)
    if (low, high) == (0, 1):
        return ("share", _rounded(float(storage.double().mean())))
    return ("range", low, high)


def _floating(storage: torch.Tensor) -> tuple[str | int | float, ...]:
    sample = storage[:: max(1, -(-storage.numel() // _SAMPLED))].double()
    finite = sample[sample.isfinite()]
    minus_infinite = _rounded(float((sample == -torch.inf).double().mean()))
    ordinary = finite[finite != 0]
    zeros = _rounded((finite.numel() - ordinary.numel()) / sample.numel())
    if not ordinary.numel():
        ordinary = torch.zeros(1, dtype=torch.float64)
    deviation = float(ordinary.std(unbiased=False))
    numbers = (float(ordinary.mean()), deviation, float(ordinary.min()), float(ordinary.max()))
    statistics = tuple(map(_rounded, numbers))
    return ("like", *statistics, zeros, *((minus_infinite,) if minus_infinite else ()))


def _rounded(value: float) -> float:
    """Round to three digits, so that machines agree and recipes stay short."""
    return float(f"{value:.2e}")


def _word(value: bool | int | float) -> str | int | float:
    """Return the number, or its text where JSON has no number for it."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return repr(value)
    return "nan" if value != value else value
