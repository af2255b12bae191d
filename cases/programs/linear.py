"""Convolutions and products of matrices with what is fused into them."""

from __future__ import annotations

from harness.core.invocation import Result, TensorSpec, Weight
from harness.generate.draw import OMIT, Domain
from harness.generate.programs import ProgramDraw, pattern

POSITIVE = ("at_least", 0.1)


def _convolution(p: ProgramDraw) -> tuple[Result, int, int]:
    """A convolution, its rank and its channels."""
    rank, groups = p.choose(2, 2, 1, 3), p.choose(1, 1, 2)
    inputs, outputs = groups * p.integer(1, 2), groups * p.choose(1, 2, 3)
    kernel = p.choose(1, 2, 3)
    x = p.input((p.choose(1, 2), inputs, *(p.integer(3, 5) for _ in range(rank))))
    weight = p.operand((outputs, inputs // groups, *(kernel,) * rank))
    bias = p.choose(OMIT, p.operand((outputs,)))
    y = p.call(
        f"aten.conv{rank}d.default",
        input=x,
        weight=weight,
        bias=bias,
        stride=[p.choose(1, 1, 2)] * rank,
        padding=[p.choose(0, 1)] * rank,
        groups=groups,
    )
    return y, rank, outputs


@pattern("conv-bn", source="onnxruntime conv_bn_fusion.cc; onnxscript rules fuse_batchnorm")
def conv_bn(p: ProgramDraw) -> list[Result]:
    """A batch norm after a convolution, transposed or not, in evaluation mode."""
    if p.sometimes():
        channels = p.choose(1, 2, 4)
        x = p.input((1, 3, p.integer(2, 4), p.integer(2, 4)))
        y = p.call(
            "aten.conv_transpose2d.input",
            input=x,
            weight=p.operand((3, channels, 2, 2)),
            bias=p.choose(OMIT, p.weight((channels,))),
        )
    else:
        y, _, channels = _convolution(p)
    return [_normalised(p, y, channels), *_held_again(p)]


def _normalised(p: ProgramDraw, y: Result, channels: int) -> Result:
    # Half as precise values with parameters in float32, as mixed precision has them.
    mixed = p.dtype == "float16" and p.sometimes()
    dtype = "float32" if mixed else p.dtype
    tiny = p.choose(False, False, False, True)

    def parameter(domain: Domain = ("finite",)) -> TensorSpec | Result | Weight:
        return p.weight((channels,), dtype, domain) if mixed or tiny else p.operand((channels,), domain)

    return p.call(
        "aten.batch_norm.default",
        input=y,
        weight=p.choose(None, parameter(), parameter()),
        bias=p.choose(None, parameter(), parameter()),
        running_mean=parameter(),
        running_var=parameter(("range", 0.0, 1e-7) if tiny else POSITIVE),
        training=False,
        momentum=0.1,
        eps=p.choose(1e-5, 1e-5, 1e-3, 0.1, 0.0, 1e-8, 1e-12),
        cudnn_enabled=False,
    )


def _held_again(p: ProgramDraw) -> list[Result]:
    """Sometimes a weight of the first call, returned or read once more."""
    weights = [value for _, value in p.calls[0].arguments if isinstance(value, Weight)]
    if not weights or not p.sometimes():
        return []
    return [p.call(p.choose("aten.alias.default", "aten.alias.default", "aten.neg.default"), self=p.choose(*weights))]


@pattern("matmul-bn", source="onnxscript rules fuse_batchnorm (Gemm)")
def matmul_bn(p: ProgramDraw) -> list[Result]:
    """A batch norm after a linear layer, its bias given in one of several ways."""
    rows, inner, channels = p.integer(2, 4), p.integer(1, 4), p.integer(1, 4)
    x = p.input((rows, inner))
    kind = p.choose("linear", "addmm", "matmul-add")
    if kind == "linear":
        y = p.call(
            "aten.linear.default",
            input=x,
            weight=p.operand((channels, inner)),
            bias=p.choose(OMIT, p.operand((channels,))),
        )
    elif kind == "addmm":
        bias = p.operand(p.choose((channels,), (1, channels), (rows, 1), (rows, channels)))
        scale = p.choose(1, 1, 2, 0.5)
        y = p.call("aten.addmm.default", self=bias, mat1=x, mat2=p.operand((inner, channels)), beta=scale, alpha=1)
    else:
        product = p.call("aten.matmul.default", self=x, other=p.operand((inner, channels)))
        bias = p.operand(p.choose((channels,), (1,), (), (rows, channels)))
        y = p.call("aten.add.Tensor", self=product, other=bias, alpha=p.choose(OMIT, 2))
    return [_normalised(p, y, channels), *_held_again(p)]


@pattern("matmul-reshape", source="onnxscript rules broadcast_to_matmul; onnxruntime reshape_fusion")
def matmul_reshape(p: ProgramDraw) -> list[Result]:
    """A product of matrices between reshapes; the matrices may multiply without them, too, to as many elements."""
    scale = p.choose(1, 1, 2)
    rows, inner, columns = (scale * p.choose(1, 2, 3) for _ in range(3))
    # A product of `scale`² smaller matrices has as many operands and results as that of the larger ones.
    batch = scale * scale

    def reshaped(large: tuple[int, int]) -> Result:
        small = (large[0] // scale, large[1] // scale)
        given = p.choose(large, large, (1, *large), (batch, *small), (large[0] * large[1],))
        return p.call(
            "aten.reshape.default",
            self=p.input(given) if p.choose(True, False) else p.operand(given),
            shape=p.choose([batch, *small], [batch, -1, small[1]]),
        )

    small = (batch, inner // scale, columns // scale)
    right: object = reshaped((inner, columns)) if p.choose(True, True, False) else p.operand(small)
    y = p.call("aten.matmul.default", self=reshaped((rows, inner)), other=right)
    shape = p.choose([rows, columns], [rows, columns], [1, rows, columns], [rows, -1], [columns, rows])
    return [p.call("aten.reshape.default", self=y, shape=shape)]


@pattern("matmul-add", source="onnxruntime matmul_add_fusion.cc; onnxscript rules matmul_add_to_gemm")
def matmul_add(p: ProgramDraw) -> list[Result]:
    """A sum after a product of matrices, which may be transposed or scaled."""
    rows, inner, columns = p.integer(1, 4), p.integer(1, 4), p.integer(1, 4)
    batch = p.choose((), (), (2,), (1, 2))
    left = _maybe_transposed(p, (*batch, rows, inner))
    right = _maybe_transposed(p, p.choose((inner, columns), (*batch, inner, columns)))
    y = p.call("aten.matmul.default", self=left, other=right)
    scale = p.choose("none", "mul", "div")
    if scale != "none":
        factor = p.choose(p.weight(()), p.weight((1,)), p.weight((columns,)))
        y = p.call(f"aten.{scale}.Tensor", self=y, other=factor)
    shape = p.choose((columns,), (1, columns), (rows, 1), (1,), (), (rows, columns), (2, rows, columns))
    return [p.call("aten.add.Tensor", self=y, other=p.operand(shape), alpha=p.choose(OMIT, OMIT, 2))]


def _maybe_transposed(p: ProgramDraw, shape: tuple[int, ...]) -> object:
    """A tensor of a shape, or one that is transposed to it."""
    kind = p.choose("plain", "plain", "transposed", "permuted")
    if kind == "plain" or len(shape) < 2:
        return p.operand(shape)
    turned = (*shape[:-2], shape[-1], shape[-2])
    if kind == "transposed":
        return p.call("aten.transpose.int", self=p.input(turned), dim0=-2, dim1=-1)
    order = [*range(len(shape))][::-1]
    return p.call("aten.permute.default", self=p.input([shape[i] for i in order]), dims=order)


@pattern("conv-add-mul", source="onnxruntime conv_add_fusion.cc, conv_mul_fusion.cc")
def conv_add_mul(p: ProgramDraw) -> list[Result]:
    """A convolution whose result is shifted or scaled by a weight that broadcasts in one of several ways."""
    y, rank, channels = _convolution(p)
    ones = (1,) * rank
    for _ in range(p.choose(1, 1, 2)):
        shape = p.choose((channels, *ones), (1, channels, *ones), (1,), (), (1, *ones), (channels, *ones))
        y = p.call(p.choose("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor"), self=y, other=p.operand(shape))
    return [y]


@pattern(
    "conv-activation",
    source="onnxruntime conv_activation_fusion.cc, conv_add_act_fusion.cc; fuse_relu_clip",
)
def conv_activation(p: ProgramDraw) -> list[Result]:
    """An activation after a convolution or a product of matrices."""
    if p.sometimes():
        y = p.call(
            "aten.linear.default", input=p.input((2, 3)), weight=p.operand((2, 3)), bias=p.choose(OMIT, p.operand((2,)))
        )
    else:
        y, _, _ = _convolution(p)
        if p.sometimes():
            y = _residual(p, y)
    return [_activation(p, y)]


def _residual(p: ProgramDraw, y: Result) -> Result:
    """Add a value of the same shape: that of the same convolution of another input, or what reads this one."""
    call = p.calls[y.call]
    given = dict(call.arguments)
    other = y
    if p.usually(True, False) and isinstance(given["input"], TensorSpec):
        other = p.call(call.overload, **{**given, "input": p.input(given["input"].shape)})
    other = p.call("aten.neg.default", self=other)
    left, right = p.choose((y, other), (other, y))
    return p.call("aten.add.Tensor", self=left, other=right)


def _activation(p: ProgramDraw, y: Result) -> Result:
    kind = p.choose("relu", "sigmoid", "tanh", "leaky_relu", "clamp", "hardsigmoid", "elu", "hardswish")
    if kind == "leaky_relu":
        return p.call("aten.leaky_relu.default", self=y, negative_slope=p.choose(0.01, 0.0, 1.5, -0.1))
    if kind == "clamp":
        return p.call("aten.clamp.default", self=y, min=p.choose(None, 0.0, -1.0, 7.0), max=p.choose(6.0, 0.5, -2.0))
    if kind == "elu":
        return p.call("aten.elu.default", self=y, alpha=p.choose(1.0, 0.5))
    return p.call(f"aten.{kind}.default", self=y)


@pattern("pad-conv", source="onnxruntime pad_fusion.cc; onnxscript rules fuse_pad_into_conv")
def pad_conv(p: ProgramDraw) -> list[Result]:
    """A padding before a convolution or a pooling, which pads itself or not."""
    rank = p.choose(1, 2, 2)
    x = p.input((1, 2, *(p.integer(4, 6) for _ in range(rank))))
    pads = [p.choose(0, 1, 2, 1, -1) for _ in range(2 * rank)]
    if p.choose(False, False, False, True):
        pads += [p.choose(0, 1), 0]
    value = p.choose(OMIT, 0.0, 0.0, -0.0, 1e-9, 1.5, float("-inf"))
    y = p.call("aten.constant_pad_nd.default", self=x, pad=pads, value=value)
    kind = p.choose("conv", "conv", "max_pool", "avg_pool")
    padding = [p.choose(0, 1)] * rank
    channels = 2 + sum(pads[2 * rank :])
    if kind == "conv":
        return [
            p.call(
                f"aten.conv{rank}d.default",
                input=y,
                weight=p.operand((2, channels, *(2,) * rank)),
                padding=padding,
                bias=p.choose(OMIT, p.weight((2,))),
            )
        ]
    if kind == "max_pool":
        return [p.call(f"aten.max_pool{rank}d.default", self=y, kernel_size=[3] * rank, padding=padding)]
    counted = p.choose(OMIT, True, False)
    return [
        p.call(
            f"aten.avg_pool{rank}d.default", self=y, kernel_size=[3] * rank, padding=padding, count_include_pad=counted
        )
    ]
