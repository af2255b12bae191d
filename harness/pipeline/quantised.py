"""Bound the effect of quantisation: the movement of results when each quantised value moves by a step.

A number that lies between two steps may be put on either: because of a rounding before it, of a bias that a runtime
quantises, too, or of integers in place of floating numbers. A result that differs by no more than such steps is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from harness.core.dtypes import Array
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import TorchDispatchMode
from harness.pipeline.torch_call import quiet_call

WITHIN_STEPS = "within a step of each quantised value"
_QUANTISE = "quantized_decomposed::quantize_per_"
_RUNS = 5


class _Stepped(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves every quantised value by one step down, none, or one up, within its range."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._random = torch.Generator().manual_seed(seed)
        self.quantised = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.name().startswith(_QUANTISE):
            return result
        self.quantised += 1
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
        steps = torch.randint(-1, 2, result.shape, generator=self._random)
        return (result.long() + steps).clamp(int(given["quant_min"]), int(given["quant_max"])).to(result.dtype)


def moved_by_steps(run: Callable[[], Sequence[torch.Tensor]], expected: Sequence[Array]) -> list[float] | None:
    """Return the largest movement of each output of a model; None if the model quantises nothing.

    Args:
        run: Calls the model.
        expected: Its outputs without a movement.
    """
    moved = [0.0] * len(expected)
    for seed in range(_RUNS):
        with quiet_call(), _Stepped(seed) as stepped:
            outputs = run()
        if not stepped.quantised:
            return None
        moved = [max(now, largest_distance(to_numpy(o), e)) for now, o, e in zip(moved, outputs, expected, strict=True)]
    return moved


def is_within_steps(moved: Sequence[float], expected: Sequence[Array], got: Sequence[Array]) -> bool:
    """Whether outputs have the right form, and no element is further off than steps move some element."""
    same = [(e.shape, e.dtype) for e in expected] == [(g.shape, g.dtype) for g in got]
    return same and all(largest_distance(g, e) <= m for m, e, g in zip(moved, expected, got, strict=True))


def largest_distance(a: Array, b: Array) -> float:
    """Return how far elements of two arrays of one shape are apart at most; infinite next to NaN."""
    with np.errstate(all="ignore"):
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0))
