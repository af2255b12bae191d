"""A change that an optimiser makes to a graph; importing it takes no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """A change that an optimiser made to a graph.

    Attributes:
        name: The pass, or the rewrite rule.
        outputs: The graph outputs that depend on the rewritten nodes; empty for a pass.
    """

    name: str
    outputs: frozenset[str] = frozenset()
