"""Conversions that are wrong in the ways that conversions are wrong: one per operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset18

aten = torch.ops.aten
# Its signatures take constants for values of unknown type.
op: Any = opset18

#: What torch.onnx hands to a translation: values of the graph, and Python values for attributes.
Value = Any


def celu_drops_alpha(self: Value, alpha: float = 1.0) -> Value:
    return op.Celu(self, alpha=1.0)


def add_drops_alpha(self: Value, other: Value, alpha: float = 1.0) -> Value:
    return op.Add(self, other)


def trunc_division_floors(self: Value, other: Value, rounding_mode: str | None = None) -> Value:
    quotient = op.Div(self, other)
    return quotient if rounding_mode is None else op.Floor(quotient)


def sum_inverts_keepdim(
    self: Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1
) -> Value:
    axes = None if not dim else op.Constant(value_ints=list(dim))
    return op.ReduceSum(self, axes, keepdims=not keepdim)


def softmax_takes_the_next_dim(self: Value, dim: int, half_to_float: bool = False) -> Value:
    rank = max(len(self.shape), 1)
    return op.Softmax(self, axis=(dim + 1) % rank)


def relu_loses_nan(self: Value) -> Value:
    zero = op.CastLike(op.Constant(value_float=0.0), self)
    return op.Where(op.Greater(self, zero), self, zero)


def pad_swaps_both_ends(self: Value, pad: Sequence[int], value: float = 0.0) -> Value:
    # PyTorch lists the last dimension first, ONNX all beginnings before all ends.
    last_first = [(pad[i + 1], pad[i]) for i in range(0, len(pad), 2)]
    pairs = [(0, 0)] * (len(self.shape) - len(last_first)) + last_first[::-1]
    pads = [begin for begin, _ in pairs] + [end for _, end in pairs]
    filler = op.CastLike(op.Constant(value_float=float(value or 0.0)), self)
    return op.Pad(self, op.Constant(value_ints=pads), filler)


def cat_takes_the_first_axis(tensors: Sequence[Value], dim: int = 0) -> Value:
    return op.Concat(*tensors, axis=0)


def avg_pool_ignores_ceil_mode(
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    kernel = _pair(kernel_size)
    pads = _pair(padding)
    return op.AveragePool(
        self,
        kernel_shape=kernel,
        strides=_pair(stride) if stride else kernel,
        pads=[*pads, *pads],
        count_include_pad=int(count_include_pad),
    )


def _pair(sizes: Sequence[int]) -> list[int]:
    return [sizes[0], sizes[-1]]


def leaky_relu_fixes_its_slope(self: Value, negative_slope: float = 0.01) -> Value:
    return op.LeakyRelu(self, alpha=0.01)


def gelu_ignores_approximate(self: Value, approximate: str = "none") -> Value:
    half = op.CastLike(op.Constant(value_float=0.5), self)
    one = op.CastLike(op.Constant(value_float=1.0), self)
    root = op.CastLike(op.Constant(value_float=2.0**-0.5), self)
    return op.Mul(op.Mul(half, self), op.Add(one, op.Erf(op.Mul(self, root))))


def flip_takes_one_dim(self: Value, dims: Sequence[int]) -> Value:
    first = list(dims)[:1]
    if not first or not self.shape:
        return op.Identity(self)
    return op.Slice(
        self,
        op.Constant(value_ints=[-1]),
        op.Constant(value_ints=[-(2**62)]),
        op.Constant(value_ints=first),
        op.Constant(value_ints=[-1]),
    )


def argmax_takes_the_last_of_equals(self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    if dim is None:
        flat = op.Reshape(self, op.Constant(value_ints=[-1]))
        return op.Squeeze(op.ArgMax(flat, axis=0, keepdims=0, select_last_index=1))
    return op.ArgMax(self, axis=dim, keepdims=int(keepdim), select_last_index=1)


def round_goes_half_away(self: Value) -> Value:
    half = op.CastLike(op.Constant(value_float=0.5), self)
    return op.Mul(op.Sign(self), op.Floor(op.Add(op.Abs(self), half)))


def remainder_takes_the_sign_of_the_dividend(self: Value, other: Value) -> Value:
    return op.Mod(self, other, fmod=1)


def tril_ignores_the_diagonal(self: Value, diagonal: int = 0) -> Value:
    return op.Trilu(self, upper=0)


def sub_swaps_operands(self: Value, other: Value, alpha: float = 1.0) -> Value:
    return op.Sub(other, self)


def sigmoid_is_hard(self: Value) -> Value:
    return op.HardSigmoid(self, alpha=0.25, beta=0.5)


#: Operator → its wrong conversion, as `torch.onnx.export(custom_translation_table=…)` takes it.
WRONG: dict[Callable[..., Any], Callable[..., Any]] = {
    aten.celu.default: celu_drops_alpha,
    aten.add.Tensor: add_drops_alpha,
    aten.div.Tensor_mode: trunc_division_floors,
    aten.sum.dim_IntList: sum_inverts_keepdim,
    aten._softmax.default: softmax_takes_the_next_dim,
    aten.relu.default: relu_loses_nan,
    aten.constant_pad_nd.default: pad_swaps_both_ends,
    aten.cat.default: cat_takes_the_first_axis,
    aten.avg_pool2d.default: avg_pool_ignores_ceil_mode,
    aten.leaky_relu.default: leaky_relu_fixes_its_slope,
    aten.gelu.default: gelu_ignores_approximate,
    aten.flip.default: flip_takes_one_dim,
    aten.argmax.default: argmax_takes_the_last_of_equals,
    aten.round.default: round_goes_half_away,
    aten.remainder.Tensor: remainder_takes_the_sign_of_the_dividend,
    aten.tril.default: tril_ignores_the_diagonal,
    aten.sub.Tensor: sub_swaps_operands,
    aten.sigmoid.default: sigmoid_is_hard,
}
