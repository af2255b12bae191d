"""What PyTorch says to a call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Acceptance:
    """PyTorch's answer.

    Attributes:
        refusal: Its message, "" where it took the call; ``died`` or ``hung`` where it took its process
            along.
        shapes: Of the output tensors.
    """

    refusal: str
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def taken(self) -> bool:
        """Whether PyTorch took the call."""
        return not self.refusal
