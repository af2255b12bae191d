"""Several operator calls as one PyTorch program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from harness.core.tensors import BoundCall, output_tensors


@dataclass(frozen=True)
class OperatorCall:
    """One call of a program.

    Attributes:
        tensors: How many it takes from outside.
        results: How many tensors it returns.
        buffers: Place among the tensors of `call` → name and tensor of a buffer of the module.
    """

    call: BoundCall
    tensors: int
    results: int
    buffers: Mapping[int, tuple[str, torch.Tensor]] = field(default_factory=dict)


class OperatorCalls(torch.nn.Module):
    """Makes every call once, side by side; nothing flows from one to another.

    The program takes the tensors of all calls in their order, and returns all that the calls return.

    Raises:
        KeyError: Two buffers have one name, or a buffer has that of a member of modules.
    """

    def __init__(self, calls: Sequence[OperatorCall]) -> None:
        super().__init__()
        self.calls = tuple(calls)
        for call in calls:
            for name, tensor in call.buffers.values():
                self.register_buffer(name, tensor)

    @property
    def has_buffers(self) -> bool:
        """Whether the module holds buffers, which exporters name after it."""
        return any(call.buffers for call in self.calls)

    @property
    def overloads(self) -> frozenset[str]:
        """The names of the operators that are called."""
        return frozenset(str(target) for call in self.calls for target in call.call.targets)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return all outputs, in the order of the calls."""
        outputs: list[torch.Tensor] = []
        start = 0
        for call in self.calls:
            given = [*tensors[start : start + call.tensors]]
            for place, (name, _) in sorted(call.buffers.items()):
                given.insert(place, getattr(self, name))
            outputs.extend(output_tensors(call.call(given)))
            start += call.tensors
        return tuple(outputs)
