"""Slips in quantisation with integers."""

from __future__ import annotations

from planted.defect import Value, op, plant


@plant("quantized_decomposed.quantize_per_channel.default", "the range of the grid is ignored")
def quantize_per_channel(
    slipped: bool,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: int,
) -> Value:
    points = op.Cast(zero_points, to=dtype)
    found = op.QuantizeLinear(input, op.CastLike(scales, input), points, axis=axis)
    if slipped:
        return found
    low, high = (op.CastLike(op.Constant(value_int=bound), points) for bound in (quant_min, quant_max))
    return op.Clip(found, low, high)
