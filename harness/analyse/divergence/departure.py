"""Is a value that a backend computed explained by the values that it was computed from?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from harness.analyse.divergence.graph import PyTorchGraph, Region
from harness.compare import CLOSE, OutputComparison, compare, tolerance_of
from harness.core import PRECISION, Array, output_tensors
from harness.execute import Move, RoundingOracle, quiet_call, to_numpy
from harness.generate import OPERATOR_CASES

#: Elements that are compared at once.
_PIECE = 1 << 21


@dataclass(frozen=True)
class Departure:
    """A value that its inputs do not explain, compared with what PyTorch makes of the same inputs."""

    region: Region
    comparison: OutputComparison


def check(
    graph: PyTorchGraph, region: Region, get: Callable[[Node], Any], got: Array, *, thorough: bool
) -> Departure | None:
    """Compare a checkpoint's value with PyTorch's result for the backend's own values of its sources.

    Args:
        get: The values of the region's sources.
        got: The backend's value.
        thorough: Judge each element; else a value is passed over whose largest error is within the tolerance
            of its largest element, which costs a fraction.
    """
    with quiet_call():
        value = graph.compute(region.nodes, get)[region.node]
    expected = to_numpy(value)
    if expected.dtype == got.dtype and expected.shape == got.shape and _is_close(expected, got, thorough):
        return None
    comparison = judged(graph, region, get, (expected,), (got,))
    return Departure(region, comparison) if comparison.problem is not None else None


def judged(
    graph: PyTorchGraph,
    region: Region,
    get: Callable[[Node], Any],
    expected: tuple[Array, ...],
    got: Sequence[Array],
) -> OutputComparison:
    """A checkpoint's value element by element, by the rules for models, or by its operator's own rules."""

    @contextmanager
    def wide() -> Iterator[Callable[[Move], Sequence[torch.Tensor]]]:
        def compute(move: Move) -> Sequence[torch.Tensor]:
            given = {node: get(node) for node in region.sources}
            moved = {node: move(v.double()) if _is_floating(v) else v for node, v in given.items()}
            return output_tensors(graph.compute(region.nodes, moved.__getitem__)[region.node])

        yield compute

    dtypes = {str(a.dtype) for a in expected}
    dtypes |= {str(v.dtype).removeprefix("torch.") for n in region.sources if isinstance(v := get(n), torch.Tensor)}
    oracle = RoundingOracle(expected, dtypes, wide)
    calls = region.operators
    if len(calls) == 1 and calls[0] is region.node:
        case = OPERATOR_CASES.get(str(calls[0].target))
        if case is not None and case.judge.rules:
            oracle.arguments = _arguments(calls[0], get)
            return compare(case.judge, oracle, got)
    return compare(oracle.judge, oracle, got)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _arguments(node: Node, get: Callable[[Node], Any]) -> Mapping[str, Any]:
    schema = node.target._schema.arguments  # type: ignore[union-attr]

    def plain(value: Any) -> Any:
        return to_numpy(value) if isinstance(value, torch.Tensor) else value

    args = torch.fx.map_arg(node.args, lambda n: plain(get(n)))
    kwargs = torch.fx.map_arg(node.kwargs, lambda n: plain(get(n)))
    return {a.name: v for a, v in zip(schema, args, strict=False)} | dict(kwargs)


def _is_close(expected: Array, got: Array, thorough: bool) -> bool:
    """Whether no closer look is needed; in pieces, since a value may take a good part of the memory."""
    dtype = str(expected.dtype)
    if dtype not in PRECISION:
        return bool(np.array_equal(expected, got))
    tolerance = tolerance_of(CLOSE, dtype)
    e, g = expected.reshape(-1), got.reshape(-1)
    scale, worst = 0.0, 0.0
    for start in range(0, max(e.size, 1), _PIECE):
        piece, other = (array[start : start + _PIECE].astype(np.float64) for array in (e, g))
        same = (piece == other) | (np.isnan(piece) & np.isnan(other))
        with np.errstate(all="ignore"):
            error = np.where(same, 0.0, np.abs(other - piece))
        if not np.isfinite(error).all():
            return False
        if thorough and (error > tolerance.allowed(piece)).any():
            return False
        finite = piece[np.isfinite(piece)]
        scale = max(scale, float(np.abs(finite).max(initial=0.0)))
        worst = max(worst, float(error.max(initial=0.0)))
    return thorough or worst <= float(tolerance.allowed(np.asarray(scale)))
