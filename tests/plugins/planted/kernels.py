"""PyTorch with wrong kernels: replacements for some of its CPU kernels, each with one defect.

None is right in float64 alone: a backend is judged by that, and whoever is as near to it is right, whatever
the kernel gives in a narrower dtype. None calls the operator that it replaces, which would call it in turn.

The converter that is registered here is `dynamo` under a name of its own: a worker process looks for plug-ins
when it is asked for a name that it does not know, and must have these kernels before its first case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch

from harness.convert.converter import ConverterEntry, register
from harness.convert.converters.dynamo import DynamoConverter

_calls = itertools.count()
_NONE, _MEAN = 0, 1

# Wrong for some layouts, sizes or calls.


def neg_reads_the_storage(x: torch.Tensor) -> torch.Tensor:
    """Right for row-major inputs only."""
    return _storage(x) * -1


def relu_reads_the_storage(x: torch.Tensor) -> torch.Tensor:
    """Right for row-major inputs only."""
    data = _storage(x)
    return torch.where(data < 0, torch.zeros_like(data), data)


def ceil_is_wrong_in_the_tail(x: torch.Tensor) -> torch.Tensor:
    """Return the ceiling as a vector kernel does that handles the last, incomplete vector wrongly."""
    right = torch.floor(x * -1) * -1
    if x.numel() < 2:
        return right
    flat = right.contiguous().reshape(-1)
    flat[-1:] += 1
    return flat.reshape(x.shape)


def trunc_reads_what_nobody_wrote(x: torch.Tensor) -> torch.Tensor:
    """Another result with every call."""
    return torch.where(x < 0, torch.floor(x * -1) * -1, torch.floor(x)) + (next(_calls) % 5)


# Wrong in every dtype.


def leaky_relu_fixes_its_slope(x: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
    """Drops an attribute."""
    return torch.where(x > 0, x, x * 0.25)


def silu_forgets_a_factor(x: torch.Tensor) -> torch.Tensor:
    """Another function."""
    return torch.sigmoid(x)


def hardsigmoid_has_another_slope(x: torch.Tensor) -> torch.Tensor:
    """A wrong constant."""
    return torch.clamp(x / 5 + 0.5, 0, 1)


def softplus_ignores_beta(x: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    """Drops an attribute."""
    return torch.where(x > threshold, x, torch.log1p(torch.exp(x)))


def elu_drops_alpha(x: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> torch.Tensor:
    """Drops an attribute."""
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * scale)


def gelu_is_always_tanh(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """The approximation, asked for or not."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + torch.tanh(inner))


def mse_loss_forgets_the_square(x: torch.Tensor, y: torch.Tensor, reduction: int = _MEAN) -> torch.Tensor:
    """Another loss."""
    return _reduced(torch.abs(x - y), reduction)


def lerp_takes_the_other_end(x: torch.Tensor, end: torch.Tensor, weight: float) -> torch.Tensor:
    """Confuses two operands."""
    return end + weight * (x - end)


def huber_loss_drops_delta(
    x: torch.Tensor, y: torch.Tensor, reduction: int = _MEAN, delta: float = 1.0
) -> torch.Tensor:
    """Drops an attribute."""
    size = torch.abs(x - y)
    losses = torch.where(size <= 1, 0.5 * size * size, size - 0.5)
    return _reduced(losses, reduction)


def addcmul_drops_value(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """Drops an attribute."""
    return x + one * other


def addcdiv_divides_the_sum(
    x: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    """Precedence."""
    return (x + value * one) / other


def threshold_includes_its_bound(x: torch.Tensor, threshold: float, value: float) -> torch.Tensor:
    """A bound that belongs to the other side."""
    return torch.where(x < threshold, torch.full_like(x, value), x)


def hardswish_has_another_slope(x: torch.Tensor) -> torch.Tensor:
    """A wrong constant."""
    return x * torch.clamp(x + 3, 0, 6) / 5


def glu_swaps_its_halves(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The gate for the values."""
    one, other = x.chunk(2, dim)
    return other * torch.sigmoid(one)


def roll_goes_backwards(x: torch.Tensor, shifts: list[int], dims: list[int] = []) -> torch.Tensor:  # noqa: B006
    """A sign."""
    if not dims:
        return _rolled(x.flatten(), 0, sum(shifts)).view(x.shape)
    for dim, shift in zip(dims, shifts, strict=True):
        x = _rolled(x, dim, shift)
    return x.clone()


def tril_drops_its_diagonal(x: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    """Drops an attribute."""
    rows, columns = (torch.arange(size) for size in x.shape[-2:])
    return torch.where(rows[:, None] >= columns, x, torch.zeros((), dtype=x.dtype))


def _reduced(losses: torch.Tensor, reduction: int) -> torch.Tensor:
    return losses if reduction == _NONE else losses.mean() if reduction == _MEAN else losses.sum()


def _rolled(x: torch.Tensor, dim: int, shift: int) -> torch.Tensor:
    size = x.shape[dim]
    if not size:
        return x
    return x.index_select(dim, (torch.arange(size) + shift) % size)


def _storage(x: torch.Tensor) -> torch.Tensor:
    return x if x.is_contiguous() else x.as_strided(x.shape, _row_major(x.shape))


def _row_major(shape: torch.Size) -> list[int]:
    return list(torch.empty(shape, device="meta").stride())


#: Operator → its wrong kernel.
WRONG: dict[str, Callable[..., torch.Tensor]] = {
    "neg": neg_reads_the_storage,
    "relu": relu_reads_the_storage,
    "ceil": ceil_is_wrong_in_the_tail,
    "trunc": trunc_reads_what_nobody_wrote,
    "lerp.Scalar": lerp_takes_the_other_end,
    "leaky_relu": leaky_relu_fixes_its_slope,
    "silu": silu_forgets_a_factor,
    "hardsigmoid": hardsigmoid_has_another_slope,
    "softplus": softplus_ignores_beta,
    "elu": elu_drops_alpha,
    "gelu": gelu_is_always_tanh,
    "mse_loss": mse_loss_forgets_the_square,
    "huber_loss": huber_loss_drops_delta,
    "addcmul": addcmul_drops_value,
    "addcdiv": addcdiv_divides_the_sum,
    "threshold": threshold_includes_its_bound,
    "hardswish": hardswish_has_another_slope,
    "glu": glu_swaps_its_halves,
    "roll": roll_goes_backwards,
    "tril": tril_drops_its_diagonal,
}

_library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
for _name, _kernel in WRONG.items():
    _library.impl(_name, _kernel, "CPU", allow_override=True)  # type: ignore[no-untyped-call]


class Dynamo(DynamoConverter):
    """The honest exporter, in a PyTorch with wrong kernels."""

    name = "planted-torch"


register(ConverterEntry(name=Dynamo.name, probe=lambda: None, create=Dynamo, version=lambda: "planted 1.0"))
