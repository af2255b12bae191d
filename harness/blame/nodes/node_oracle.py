"""The definition of a node as what `harness.compare.nearness` asks of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from harness.blame.nodes.definition import Definition
from harness.compare import Sensitivity, ulp
from harness.core import PRECISION, Array

#: Evaluations with inputs that are moved by their last place.
_NEIGHBOURS = 4


class NodeOracle:
    """A `nearness.Oracle`.

    Args:
        definition: Of the node.
        strict: Take the inputs for what they are, and excuse nothing by how far they may be rounded.
    """

    unscaled = flushed = None

    def __init__(self, definition: Definition, *, strict: bool = False) -> None:
        self._definition = definition
        self._strict = strict

    @cached_property
    def expected(self) -> tuple[Array, ...]:
        """The wide results, rounded to the node's dtypes."""
        own, truth = self._definition.own, self._definition.truth
        if truth is None:
            return own
        # What is too large for the node's dtype is infinite in it.
        with np.errstate(over="ignore"):
            return tuple(
                o if t is None or o.shape != t.shape or str(o.dtype) not in PRECISION else t.astype(o.dtype)
                for o, t in zip(own, truth, strict=True)
            )

    @cached_property
    def truth(self) -> tuple[Array | None, ...] | None:
        """The wide results in float64; those of an operator that only chooses are its own."""
        wide = self._definition.truth
        if wide is None:
            return tuple(a.astype(np.float64) if str(a.dtype) in PRECISION else None for a in self._definition.own)
        return tuple(None if a is None else a.astype(np.float64) for a in wide)

    @cached_property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """The sums of the terms' magnitudes, of an operator that sums."""
        if not self._definition.accumulates:
            return None
        return _in_float64(self._definition.of_terms(np.abs))

    @cached_property
    def marked(self) -> tuple[Array | None, ...] | None:
        """The same with 1 for every finite number."""
        if not self._definition.accumulates:
            return None
        return _in_float64(
            self._definition.of_terms(lambda a: np.where(np.isfinite(a), 1.0, np.abs(a)).astype(a.dtype))
        )

    @cached_property
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """How far results move when inputs do by their last place."""
        truth = self._definition.truth
        if truth is None or self._strict:
            return None
        moved = [self._moved(seed) for seed in range(_NEIGHBOURS)]
        found: list[Sensitivity | None] = []
        for i, o in enumerate(truth):
            others = [m[i] for m in moved if m is not None]
            if o is None or not others or any(a is None or a.shape != o.shape for a in others):
                found.append(None)
                continue
            with np.errstate(all="ignore"):
                steps = [np.abs(a - o).astype(np.float64) for a in others if a is not None]
                far = np.max([np.where(np.isfinite(s), s, 0.0) for s in steps], axis=0)
            found.append(Sensitivity(far, np.zeros(o.shape)))
        return tuple(found)

    def _moved(self, seed: int) -> Sequence[Array | None] | None:
        random = np.random.Generator(np.random.PCG64(seed))
        floats = [str(a.dtype) for a in self._definition.inputs.values() if str(a.dtype) in PRECISION]
        dtype = min(floats, key=PRECISION.__getitem__)

        def move(values: Array) -> Array:
            finite = np.isfinite(values) & (values != 0)
            size = ulp(np.where(finite, values, 1.0).astype(np.float64), dtype)
            chance = random.integers(0, 2, values.shape) * 2.0 - 1.0
            return np.where(finite, values + chance * size, values).astype(values.dtype)

        return self._definition.wide(move)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The inputs."""
        return self._definition.inputs


def _in_float64(found: Sequence[Array | None] | None) -> tuple[Array | None, ...] | None:
    if found is None:
        return None
    return tuple(None if a is None else a.astype(np.float64) for a in found)
