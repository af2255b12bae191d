"""Activation functions."""

from __future__ import annotations

from typing import Any

from harness.compare.judge import EQUAL, EXACT
from harness.core.dtypes import FLOATS, NUMBERS, UNSIGNED
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("activation")


def _scale(d: Draw) -> Any:
    """An optional factor, of either sign and of any Python type."""
    return d.choose(OMIT, 1, d.float(), d.int())


def _positive(d: Draw) -> Any:
    return d.choose(OMIT, 1, 0.5, 2, 0.1, 1.5, 3)


ops.simple("relu", "relu6", dtypes=NUMBERS, judge=EQUAL)
ops.simple("selu", "silu", "mish", "hardsigmoid", "hardswish", "log_sigmoid", "log_sigmoid_forward", dtypes=FLOATS)
ops.simple("gelu", dtypes=FLOATS, approximate=lambda d: d.choose(OMIT, "none", "tanh"))
ops.simple("celu", dtypes=FLOATS, alpha=lambda d: d.choose(OMIT, 1.0, 0.5, 2, -1.0, 0.1, 1.5, 3, 1e-3))
ops.simple("elu", dtypes=FLOATS, alpha=_scale, scale=_scale, input_scale=_scale)
ops.simple("leaky_relu", dtypes=FLOATS, negative_slope=lambda d: d.choose(OMIT, 0.01, 0.2, 0, 1, -1.0, 2.5, 0.1))
ops.simple(
    "hardtanh",
    dtypes=NUMBERS,
    judge=EQUAL,
    # Unsigned integers have no limits below zero.
    min_val=lambda d: d.choose(0, 0.1, 2.5) if d.dtype in UNSIGNED else d.choose(OMIT, -1, 0, -0.5, 0.1, -3, 2.5),
    max_val=lambda d: d.choose(OMIT, 1, 6, 0.5, 0.7, 3, 2.5, 0, *(() if d.dtype in UNSIGNED else (-0.25,))),
)
ops.simple("hardshrink", dtypes=FLOATS, judge=EXACT, lambd=lambda d: d.choose(OMIT, 0.5, 0, 0.1, 1, 2.0, -1.0))
ops.simple("softshrink", dtypes=FLOATS, lambd=lambda d: d.choose(OMIT, 0.5, 0, 0.1, 1, 2.0))
ops.simple(
    "softplus",
    dtypes=FLOATS,
    beta=lambda d: d.choose(*[_positive(d)] * 5, -1.0),
    threshold=lambda d: d.choose(OMIT, 20, 1, 0.5, 3, 0, -2.0),
)
ops.simple("threshold", dtypes=NUMBERS, judge=EXACT, threshold=lambda d: d.fitting(), value=lambda d: d.fitting())


@ops.case("glu", dtypes=FLOATS)
def glu(d: Draw) -> Arguments:
    shape = list(d.shape(1))
    dim = d.dim(len(shape))
    shape[dim] = 2 * d.size(0, 9)
    return {"self": d.tensor(shape), "dim": OMIT if dim == -1 and d.boolean() else dim}


@ops.case("prelu", dtypes=FLOATS)
def prelu(d: Draw) -> Arguments:
    shape = d.shape()
    channels = shape[1] if len(shape) > 1 else 1
    weight = d.choose((channels,), (channels,), (1,), ())
    return {"self": d.tensor(shape), "weight": d.tensor(weight)}


@ops.case("_prelu_kernel", dtypes=FLOATS)
def prelu_kernel(d: Draw) -> Arguments:
    # As `prelu` calls it: the weight has a size in the channel dimension only.
    shape = d.shape(1)
    weight = [shape[i] if i == min(1, len(shape) - 1) and d.boolean() else 1 for i in range(len(shape))]
    return {"self": d.tensor(shape), "weight": d.tensor(weight)}


@ops.case("rrelu", dtypes=FLOATS)
def rrelu(d: Draw) -> Arguments:
    bounds = (
        (OMIT, OMIT),
        (0.125, 1.0 / 3),
        (OMIT, 2.0),
        (0, OMIT),
        (0.1, 0.5),
        (0.0, 1),
        (-0.5, 0.0),
        (-2, -1),
    )
    lower, upper = d.choose(*bounds)
    return {
        "self": d.any_tensor(),
        "lower": lower,
        "upper": upper,
        "training": d.choose(OMIT, False),
    }
