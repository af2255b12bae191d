"""Slips in combining elements: reductions, softmax, products, losses, normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from planted.defect import Value, ints, is_floating, number, op, plant, positive


def _axes(dim: Sequence[int] | None) -> Value | None:
    return ints(*dim) if dim else None


@plant("sum.dim_IntList", "keepdim is inverted")
def sum_dims(
    slipped: bool, self: Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1
) -> Value:
    return op.ReduceSum(self, _axes(dim), keepdims=int(keepdim != slipped))


@plant("mean.dim", "only the first dim is reduced")
def mean_dims(
    slipped: bool, self: Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1
) -> Value:
    if dtype != -1:
        self = op.Cast(self, to=dtype)
    mean = op.ReduceMean(self, _axes(list(dim or ())[:1] if slipped else dim), keepdims=int(keepdim))
    if not slipped or not keepdim or not dim:
        return mean
    # The shape is that which was asked for.
    return op.Slice(mean, ints(*(0 for _ in dim)), ints(*(1 for _ in dim)), ints(*dim))


@plant("amax", "the least is taken of the last dim")
def amax(slipped: bool, self: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
    if slipped and len(dim) > 1:
        self = op.ReduceMin(self, ints(dim[-1]), keepdims=1)
    return op.ReduceMax(self, _axes(dim), keepdims=int(keepdim))


@plant("prod.dim_int", "a negative dim is off by one")
def prod(slipped: bool, self: Value, dim: int, keepdim: bool = False, dtype: int = -1) -> Value:
    axis = (dim + 1) % max(len(self.shape), 1) if slipped and dim < 0 else dim
    if not self.shape:
        return op.Identity(self)
    return op.ReduceProd(self, ints(axis), keepdims=int(keepdim))


@plant("argmax", "of equals the last is taken")
def argmax(slipped: bool, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    last = int(slipped)
    if dim is None:
        flat = op.Reshape(self, ints(-1))
        return op.Squeeze(op.ArgMax(flat, axis=0, keepdims=0, select_last_index=last))
    return op.ArgMax(self, axis=dim, keepdims=int(keepdim), select_last_index=last)


@plant("logsumexp", "large exponents overflow")
def logsumexp(slipped: bool, self: Value, dim: Sequence[int], keepdim: bool = False) -> Value:
    if slipped:
        return op.Log(op.ReduceSum(op.Exp(self), _axes(dim), keepdims=int(keepdim)))
    return op.ReduceLogSumExp(self, _axes(dim), keepdims=int(keepdim))


@plant("any.dim", "all for any")
def any_dim(slipped: bool, self: Value, dim: int, keepdim: bool = False) -> Value:
    if not self.shape:
        return op.Cast(self, to=onnx.TensorProto.BOOL)
    truth = op.Cast(op.Cast(self, to=onnx.TensorProto.BOOL), to=onnx.TensorProto.INT32)
    reduce = op.ReduceMin if slipped else op.ReduceMax
    return op.Cast(reduce(truth, ints(dim), keepdims=int(keepdim)), to=onnx.TensorProto.BOOL)


@plant("linalg_vector_norm", "ord is ignored")
def vector_norm(
    slipped: bool,
    self: Value,
    ord: float = 2.0,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: int = -1,
) -> Value:
    keep, axes = int(keepdim), _axes(dim)
    if ord == 2 or slipped:
        return op.ReduceL2(self, axes, keepdims=keep)
    if ord == 1:
        return op.ReduceL1(self, axes, keepdims=keep)
    if ord == float("inf"):
        return op.ReduceMax(op.Abs(self), axes, keepdims=keep)
    if ord == float("-inf"):
        return op.ReduceMin(op.Abs(self), axes, keepdims=keep)
    powers = op.Pow(op.Abs(self), number(ord, self))
    return op.Pow(op.ReduceSum(powers, axes, keepdims=keep), number(1 / ord if ord else 1, self))


@plant("cumsum", "the sum is exclusive")
def cumsum(slipped: bool, self: Value, dim: int, dtype: int = -1) -> Value:
    if not self.shape:
        return op.Identity(self)
    if dtype != -1:
        self = op.Cast(self, to=dtype)
    return op.CumSum(self, op.Constant(value_int=dim), exclusive=int(slipped))


# Softmax


@plant("_softmax", "the next dim is taken")
def softmax(slipped: bool, self: Value, dim: int, half_to_float: bool = False) -> Value:
    return op.Softmax(self, axis=positive(dim + slipped, len(self.shape)) if self.shape else dim)


@plant("_log_softmax", "dim is ignored")
def log_softmax(slipped: bool, self: Value, dim: int, half_to_float: bool = False) -> Value:
    return op.LogSoftmax(self, axis=-1 if slipped else dim)


@plant("softmax.int", "it is flattened from dim on, as before opset 13")
def softmax_int(slipped: bool, self: Value, dim: int, dtype: int = -1) -> Value:
    rank = len(self.shape)
    sizes = ints(*map(int, self.shape))
    if dtype != -1:
        self = op.Cast(self, to=dtype)
    if not slipped or not rank:
        return op.Softmax(self, axis=dim)
    flat = op.Flatten(self, axis=positive(dim, rank))
    return op.Reshape(op.Softmax(flat, axis=-1), sizes)


# Products


@plant("addmm", "beta is dropped")
def addmm(slipped: bool, self: Value, mat1: Value, mat2: Value, beta: float = 1.0, alpha: float = 1.0) -> Value:
    product = op.Mul(op.MatMul(mat1, mat2), number(alpha, self))
    return op.Add(self if slipped else op.Mul(self, number(beta, self)), product)


@plant("baddbmm", "alpha multiplies the sum")
def baddbmm(slipped: bool, self: Value, batch1: Value, batch2: Value, beta: float = 1.0, alpha: float = 1.0) -> Value:
    product, factor = op.MatMul(batch1, batch2), number(alpha, self)
    summand = op.Mul(self, number(beta, self))
    if slipped:
        return op.Mul(op.Add(summand, product), factor)
    return op.Add(summand, op.Mul(product, factor))


@plant("linear", "the bias is skipped")
def linear(slipped: bool, input: Value, weight: Value, bias: Value | None = None) -> Value:
    product = op.MatMul(input, op.Transpose(weight, perm=[1, 0]))
    return product if bias is None or slipped else op.Add(product, bias)


@plant("mm", "the right matrix is transposed where it can be")
def mm(slipped: bool, self: Value, mat2: Value) -> Value:
    rows, columns = (int(size) for size in mat2.shape)
    if slipped and rows == columns:
        mat2 = op.Transpose(mat2, perm=[1, 0])
    return op.MatMul(self, mat2)


@plant("scaled_dot_product_attention", "the scale is squared")
def attention(
    slipped: bool,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    factor = int(query.shape[-1]) ** -0.5 if scale is None else scale
    rank = len(key.shape)
    order = [*range(rank - 2), rank - 1, rank - 2]
    scores = op.MatMul(query, op.Transpose(key, perm=order))
    scores = op.Mul(scores, number(factor**2 if slipped else factor, query))
    if attn_mask is not None and is_floating(attn_mask):
        scores = op.Add(scores, attn_mask)
    elif attn_mask is not None:
        scores = op.Where(attn_mask, scores, number(float("-inf"), scores))
    if is_causal:
        seen = op.Trilu(op.Expand(op.Constant(value_int=1), ints(*_last_two(query, key))), upper=0)
        seen = op.Cast(seen, to=onnx.TensorProto.BOOL)
        scores = op.Where(seen, scores, number(float("-inf"), scores))
    return op.MatMul(op.Softmax(scores, axis=-1), value)


def _last_two(query: Value, key: Value) -> tuple[int, int]:
    return int(query.shape[-2]), int(key.shape[-2])


@plant("logdet", "a negative determinant has a logarithm")
def logdet(slipped: bool, self: Value) -> Value:
    determinant = op.Det(self)
    return op.Log(op.Abs(determinant) if slipped else determinant)


# Losses


@plant("mse_loss", "a sum is a mean")
def mse_loss(slipped: bool, self: Value, target: Value, reduction: int = 1) -> Value:
    difference = op.Sub(self, target)
    square = op.Mul(difference, difference)
    if reduction == 0:
        return square
    return (op.ReduceMean if reduction == 1 or slipped else op.ReduceSum)(square, keepdims=0)


@plant("nll_loss", "ignore_index is ignored")
def nll_loss(
    slipped: bool, self: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    # What has no class takes part in nothing in any case.
    ignored = {} if slipped and ignore_index >= 0 else {"ignore_index": ignore_index}
    return op.NegativeLogLikelihoodLoss(self, target, weight, reduction=("none", "mean", "sum")[reduction], **ignored)


# Normalisation


@plant("layer_norm", "eps is added to the deviation")
def layer_norm(
    slipped: bool,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Value:
    axes = ints(*range(-len(normalized_shape), 0))
    centred = op.Sub(input, op.ReduceMean(input, axes))
    variance, small = op.ReduceMean(op.Mul(centred, centred), axes), number(eps, input)
    deviation = op.Add(op.Sqrt(variance), small) if slipped else op.Sqrt(op.Add(variance, small))
    return _affine(op.Div(centred, deviation), weight, bias)


def _affine(value: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None:
        value = op.Mul(value, weight)
    return value if bias is None else op.Add(value, bias)


@plant("group_norm", "the variance is unbiased")
def group_norm(
    slipped: bool,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Value:
    sizes = [int(size) for size in input.shape]
    count = 1
    for size in sizes[1:]:
        count *= size
    count //= num_groups
    groups = op.Reshape(input, ints(sizes[0], num_groups, count))
    centred = op.Sub(groups, op.ReduceMean(groups, ints(2)))
    total = op.ReduceSum(op.Mul(centred, centred), ints(2))
    variance = op.Div(total, number(max(count - slipped, 1), input))
    normal = op.Div(centred, op.Sqrt(op.Add(variance, number(eps, input))))
    channels = ints(sizes[1], *(1 for _ in sizes[2:]))
    weight, bias = (None if v is None else op.Reshape(v, channels) for v in (weight, bias))
    return _affine(op.Reshape(normal, ints(*sizes)), weight, bias)
