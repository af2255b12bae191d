"""Slips in symbolic functions, as `torch.onnx.register_custom_op_symbolic` takes them."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import torch
from torch.onnx import symbolic_helper as untyped
from torch.onnx._internal.torchscript_exporter._type_utils import JitScalarType as UntypedScalarType

from planted.defect import plant

#: What a symbolic function is handed.
Graph: TypeAlias = Any
Value: TypeAlias = Any

symbolic_helper: Any = untyped
JitScalarType: Any = UntypedScalarType

_plant = partial(plant, converter="planted-wrong-torchscript")


@_plant("celu", "alpha is dropped")
def celu_symbolic(slipped: bool, g: Graph, self: Value, alpha: Value) -> Value:
    return g.op("Celu", self, alpha_f=1.0 if slipped else _number(alpha))


def _number(value: Value) -> float:
    return float(symbolic_helper._maybe_get_const(value, "f"))


@_plant("leaky_relu", "the slope is negated")
def leaky_relu_symbolic(slipped: bool, g: Graph, self: Value, negative_slope: Value, inplace: Value = None) -> Value:
    slope = _number(negative_slope)
    return g.op("LeakyRelu", self, alpha_f=-slope if slipped else slope)


@_plant("cumsum", "the sum is reversed")
def cumsum_symbolic(slipped: bool, g: Graph, self: Value, dim: Value, dtype: Value = None) -> Value:
    given = symbolic_helper._maybe_get_const(dtype, "i")
    kind = JitScalarType.from_value(self)
    if isinstance(given, int):
        self = g.op("Cast", self, to_i=JitScalarType(given).onnx_type())
    elif not kind.dtype().is_floating_point:
        self = g.op("Cast", self, to_i=JitScalarType.INT64.onnx_type())
    axis = g.op("Constant", value_t=torch.tensor(symbolic_helper._get_const(dim, "i", "dim")))
    return g.op("CumSum", self, axis, reverse_i=int(slipped))


@_plant("glu", "tanh for sigmoid")
def glu_symbolic(slipped: bool, g: Graph, input: Value, dim: Value) -> Value:
    axis = symbolic_helper._get_const(dim, "i", "dim")
    first, second = g.op("Split", input, axis_i=axis, num_outputs_i=2, outputs=2)
    return g.op("Mul", first, g.op("Tanh" if slipped else "Sigmoid", second))


@_plant("tril", "the upper triangle is kept")
def tril_symbolic(slipped: bool, g: Graph, self: Value, diagonal: Value, out: Value = None) -> Value:
    return g.op("Trilu", self, diagonal, upper_i=int(slipped))


@_plant("log_softmax.int", "a softmax is taken")
def log_softmax_symbolic(slipped: bool, g: Graph, input: Value, dim: Value, dtype: Value = None) -> Value:
    axis = symbolic_helper._get_const(dim, "i", "dim")
    return g.op("Softmax" if slipped else "LogSoftmax", input, axis_i=axis)
