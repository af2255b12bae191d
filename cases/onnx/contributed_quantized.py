"""ONNX Runtime's quantised operators."""

from __future__ import annotations

from typing import Any

from cases.onnx.quantization import SCALES, draw_numbers, draw_zero_point
from harness.generate.draw import OMIT, Draw
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("contributed-quantized", "com.microsoft")


def _scale(d: Draw) -> Any:
    return draw_numbers(d, (), "float32", SCALES)


def _zero(d: Draw, dtype: str | None = None) -> Any:
    return draw_zero_point(d, (), dtype or d.dtype)


@ops.case("QLinearAdd", "QLinearMul")
def binary(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    return {
        "A": d.tensor(shape),
        "A_scale": _scale(d),
        "A_zero_point": _zero(d),
        "B": d.tensor(d.choose(shape, d.broadcastable(shape))),
        "B_scale": _scale(d),
        "B_zero_point": _zero(d),
        "C_scale": _scale(d),
        "C_zero_point": _zero(d),
    }


@ops.case("QLinearLeakyRelu", "QLinearSigmoid")
def unary(d: Draw) -> Arguments:
    assert d.schema is not None
    return {
        "X": d.any_tensor(),
        "X_scale": _scale(d),
        "X_zero_point": _zero(d),
        "Y_scale": _scale(d),
        "Y_zero_point": _zero(d),
        "alpha": d.choose(OMIT, 0.5, 0.1, 2.0) if d.schema.attribute("alpha") is not None else OMIT,
    }


@ops.case("QLinearSoftmax")
def softmax(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1, min_size=1)
    return {
        "X": d.tensor(shape),
        "X_scale": _scale(d),
        "x_zero_point": _zero(d),
        "y_scale": draw_numbers(d, (), "float32", (1 / 256, 1 / 255)),
        "y_zero_point": _zero(d),
        "opset": 13,
        "axis": d.dim(len(shape)),
    }


@ops.case("QLinearAveragePool")
def average_pool(d: Draw) -> Arguments:
    kernel, side = d.choose(2, 1, 3), d.choose(4, 3, 5)
    is_last = d.choose(False, False, True)
    channels = d.size(1, 3)
    return {
        "X": d.tensor((1, side, side, channels) if is_last else (1, channels, side, side)),
        "x_scale": _scale(d),
        "x_zero_point": _zero(d),
        "y_scale": _scale(d),
        "y_zero_point": _zero(d),
        "kernel_shape": [kernel, kernel],
        "strides": d.choose(OMIT, [1, 1], [2, 2]),
        "pads": d.choose(OMIT, [1, 1, 1, 1]) if kernel > 1 else OMIT,
        "count_include_pad": d.choose(OMIT, 0, 1),
        "channels_last": int(is_last),
    }


@ops.case("QLinearGlobalAveragePool")
def global_average_pool(d: Draw) -> Arguments:
    is_last = d.boolean()
    return {
        "X": d.tensor((d.size(1, 2), d.size(1, 4), d.size(1, 4), d.size(1, 4))),
        "x_scale": _scale(d),
        "x_zero_point": _zero(d),
        "y_scale": _scale(d),
        "y_zero_point": _zero(d),
        "channels_last": int(is_last),
    }


@ops.case("QLinearWhere", about="X")
def where(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    return {
        "condition": d.tensor(d.choose(shape, d.broadcastable(shape)), "bool"),
        "X": d.tensor(shape),
        "x_scale": _scale(d),
        "x_zero_point": _zero(d),
        "Y": d.tensor(d.choose(shape, d.broadcastable(shape))),
        "y_scale": _scale(d),
        "y_zero_point": _zero(d),
        "z_scale": _scale(d),
        "z_zero_point": _zero(d),
    }


@ops.case("QLinearConcat", about="Y_zero_point")
def concat(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1, min_size=1)
    axis = d.dim(len(shape))
    place = axis % len(shape)
    parts: list[Any] = []
    for _ in range(d.size(1, 3)):
        sizes = (*shape[:place], d.size(1, 4), *shape[place + 1 :])
        parts += [d.tensor(sizes), _scale(d), _zero(d)]
    return {"Y_scale": _scale(d), "Y_zero_point": _zero(d), "inputs": tuple(parts), "axis": axis}


@ops.case("QGemm")
def gemm(d: Draw) -> Arguments:
    rows, inner, columns = d.size(1, 5), d.size(1, 9), d.size(1, 5)
    turns_a, turns_b = d.boolean(), d.boolean()
    by_column = d.choose((), (), (columns,))
    other = d.choose("uint8", "int8")
    is_quantised = d.choose(True, True, False)
    return {
        "A": d.tensor((inner, rows) if turns_a else (rows, inner)),
        "a_scale": _scale(d),
        "a_zero_point": _zero(d),
        "B": d.tensor((columns, inner) if turns_b else (inner, columns), other),
        "b_scale": draw_numbers(d, by_column, "float32", SCALES),
        "b_zero_point": draw_zero_point(d, by_column, other),
        "C": d.maybe(lambda: d.tensor((columns,), "int32", ("range", -100, 100))),
        "y_scale": _scale(d) if is_quantised else OMIT,
        "y_zero_point": _zero(d) if is_quantised else OMIT,
        "transA": int(turns_a),
        "transB": int(turns_b),
        "alpha": d.choose(OMIT, 1.0, 0.5),
    }


@ops.case("DequantizeLinear")
def dequantize(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1, max_rank=4, min_size=1)
    axis = d.choose(OMIT, d.dim(len(shape)))
    scales = () if axis is OMIT else (shape[axis % len(shape)],)
    return {
        "x": d.tensor(shape),
        "x_scale": draw_numbers(d, scales, "float32", SCALES),
        "x_zero_point": d.maybe(lambda: draw_zero_point(d, scales, d.dtype)),
        "axis": axis,
    }


@ops.case("MatMulIntegerToFloat")
def integer_product(d: Draw) -> Arguments:
    rows, inner, columns = d.size(1, 5), d.size(1, 9), d.size(1, 5)
    other = d.choose("uint8", "int8")
    by_column = d.choose((), (columns,))
    return {
        "A": d.tensor((rows, inner)),
        "B": d.tensor((inner, columns), other),
        "a_scale": _scale(d),
        "b_scale": draw_numbers(d, by_column, "float32", SCALES),
        "a_zero_point": d.maybe(lambda: _zero(d)),
        "b_zero_point": d.maybe(lambda: draw_zero_point(d, by_column, other)),
        "bias": d.maybe(lambda: d.tensor((columns,), "float32")),
    }
