"""Quantised operators."""

from __future__ import annotations

from typing import Any

from harness.core.invocation import Literal, TensorSpec, contiguous_strides
from harness.core.onnx_arrays import element_type
from harness.generate.draw import OMIT, Draw
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("quantization")
#: Powers of two, by which divisions are exact, and others.
SCALES = (0.5, 0.25, 1.0, 0.1, 2.0, 0.0078125)
_QUANTISED = ("uint8", "int8", "uint16", "int16", "int4", "uint4", "float8_e4m3fn", "float8_e5m2", "int2", "uint2")
_FURTHER = ("float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn")


def draw_numbers(d: Draw, shape: tuple[int, ...], dtype: str, options: tuple[float, ...]) -> TensorSpec:
    count = 1
    for size in shape:
        count *= size
    return TensorSpec(
        shape, dtype, contiguous_strides(shape), 0, Literal(tuple(d.choose(*options) for _ in range(count)))
    )


def _granularity(d: Draw) -> tuple[tuple[int, ...], tuple[int, ...], Any, Any]:
    """Return a shape, the shape of its scales, the axis and the block size."""
    assert d.schema is not None
    shape = d.shape(min_rank=1, max_rank=4, min_size=1, max_size=9)
    axis = d.dim(len(shape))
    place = axis % len(shape)
    has_axis = d.schema.attribute("axis") is not None
    has_blocks = d.schema.attribute("block_size") is not None
    kind = d.choose("tensor", "axis" if has_axis else "tensor", "block" if has_blocks else "tensor")
    if kind == "tensor":
        return shape, d.choose((), (), (1,)) if len(shape) == 1 else (), OMIT, OMIT
    if kind == "axis":
        return (
            shape,
            (shape[place],),
            OMIT if place == 1 and d.boolean() else axis,
            d.choose(OMIT, 0) if has_blocks else OMIT,
        )
    block = d.choose(2, 1, 3, 4)
    shape = (*shape[:place], block * d.choose(1, 2, 3), *shape[place + 1 :])
    scales = (*shape[:place], shape[place] // block, *shape[place + 1 :])
    return shape, scales, axis, block


def draw_zero_point(d: Draw, shape: tuple[int, ...], dtype: str) -> TensorSpec:
    if dtype.startswith("float"):
        return draw_numbers(d, shape, dtype, (0.0,))
    if dtype.startswith("u"):
        return draw_numbers(d, shape, dtype, (0, 1, 3, 2) if dtype == "uint2" else (0, 1, 7, 12))
    return draw_numbers(d, shape, dtype, (0, 1, -1, -2) if dtype == "int2" else (0, 1, -3, 5))


@ops.case("QuantizeLinear")
def quantize(d: Draw) -> Arguments:
    assert d.schema is not None
    shape, scales, axis, block = _granularity(d)
    known = [t for t in (*_QUANTISED, *_FURTHER) if t in d.schema.outputs[0].dtypes]
    target = d.choose(*known[:2], *known)
    by_point = d.choose(True, True, False) or d.schema.attribute("output_dtype") is None
    leaves_out = by_point and target == "uint8" and d.choose(False, False, True)
    shares = d.schema.inputs[0].variable == d.schema.inputs[1].variable
    return {
        "x": d.tensor(shape),
        "y_scale": draw_numbers(d, scales, _scale_dtype(d), SCALES if d.dtype != "int32" or not shares else (1.0, 2.0)),
        "y_zero_point": draw_zero_point(d, scales, target) if by_point and not leaves_out else OMIT,
        "axis": axis,
        "block_size": block,
        "output_dtype": OMIT if by_point else element_type(target),
        "saturate": d.flag() if target.startswith("float8") else OMIT,
    }


def _scale_dtype(d: Draw) -> str:
    assert d.schema is not None
    if d.schema.inputs[0].variable == d.schema.inputs[1].variable:
        return d.dtype
    return d.choose(d.dtype if d.dtype in d.schema.inputs[1].dtypes else "float32", "float32")


@ops.case("DequantizeLinear", narrow=True)
def dequantize(d: Draw) -> Arguments:
    assert d.schema is not None
    shape, scales, axis, block = _granularity(d)
    (parameter,) = (p for p in d.schema.inputs if p.name == "x_scale")
    known = [t for t in ("float32", "float16", "bfloat16") if t in parameter.dtypes]
    # The text wants no zero point of int32 but 0.
    has_point = d.dtype != "int32" and d.boolean()
    return {
        "x": d.tensor(shape),
        "x_scale": draw_numbers(d, scales, d.choose(*known), SCALES),
        "x_zero_point": draw_zero_point(d, scales, d.dtype) if has_point else OMIT,
        "axis": axis,
        "block_size": block,
    }


@ops.case("DynamicQuantizeLinear")
def dynamic_quantize(d: Draw) -> Arguments:
    return {"x": d.tensor(d.shape(min_size=1), domain=("finite",)), "outputs": 3}


@ops.case("QLinearMatMul")
def quantised_product(d: Draw) -> Arguments:
    rows, inner, columns = d.size(1, 5), d.size(1, 9), d.size(1, 5)
    other, result = d.choose("uint8", "int8"), d.choose("uint8", "int8")
    by_column = d.choose((), (), (columns,))
    return {
        "a": d.tensor((rows, inner)),
        "a_scale": draw_numbers(d, (), "float32", SCALES),
        "a_zero_point": draw_zero_point(d, (), d.dtype),
        "b": d.tensor((inner, columns), other),
        "b_scale": draw_numbers(d, by_column, "float32", SCALES),
        "b_zero_point": draw_zero_point(d, by_column, other),
        "y_scale": draw_numbers(d, (), "float32", SCALES),
        "y_zero_point": draw_zero_point(d, (), result),
    }


@ops.case("QLinearConv")
def quantised_convolution(d: Draw) -> Arguments:
    outputs, side, kernel = d.choose(2, 1, 3), d.choose(4, 3, 5), d.choose(2, 1, 3)
    other = d.choose("uint8", "int8")
    by_channel = d.choose((), (), (outputs,))
    return {
        "x": d.tensor((1, 2, side, side)),
        "x_scale": draw_numbers(d, (), "float32", SCALES),
        "x_zero_point": draw_zero_point(d, (), d.dtype),
        "w": d.tensor((outputs, 2, kernel, kernel), other),
        "w_scale": draw_numbers(d, by_channel, "float32", SCALES),
        "w_zero_point": draw_zero_point(d, by_channel, other),
        "y_scale": draw_numbers(d, (), "float32", SCALES),
        "y_zero_point": draw_zero_point(d, (), d.dtype),
        "B": d.maybe(lambda: d.tensor((outputs,), "int32", ("range", -100, 100))),
        "pads": d.choose(OMIT, [1, 1, 1, 1]) if kernel > 1 else OMIT,
        "strides": d.choose(OMIT, [2, 2]),
    }
