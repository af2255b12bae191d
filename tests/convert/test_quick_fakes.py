"""The quick way to compute the form of results agrees with PyTorch's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from harness.convert.fast.tracing import quick_fakes

#: Those of a kind stand together, so that the second may be known from the first.
SHAPES = ((2, 3), (5, 7), (4, 1), (3,), (), (0, 3))
DTYPES = (torch.float16, torch.int64, torch.bool)
CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: torch.mul(a, b),
    "where": lambda a, b: torch.where(a > b, a, b),
    "number": lambda a, b: a * 2.5,
    "clamp": lambda a, b: torch.clamp(a, 0, a.shape[-1] if a.dim() else 1),
    "cast": lambda a, b: a.to(b.dtype) if a.dtype != b.dtype else a.to(torch.float64),
    "transposed": lambda a, b: a.mT * 2 if a.dim() > 1 else a * 2,
    "adjacent": lambda a, b: a.mT + b.mT if min(a.dim(), b.dim()) > 1 else a + b,
}


def _found(call: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> object:
    mode = FakeTensorMode()
    try:
        with mode, torch.no_grad():
            result = call(mode.from_tensor(a), mode.from_tensor(b))
    except Exception as error:
        return type(error), str(error)
    return tuple(result.shape), result.stride(), result.dtype, str(result.device)


@pytest.mark.parametrize("name", CALLS)
def test_results_known_from_other_calls_are_those_that_pytorch_finds(name: str) -> None:
    call = CALLS[name]
    for (one, other), (first, second) in itertools.product(
        itertools.product(SHAPES, repeat=2), itertools.product(DTYPES, repeat=2)
    ):
        a, b = torch.zeros(one, dtype=first), torch.zeros(other, dtype=second)
        wanted = _found(call, a, b)
        with quick_fakes():
            assert _found(call, a, b) == wanted, (one, other, first, second)
