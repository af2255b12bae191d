"""Quantisation with integers: numbers become places on a grid, and back.

The operators of `torch.ao`'s quantised models (PT2E), in the namespace ``quantized_decomposed``. ONNX has
`QuantizeLinear` and `DequantizeLinear` for them, which know no range but that of the dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.compare.judge import EXACT, Allowance, Judge, Mask
from harness.core.dtypes import ALL, PRECISION, Array
from harness.core.invocation import Enumerated, TensorSpec
from harness.generate.draw import Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("quantized")

#: Dtype of the grid → ranges, the whole one first. Of int32 float32 holds no more.
_RANGES = {
    "int8": ((-128, 127), (-127, 127), (-8, 7), (0, 127), (-1, 1), (-128, 0), (-9, -2)),
    "uint8": ((0, 255), (0, 127), (0, 15), (1, 254)),
    "int16": ((-32768, 32767), (-2048, 2047)),
    "int32": ((-(2**24), 2**24), (-128, 127)),
}
_SCALES = (0.1, 1.0, 0.5, 0.037, 2.0, 1e-3, 300.0)


def _places(arguments: Mapping[str, Any]) -> Array:
    """Return the place of each element among the integers of the grid, in float64."""
    data, axis = arguments["input"], arguments.get("axis")
    scale = np.asarray(arguments.get("scale", arguments.get("scales")), dtype=np.float64)
    zero = np.asarray(arguments.get("zero_point", arguments.get("zero_points")), dtype=np.float64)
    if axis is not None:
        shape = [-1 if i == axis % data.ndim else 1 for i in range(data.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    elif scale.size == 1:
        scale, zero = scale.reshape(()), zero.reshape(())
    group = arguments.get("group_size")
    if group:
        scale, zero = np.repeat(scale, group, axis=-1), np.repeat(zero, group, axis=-1)
    with np.errstate(all="ignore"):
        return np.asarray(data.astype(np.float64) / scale + zero)


def _unplaceable(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """The conversion of NaN to an integer is undefined in C++ ([conv.fpint])."""
    return [np.isnan(_places(arguments))]


def _other_step(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Array | None]:
    """The neighbour on the other side of a tie: PyTorch multiplies by 1 / scale in float32, ONNX divides."""
    place = _places(arguments)
    precision = min(PRECISION[str(arguments["input"].dtype)], PRECISION["float32"])
    low, high = (float(np.asarray(arguments[name])) for name in ("quant_min", "quant_max"))
    result = expected[0].astype(np.float64)
    with np.errstate(all="ignore"):
        slack = (np.abs(place) + 256.0) * 2.0 ** (2 - precision)
        tie = np.abs(np.abs(place - np.floor(place)) - 0.5) <= slack
        below, above = (np.clip(f(place), low, high) for f in (np.floor, np.ceil))
        other = np.where(np.abs(result - below) < np.abs(result - above), above, below)
    return [np.where(tie & np.isfinite(other), other, result).astype(expected[0].dtype)]


PLACE = Judge(
    exact=True, undefined=Allowance("NaN has no place on a grid of integers", _unplaceable), alternatives=_other_step
)


def _grid(d: Draw, dtype: str | None = None) -> dict[str, Any]:
    """A dtype, and a range in it."""
    of = dtype or d.choose("int8", "int8", "uint8", "uint8", "int16", "int32")
    low, high = d.choose(*_RANGES[of])
    return {"quant_min": low, "quant_max": high, "dtype": Enumerated("dtype", of)}


def _zero(d: Draw, grid: Mapping[str, Any]) -> int:
    """Mostly one of an asymmetric grid."""
    low, high = max(grid["quant_min"], -128), min(grid["quant_max"], 255)
    usual = 0 if low <= 0 <= high else low
    return int(d.choose(usual, d.integer(low, high), low, high))


def _points(d: Draw, shape: Sequence[int], grid: Mapping[str, Any]) -> TensorSpec:
    low, high = max(grid["quant_min"], -128), min(grid["quant_max"], 127)
    return d.tensor(shape, "int64", between(low, high))


def _scales(d: Draw, shape: Sequence[int]) -> TensorSpec:
    """Draw scales in float64, as observers have them, or in float32."""
    return d.tensor(shape, d.choose("float64", "float32"), between(0.01, 2.0))


FROM = ("float32", "float16", "bfloat16")
TO = ("int8", "uint8", "int16", "int32")
_OUT = ("float32", "float16", "bfloat16", "float64")


def _out(d: Draw) -> Any:
    return d.maybe(lambda: d.dtype_argument(*_OUT), none=True)


@ops.case("quantized_decomposed.quantize_per_tensor.default", dtypes=FROM, judge=PLACE)
def quantize_per_tensor(d: Draw) -> Arguments:
    grid = _grid(d)
    return {"input": d.any_tensor(), "scale": d.choose(*_SCALES), "zero_point": _zero(d, grid), **grid}


@ops.case("quantized_decomposed.quantize_per_tensor.tensor", dtypes=FROM, judge=PLACE)
def quantize_by_tensors(d: Draw) -> Arguments:
    grid = _grid(d)
    shape = d.choose((), (1,))
    return {"input": d.any_tensor(), "scale": _scales(d, shape), "zero_point": _points(d, shape, grid), **grid}


@ops.case("quantized_decomposed.dequantize_per_tensor.default", dtypes=TO)
def dequantize_per_tensor(d: Draw) -> Arguments:
    grid = _grid(d, d.dtype)
    scale, zero = d.choose(*_SCALES), _zero(d, grid)
    return {"input": d.any_tensor(), "scale": scale, "zero_point": zero, **grid, "out_dtype": _out(d)}


@ops.case("quantized_decomposed.dequantize_per_tensor.tensor", dtypes=TO)
def dequantize_by_tensors(d: Draw) -> Arguments:
    grid = _grid(d, d.dtype)
    shape = d.choose((), (1,))
    scale, zero = _scales(d, shape), _points(d, shape, grid)
    return {"input": d.any_tensor(), "scale": scale, "zero_point": zero, **grid, "out_dtype": _out(d)}


def _channels(d: Draw) -> tuple[tuple[int, ...], int]:
    shape = d.shape(1)
    axis = d.integer(0, len(shape) - 1)
    return (*shape[:axis], shape[axis] or 1, *shape[axis + 1 :]), d.choose(axis, axis, axis - len(shape))


@ops.case("quantized_decomposed.quantize_per_channel.default", dtypes=FROM, judge=PLACE)
def quantize_per_channel(d: Draw) -> Arguments:
    grid = _grid(d)
    shape, axis = _channels(d)
    count = (shape[axis],)
    scales, points = _scales(d, count), _points(d, count, grid)
    return {"input": d.tensor(shape), "scales": scales, "zero_points": points, "axis": axis, **grid}


@ops.case("quantized_decomposed.dequantize_per_channel.default", dtypes=TO)
def dequantize_per_channel(d: Draw) -> Arguments:
    grid = _grid(d, d.dtype)
    shape, axis = _channels(d)
    count = (shape[axis],)
    return {
        "input": d.tensor(shape),
        "scales": _scales(d, count),
        "zero_points": d.choose(_points(d, count, grid), _points(d, count, grid), None),
        "axis": axis,
        **grid,
        "out_dtype": _out(d),
    }


@ops.case("quantized_decomposed.quantize_per_token.default", dtypes=FROM, judge=PLACE)
def quantize_per_token(d: Draw) -> Arguments:
    grid = _grid(d)
    shape = d.shape()
    rows = (*shape[:-1], 1) if shape else ()
    return {"input": d.tensor(shape), "scales": _scales(d, rows), "zero_points": _points(d, rows, grid), **grid}


@ops.case("quantized_decomposed.dequantize_per_token.default", dtypes=TO)
def dequantize_per_token(d: Draw) -> Arguments:
    grid = _grid(d, d.dtype)
    shape = d.shape()
    rows = (*shape[:-1], 1) if shape else ()
    scales, points = _scales(d, rows), _points(d, rows, grid)
    output = {"output_dtype": d.dtype_argument(*_OUT)}
    return {"input": d.tensor(shape), "scales": scales, "zero_points": points, **grid, **output}


@ops.case("quantized_decomposed.convert_element_type.no_fuse", dtypes=("float32", "float16", "int8"), judge=EXACT)
def convert_element_type(d: Draw) -> Arguments:
    return {"input": d.any_tensor(), "dtype": d.dtype_argument(*ALL)}
