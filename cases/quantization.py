"""Quantisation that stays in floating point: every number rounded to the nearest of a grid.

Tensors of quantised dtypes have no counterpart among an operator's inputs and outputs in ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.compare.judge import EXACT, Allowance, Judge, Mask
from harness.core.dtypes import ALL, FLOATS, PRECISION, Array
from harness.generate.draw import Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("quantization")

ops.simple("dequantize.self", dtypes=ALL, judge=EXACT)


def _places(arguments: Mapping[str, Any]) -> tuple[Array, Array, Array]:
    """Return the place of each element among the integers of the grid, the scale and the zero point, in float64."""
    data, axis = arguments["self"], arguments.get("axis")
    scale, zero = (np.asarray(arguments[name], dtype=np.float64) for name in ("scale", "zero_point"))
    if axis is not None:
        shape = [-1 if i == axis % data.ndim else 1 for i in range(data.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    scale = scale.astype(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(data.astype(np.float64) / scale + zero), scale, zero


def _unplaceable(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Beyond int64 and for NaN the conversion to an integer is undefined in C++ ([conv.fpint])."""
    place, _, _ = _places(arguments)
    return [np.asarray(~(np.abs(place) < 2.0**31))]


def _other_step(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Array | None]:
    """The neighbour on the other side of a tie.

    PyTorch documents nearbyint(x / scale) and computes nearbyint(x · (1 / scale)), in float32: within some
    units in the last place of a tie either neighbour is right.
    """
    place, scale, zero = _places(arguments)
    low, high = arguments["quant_min"], arguments["quant_max"]
    precision = min(PRECISION[str(arguments["self"].dtype)], PRECISION["float32"])
    result = expected[0].astype(np.float64)
    with np.errstate(all="ignore"):
        slack = (np.abs(place) + 256.0) * 2.0 ** (2 - precision)
        tie = np.abs(np.abs(place - np.floor(place)) - 0.5) <= slack
        below, above = ((np.clip(f(place), low, high) - zero) * scale for f in (np.floor, np.ceil))
        other = np.where(np.abs(result - below) < np.abs(result - above), above, below)
    return [np.where(tie, other, result).astype(expected[0].dtype)]


GRID = Judge(undefined=Allowance("a step that no integer holds", _unplaceable), alternatives=_other_step)
_RANGES = ((-128, 127), (0, 255), (0, 127), (0, 1), (-8, 7), (-8, 0), (-9, -2), (1, 15))


def _grid(d: Draw) -> tuple[int, int]:
    return d.choose(*_RANGES)


@ops.case("fake_quantize_per_tensor_affine", dtypes=FLOATS, judge=GRID)
def per_tensor(d: Draw) -> Arguments:
    low, high = _grid(d)
    return {
        "self": d.any_tensor(),
        "scale": d.choose(0.1, 1.0, 0.5, 0.037, 2.0),
        "zero_point": d.integer(low, high),
        "quant_min": low,
        "quant_max": high,
    }


@ops.case("fake_quantize_per_tensor_affine.tensor_qparams", dtypes=FLOATS, judge=GRID)
def per_tensor_by_tensors(d: Draw) -> Arguments:
    low, high = _grid(d)
    return {
        "self": d.any_tensor(),
        "scale": d.tensor(d.choose((1,), ()), "float32", between(0.05, 2.0)),
        "zero_point": d.tensor(d.choose((1,), ()), "int32", between(low, high)),
        "quant_min": low,
        "quant_max": high,
    }


@ops.case("fake_quantize_per_channel_affine", dtypes=FLOATS, judge=GRID)
def per_channel(d: Draw) -> Arguments:
    low, high = _grid(d)
    shape = d.shape(1)
    axis = d.integer(0, len(shape) - 1)
    shape = (*shape[:axis], shape[axis] or 1, *shape[axis + 1 :])
    points = d.choose("int32", "int32", "float32")
    return {
        "self": d.tensor(shape),
        "scale": d.tensor((shape[axis],), "float32", between(0.05, 2.0)),
        "zero_point": d.tensor((shape[axis],), points, between(low, high)),
        "axis": axis,
        "quant_min": low,
        "quant_max": high,
    }
