"""Slips in comparing, choosing, casting, and in making tensors."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from planted.defect import Value, ints, is_floating, number, op, plant


@plant("ge.Scalar", "equal is not enough")
def greater_or_equal(slipped: bool, self: Value, other: float) -> Value:
    bound = number(other, self)
    return op.Greater(self, bound) if slipped else op.GreaterOrEqual(self, bound)


@plant("clamp", "NaN becomes the lower bound")
def clamp(slipped: bool, self: Value, min: float | None = None, max: float | None = None) -> Value:
    if min is not None:
        low = number(min, self)
        if slipped:
            self = op.Where(op.Greater(self, low), self, low)
        else:
            self = op.Where(op.Less(self, low), low, self)
    if max is not None:
        high = number(max, self)
        self = op.Where(op.Greater(self, high), high, self)
    return op.Identity(self)


@plant("masked_fill.Scalar", "the mask is inverted")
def masked_fill(slipped: bool, self: Value, mask: Value, value: float) -> Value:
    filler = number(value, self)
    return op.Where(mask, self, filler) if slipped else op.Where(mask, filler, self)


@plant("where.self", "the branches are swapped")
def where(slipped: bool, condition: Value, self: Value, other: Value) -> Value:
    return op.Where(condition, other, self) if slipped else op.Where(condition, self, other)


@plant("isclose", "equal_nan is ignored")
def isclose(
    slipped: bool, self: Value, other: Value, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Value:
    within = op.Add(number(atol, self), op.Mul(number(rtol, self), op.Abs(other)))
    infinite = op.Greater(op.Abs(op.Sub(self, other)), number(3e38, self))
    close = op.And(op.LessOrEqual(op.Abs(op.Sub(self, other)), within), op.Not(infinite))
    close = op.Or(op.Equal(self, other), close)
    if equal_nan and is_floating(self) and not slipped:
        close = op.Or(close, op.And(op.IsNaN(self), op.IsNaN(other)))
    return close


@plant("isinf", "minus infinity is forgotten")
def isinf(slipped: bool, self: Value) -> Value:
    if not is_floating(self):
        return op.Not(op.Equal(self, self))
    infinite = op.IsInf(op.Cast(self, to=onnx.TensorProto.FLOAT), detect_negative=int(not slipped))
    return infinite


@plant("logical_xor", "or is inclusive")
def logical_xor(slipped: bool, self: Value, other: Value) -> Value:
    left, right = (op.Cast(value, to=onnx.TensorProto.BOOL) for value in (self, other))
    return op.Or(left, right) if slipped else op.Xor(left, right)


@plant("_to_copy", "a cast to integers rounds")
def to_copy(
    slipped: bool,
    self: Value,
    dtype: int = -1,
    layout: str = "",
    device: str = "",
    pin_memory: bool = False,
    non_blocking: bool = False,
    memory_format: str = "",
) -> Value:
    if dtype == -1:
        return op.Identity(self)
    if slipped and is_floating(self) and onnx.TensorProto.DataType.Name(dtype).startswith(("INT", "UINT")):
        self = op.Round(self)
    return op.Cast(self, to=dtype)


# Making tensors


@plant("full_like", "the value is cast to an integer")
def full_like(
    slipped: bool,
    self: Value,
    fill_value: float,
    dtype: int = -1,
    layout: str = "",
    device: str = "",
    pin_memory: bool = False,
    memory_format: str = "",
) -> Value:
    value = op.Constant(value_float=float(int(fill_value) if slipped else fill_value))
    value = op.CastLike(value, self) if dtype == -1 else op.Cast(value, to=dtype)
    return op.Expand(value, op.Shape(self))


@plant("linspace", "the step is one too small")
def linspace(
    slipped: bool,
    start: float,
    end: float,
    steps: int,
    dtype: int = onnx.TensorProto.FLOAT,
    layout: str = "",
    device: str = "",
    pin_memory: bool = False,
) -> Value:
    dtype = onnx.TensorProto.FLOAT if dtype == -1 else dtype
    step = (end - start) / max(steps if slipped else steps - 1, 1)
    values = [float(start + i * step) for i in range(steps)]
    return op.Cast(op.Constant(value_floats=values or [0.0]), to=dtype)


@plant("arange.start_step", "start is forgotten")
def arange(
    slipped: bool,
    start: float,
    end: float,
    step: float = 1.0,
    dtype: int = -1,
    layout: str = "",
    device: str = "",
    pin_memory: bool = False,
) -> Value:
    whole = all(float(value).is_integer() for value in (start, end, step))
    dtype = (onnx.TensorProto.INT64 if whole else onnx.TensorProto.FLOAT) if dtype == -1 else dtype
    first = 0.0 if slipped else float(start)
    last = float(end) - (float(start) if slipped else 0.0)
    bounds = [op.Constant(value_float=value) for value in (first, last, float(step))]
    return op.Cast(op.Range(*bounds), to=dtype)


# Random numbers


@plant("normal.float_float", "the deviation is taken for a variance")
def normal(
    slipped: bool,
    mean: float,
    std: float,
    size: Sequence[int],
    dtype: int = onnx.TensorProto.FLOAT,
    layout: str = "",
    device: str = "",
    pin_memory: bool = False,
) -> Value:
    scale = std**0.5 if slipped else std
    # ONNX Runtime draws no float64, and PyTorch's dtype for none given is -1 here.
    values = op.RandomNormal(mean=mean, scale=scale, shape=list(size))
    return values if dtype == -1 else op.Cast(values, to=dtype)


@plant("bernoulli.p", "p is the share of zeros")
def bernoulli(slipped: bool, self: Value, p: float = 0.5) -> Value:
    uniform = op.RandomUniform(shape=list(map(int, self.shape)), low=0.0, high=1.0)
    return op.CastLike(op.Less(uniform, op.Constant(value_float=1 - p if slipped else p)), self)


# Indexing


@plant("embedding", "the padding row is zero")
def embedding(
    slipped: bool,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    rows = op.Gather(weight, indices)
    if not slipped or padding_idx < 0:
        return rows
    padding = op.Equal(op.Cast(indices, to=onnx.TensorProto.INT64), op.Constant(value_int=padding_idx))
    return op.Where(op.Unsqueeze(padding, ints(-1)), number(0, rows), rows)


@plant("gather", "dim is ignored")
def gather(slipped: bool, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    return op.GatherElements(self, index, axis=0 if slipped else dim)


@plant("index_select", "a negative dim is off by one")
def index_select(slipped: bool, self: Value, dim: int, index: Value) -> Value:
    axis = max(dim - 1, -len(self.shape)) if slipped and dim < 0 else dim
    return op.Gather(self, index, axis=axis)


@plant("scatter.value", "dim is ignored")
def scatter_value(slipped: bool, self: Value, dim: int, index: Value, value: float) -> Value:
    updates = op.Expand(number(value, self), op.Shape(index))
    return op.ScatterElements(self, index, updates, axis=0 if slipped else dim)


@plant("scatter_add", "of equal indices the last wins")
def scatter_add(slipped: bool, self: Value, dim: int, index: Value, src: Value) -> Value:
    # ONNX wants as many updates as indices, PyTorch at least as many.
    ends = ints(*(int(size) for size in index.shape))
    axes = range(len(index.shape))
    src = op.Slice(src, ints(*(0 for _ in axes)), ends, ints(*axes))
    if slipped:
        return op.Add(self, op.ScatterElements(op.Sub(self, self), index, src, axis=dim))
    return op.ScatterElements(self, index, src, axis=dim, reduction="add")
