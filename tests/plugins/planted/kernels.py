"""PyTorch with wrong kernels: replacements for some of its CPU kernels, each with one defect.

None calls the operator that it replaces, which would call it in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

_calls = itertools.count()


def neg_reads_the_storage(x: torch.Tensor) -> torch.Tensor:
    """Right for row-major inputs only."""
    data = x if x.is_contiguous() else x.as_strided(x.shape, _row_major(x.shape))
    return data * -1


def ceil_is_wrong_in_the_tail(x: torch.Tensor) -> torch.Tensor:
    """As a vector kernel that handles the last, incomplete vector wrongly."""
    right = torch.floor(x * -1) * -1
    if x.numel() < 2:
        return right
    flat = right.contiguous().reshape(-1)
    flat[-1:] += 1
    return flat.reshape(x.shape)


def abs_reads_what_nobody_wrote(x: torch.Tensor) -> torch.Tensor:
    """Another result with every call."""
    right = torch.where(x < 0, x * -1, x)
    return right + (next(_calls) % 5)


def leaky_relu_fixes_its_slope(x: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
    """In every dtype."""
    return torch.where(x > 0, x, x * 0.25)


def silu_forgets_a_factor(x: torch.Tensor) -> torch.Tensor:
    """In every dtype."""
    return torch.sigmoid(x)


def hardsigmoid_has_another_slope(x: torch.Tensor) -> torch.Tensor:
    """In every dtype."""
    return torch.clamp(x / 5 + 0.5, 0, 1)


def softplus_ignores_beta(x: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    """In every dtype."""
    return torch.where(x > threshold, x, torch.log1p(torch.exp(x)))


def floor_is_wrong_in_float32(x: torch.Tensor) -> torch.Tensor:
    """Right in float64."""
    right = torch.trunc(x)
    right = torch.where(right > x, right - 1, right)
    return right + 1 if x.dtype is torch.float32 else right


def _row_major(shape: torch.Size) -> list[int]:
    return list(torch.empty(shape, device="meta").stride())


#: Operator → its wrong kernel.
WRONG: dict[str, Callable[..., torch.Tensor]] = {
    "neg": neg_reads_the_storage,
    "ceil": ceil_is_wrong_in_the_tail,
    "abs": abs_reads_what_nobody_wrote,
    "leaky_relu": leaky_relu_fixes_its_slope,
    "silu": silu_forgets_a_factor,
    "hardsigmoid": hardsigmoid_has_another_slope,
    "softplus": softplus_ignores_beta,
}

_library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
for _name, _kernel in WRONG.items():
    _library.impl(_name, _kernel, "CPU", allow_override=True)  # type: ignore[no-untyped-call]
