"""Convolutions: sums of products over sliding windows, in one to three dimensions, both ways.

A window is drawn first, then sizes that hold it at least once, so that padding may exceed the input,
strides may skip parts of it, and the last window need not reach the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from harness.compare.judge import ACCUMULATES, Allowance, Judge, Mask
from harness.core.dtypes import FLOATS, INTS, Array
from harness.core.invocation import TensorSpec
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("convolution")

#: What the CPU kernels of transposed and of dilated convolutions take; the others take every integer.
_NARROW = (*FLOATS, "int64")


@dataclass(frozen=True)
class _Plane:
    """A window and the sizes that it slides over, one entry per spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    size: tuple[int, ...]


def _plane(d: Draw, dims: int, *, transposed: bool, unit_stride: bool = False) -> _Plane:
    axes = []
    # The same window along all dims, as in most models, or another one along each.
    drawn = 1 if dims > 1 and d.choose(False, True, False) else dims
    for _ in range(drawn):
        kernel = d.choose(3, 1, 2, 3, 4)
        stride = 1 if unit_stride else d.choose(1, 2, 1, 3, 5)
        padding = d.choose(0, 1, 0, 2, kernel)
        dilation = d.choose(1, 1, 2, 3) if d.dtype in _NARROW else 1
        extra = d.integer(0, max(stride, dilation) - 1) if transposed else 0
        reach = dilation * (kernel - 1) + 1
        least = reach - 2 * padding
        if transposed:
            # At least one output: (size - 1)·stride - 2·padding + reach + extra ≥ 1.
            least = -(-(1 - least - extra) // stride) + 1
        size = max(least, 1) + d.choose(2, 0, 1, 3, 5, 6)
        axes.append((kernel, stride, padding, dilation, extra, size))
    further = [(*axes[0][:-1], axes[0][-1] + d.choose(0, 1, 3)) for _ in range(dims - drawn)]
    return _Plane(*zip(*axes, *further, strict=True))


def _spelled(d: Draw, values: Sequence[int], default: int) -> Any:
    """`values` as a list, as one number for all dimensions, or left out, where that means the same."""
    if len(set(values)) > 1:
        return list(values)
    return d.choose(list(values), list(values[:1]), *([OMIT] if values[0] == default else []))


@dataclass(frozen=True)
class _Operands:
    input: TensorSpec
    weight: TensorSpec
    groups: int


def _operands(d: Draw, plane: _Plane, *, transposed: bool, unbatched: bool) -> _Operands:
    groups = d.choose(1, 1, 2, 1, 3)
    # No channels at all is valid too: the sum over them is empty.
    into = d.choose(1, 2, 3, 4, 1, 2, 5, 3, 0 if groups == 1 and not transposed else 1)
    out = d.choose(1, 2, 3, 4, 8)
    batches = [(1,), (2,), (1,), (2,), (3,), (0,) if into else (1,)]
    batch = d.choose(*batches, *([(), ()] if unbatched else []))
    channels = (into * groups, out) if transposed else (out * groups, into)
    return _Operands(
        input=d.tensor((*batch, into * groups, *plane.size)),
        weight=d.tensor((*channels, *plane.kernel)),
        groups=groups,
    )


def _bias(d: Draw, operands: _Operands, *, transposed: bool, required: bool) -> Any:
    outputs = operands.weight.shape[1] * operands.groups if transposed else operands.weight.shape[0]
    kind = d.choose("given", "given", "none", *([] if required else ["omitted"]))
    return d.tensor((outputs,)) if kind == "given" else None if kind == "none" else OMIT


def _common(d: Draw, plane: _Plane, *, transposed: bool) -> dict[str, Any]:
    """The arguments that `conv*` and `conv_transpose*` share."""
    operands = _operands(d, plane, transposed=transposed, unbatched=True)
    return {
        "input": operands.input,
        "weight": operands.weight,
        "bias": _bias(d, operands, transposed=transposed, required=False),
        "stride": _spelled(d, plane.stride, 1),
        "dilation": _spelled(d, plane.dilation, 1),
        "groups": d.choose(OMIT, 1) if operands.groups == 1 else operands.groups,
    }


def _per_dim(value: Any, dims: int) -> list[int]:
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    return numbers * dims if len(numbers) == 1 else numbers


def _padding_times_infinity(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Sums over windows that reach into the padding with a weight that is not finite. PyTorch documents
    implicit zeros, which its kernels skip or multiply, and ONNX says no more; 0 · inf is NaN (IEEE 754-2019
    §7.2)."""
    weight = arguments["weight"]
    dims = weight.ndim - 2
    is_complex = np.iscomplexobj(weight)
    wild = (~np.isfinite(weight if is_complex else weight.astype(np.float64))).any(axis=1).astype(np.float64)
    if arguments.get("transposed") or not wild.any():
        return [None]
    data, shape = arguments["input"], expected[0].shape[:-1] if is_complex else expected[0].shape
    stride, dilation = (_per_dim(arguments.get(name, 1), dims) for name in ("stride", "dilation"))
    padding = arguments.get("padding", 0)
    if padding == "same":
        padding = [step * (size - 1) // 2 for step, size in zip(dilation, weight.shape[2:], strict=True)]
    before = _per_dim(0 if padding == "valid" else padding, dims)
    inside = wild
    for axis in range(dims):
        # Leading: output channel; then the window's dims, of which each turn takes the first for an output's.
        first = np.arange(shape[axis - dims])[:, None] * stride[axis] - before[axis]
        place = first + np.arange(weight.shape[2 + axis]) * dilation[axis]
        held = (place >= 0) & (place < data.shape[axis - dims])
        inside = np.tensordot(inside, held.astype(np.float64), axes=(1, 1))
    total = wild.reshape(len(wild), -1).sum(axis=1).reshape(-1, *(1,) * dims)
    inside = np.broadcast_to(inside < total, shape)
    return [np.broadcast_to(inside[..., None], expected[0].shape) if is_complex else inside]


_PADDING = "padding times infinity"
_CONVOLVED = Judge(accumulates=True, undefined=Allowance(_PADDING, _padding_times_infinity))


def _tbc_times_infinity(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Treat it as a convolution in one dimension with the channels last."""
    (mask,) = _padding_times_infinity(
        {
            "input": arguments["self"].transpose(1, 2, 0),
            "weight": arguments["weight"].transpose(2, 1, 0),
            "padding": arguments.get("pad", 0),
        },
        [expected[0].transpose(1, 2, 0)],
    )
    return [None if mask is None else mask.transpose(2, 0, 1)]


def _conv(dims: int, d: Draw) -> Arguments:
    plane = _plane(d, dims, transposed=False)
    return {**_common(d, plane, transposed=False), "padding": _spelled(d, plane.padding, 0)}


def _conv_padding(dims: int, d: Draw) -> Arguments:
    padding = d.choose("valid", "same", "same", OMIT)
    plane = _plane(d, dims, transposed=False, unit_stride=padding == "same")
    if padding != "same":
        # Nothing is padded: the input itself must hold the window.
        size = tuple(s + 2 * p for s, p in zip(plane.size, plane.padding, strict=True))
        plane = _Plane(plane.kernel, plane.stride, plane.padding, plane.dilation, plane.output_padding, size)
    return {**_common(d, plane, transposed=False), "padding": padding}


def _conv_transpose(dims: int, d: Draw) -> Arguments:
    plane = _plane(d, dims, transposed=True)
    return {
        **_common(d, plane, transposed=True),
        "padding": _spelled(d, plane.padding, 0),
        "output_padding": _spelled(d, plane.output_padding, 0),
    }


for _dims, _overload in ((1, "default"), (2, "input"), (3, "input")):
    ops.case(f"conv{_dims}d", dtypes=FLOATS + INTS, judge=_CONVOLVED)(partial(_conv, _dims))
    ops.case(f"conv{_dims}d.padding", dtypes=FLOATS + INTS, judge=_CONVOLVED)(partial(_conv_padding, _dims))
    ops.case(f"conv_transpose{_dims}d.{_overload}", dtypes=_NARROW, judge=ACCUMULATES)(partial(_conv_transpose, _dims))


@ops.case("convolution", dtypes=FLOATS + INTS, judge=_CONVOLVED)
def convolution(d: Draw) -> Arguments:
    transposed = d.boolean() and d.dtype in _NARROW
    plane = _plane(d, d.choose(2, 1, 3, 2), transposed=transposed)
    operands = _operands(d, plane, transposed=transposed, unbatched=False)
    return {
        "input": operands.input,
        "weight": operands.weight,
        "bias": _bias(d, operands, transposed=transposed, required=True),
        "stride": list(plane.stride),
        "padding": list(plane.padding),
        "dilation": list(plane.dilation),
        "transposed": transposed,
        "output_padding": list(plane.output_padding),
        "groups": operands.groups,
    }


# How TorchScript records every convolution; the flags choose among CUDA's algorithms.
_FLAGS = ("benchmark", "deterministic", "cudnn_enabled")


def _convolution_with_flags(names: Sequence[str], d: Draw) -> Arguments:
    return {**convolution(d), **{name: d.boolean() for name in names}}


ops.case("_convolution.deprecated", dtypes=FLOATS + INTS, judge=_CONVOLVED)(partial(_convolution_with_flags, _FLAGS))
ops.case("_convolution", dtypes=FLOATS + INTS, judge=_CONVOLVED)(
    partial(_convolution_with_flags, (*_FLAGS, "allow_tf32"))
)


@ops.case(
    "conv_tbc",
    dtypes=FLOATS + INTS,
    judge=Judge(accumulates=True, undefined=Allowance(_PADDING, _tbc_times_infinity)),
)
def conv_tbc(d: Draw) -> Arguments:
    kernel, pad = d.choose(3, 1, 2, 4), d.choose(OMIT, 0, 1, 2)
    into, out = d.size(0, 9), d.size(0, 9)
    length = max(kernel - 2 * (0 if pad is OMIT else pad), 1) + d.integer(0, 6)
    return {
        # PyTorch views the input: few other layouts will do.
        "self": d.tensor((length, d.size(1, 3), into), contiguous=d.choose(True, True, True, False)),
        "weight": d.tensor((kernel, into, out)),
        "bias": d.tensor((out,)),
        "pad": pad,
    }


@ops.case("_convolution_mode", dtypes=FLOATS + INTS, judge=_CONVOLVED)
def convolution_mode(d: Draw) -> Arguments:
    dims = d.choose(1, 2, 3)
    padding = d.choose("valid", "same")
    plane = _plane(d, dims, transposed=False, unit_stride=padding == "same")
    if padding == "valid":
        size = tuple(s + 2 * p for s, p in zip(plane.size, plane.padding, strict=True))
        plane = _Plane(plane.kernel, plane.stride, plane.padding, plane.dilation, plane.output_padding, size)
    operands = _operands(d, plane, transposed=False, unbatched=False)
    return {
        "input": operands.input,
        "weight": operands.weight,
        "bias": _bias(d, operands, transposed=False, required=True),
        "stride": list(plane.stride),
        "padding": padding,
        "dilation": list(plane.dilation),
        "groups": operands.groups,
    }
