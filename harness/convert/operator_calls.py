"""Several operator calls as one PyTorch program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.core.tensors import BoundCall, output_tensors


@dataclass(frozen=True)
class OperatorCall:
    """One call of a program.

    Attributes:
        tensors: How many it takes.
        results: How many tensors it returns.
    """

    call: BoundCall
    tensors: int
    results: int


class OperatorCalls(torch.nn.Module):
    """Makes every call once, side by side; nothing flows from one to another.

    The program takes the tensors of all calls in their order, and returns all that the calls return.
    """

    def __init__(self, calls: Sequence[OperatorCall]) -> None:
        super().__init__()
        self.calls = tuple(calls)

    @property
    def overloads(self) -> frozenset[str]:
        """The names of the operators that are called."""
        return frozenset(str(call.call.target) for call in self.calls)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return all outputs, in the order of the calls."""
        outputs: list[torch.Tensor] = []
        start = 0
        for call in self.calls:
            outputs.extend(output_tensors(call.call(tensors[start : start + call.tensors])))
            start += call.tensors
        return tuple(outputs)
