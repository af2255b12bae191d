"""Pooling: maxima and means over windows, and their inverses.

A window is drawn first, then sizes that hold it. PyTorch wants padding of at most half a window and at
least one output; beyond that anything goes: windows larger than the input, strides larger than the window,
outputs that do not divide their inputs.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from cases.rules.pooling_windows import Windows, adaptive, fractional, index_of, maximum_of, sliding, unpooled
from harness.compare.judge import ACCUMULATES, Judge
from harness.core.dtypes import FLOATS, FULL_FLOATS, NUMBERS
from harness.generate.draw import OMIT, Draw, between, index_into, unique_below
from harness.generate.operator_case import Arguments, Family

ops = Family("pooling")


def _maximum(windows: Windows, *, indices: bool) -> Judge:
    rules = {0: maximum_of(windows)}
    return Judge(rules={**rules, 1: index_of(windows)} if indices else rules)


def _lead(d: Draw) -> tuple[int, ...]:
    """Batch and channels, or channels alone. A batch may be empty."""
    return d.choose((1, 2), (2, 3), (3,), (1,), (2, 1), (1, 4), (1, 1), (0, 2))


def _spelled(d: Draw, values: list[int], default: int | None) -> Any:
    """`values` as a list, as one number for all dimensions, or left out, where that means the same."""
    if len(set(values)) > 1:
        return values
    return d.choose(values, values[:1], *([OMIT] if values[0] == default else []))


def _window(d: Draw, dims: int, *, dilated: bool, beyond: bool = True) -> dict[str, Any]:
    """The arguments that sliding windows share, and an input that holds them, with its padding or without
    (`beyond` false)."""
    # The same along all dims, as in most models, or another one along each.
    drawn = 1 if dims > 1 and d.choose(False, True, False) else dims
    times = dims // drawn
    kernel = [d.choose(2, 3, 1, 4, 5) for _ in range(drawn)] * times
    given = d.choose(True, True, False)
    stride = [d.choose(2, 1, 3, 4, 7) for _ in range(drawn)] * times if given else kernel
    padding = [d.choose(0, 1, 2) if k > 3 else d.integer(0, k // 2) for k in kernel[:drawn]] * times
    dilation = [d.choose(1, 1, 2, 3) if dilated else 1 for _ in range(drawn)] * times
    ceil = d.choose(False, True)
    sizes = []
    for axis in range(dims):
        reach = dilation[axis] * (kernel[axis] - 1) + 1
        # Rounding up lets a window hang over the end.
        least = reach - (2 * padding[axis] + (stride[axis] - 1 if ceil else 0) if beyond else 0)
        # Along one axis at most, how many windows a feature map has.
        further = {1: (14, 29, 61, 127, 254), 2: (26, 53) if axis == 0 else ()}.get(dims, ())
        sizes.append(max(least, 1) + d.choose(2, 0, 1, 3, 4, 7, *further))
    arguments = {
        "self": d.tensor((*_lead(d), *sizes)),
        "kernel_size": _spelled(d, kernel, None),
        "stride": _spelled(d, stride, None) if given else d.choose(OMIT, []),
        "padding": _spelled(d, padding, 0),
        "ceil_mode": True if ceil else d.choose(OMIT, False),
    }
    if dilated:
        arguments["dilation"] = _spelled(d, dilation, 1)
    return arguments


def _max_pool(dims: int, d: Draw) -> Arguments:
    return _window(d, dims, dilated=True)


def _avg_pool(dims: int, d: Draw) -> Arguments:
    # The three-dimensional kernel alone refuses windows larger than the input.
    window = _window(d, dims, dilated=False, beyond=dims < 3)
    arguments = {**window, "count_include_pad": d.choose(OMIT, True, False)}
    if dims > 1:
        # An override hides how every other divisor is found.
        plain = d.choose(True, True, False)
        arguments["divisor_override"] = d.choose(OMIT, OMIT, None) if plain else d.choose(1, 2, 3, 7, -2)
    return arguments


def _adaptive(dims: int, d: Draw) -> Arguments:
    sizes = [d.size(1, (65, 9, 5)[dims - 1]) for _ in range(dims)]
    if dims < 3 and d.choose(False, False, False, False, False, True):
        sizes[d.integer(0, dims - 1)] = d.map_size()
    outputs = [d.choose(1, 2, 3, 5, 4, 7) for _ in range(dims)]
    if d.integer(0, 11) == 11:
        outputs[d.integer(0, dims - 1)] = 0
    return {"self": d.tensor((*_lead(d), *sizes)), "output_size": outputs}


for _dims, _avg_dtypes in ((1, (*FLOATS, "int64")), (2, (*FLOATS, "int64")), (3, (*FULL_FLOATS, "int64"))):
    _max = partial(_max_pool, _dims)
    ops.case(
        f"max_pool{_dims}d",
        dtypes=FLOATS if _dims == 1 else NUMBERS,
        judge=_maximum(sliding(_dims), indices=False),
    )(_max)
    ops.case(f"max_pool{_dims}d_with_indices", dtypes=NUMBERS, judge=_maximum(sliding(_dims), indices=True))(_max)
    ops.case(f"avg_pool{_dims}d", dtypes=_avg_dtypes, judge=ACCUMULATES)(partial(_avg_pool, _dims))
    _fitted = partial(_adaptive, _dims)
    ops.case(f"adaptive_max_pool{_dims}d", dtypes=FLOATS, judge=_maximum(adaptive(_dims), indices=True))(_fitted)
    ops.case(
        f"adaptive_avg_pool{_dims}d",
        *([f"_adaptive_avg_pool{_dims}d"] if _dims > 1 else []),
        dtypes=FLOATS,
        judge=ACCUMULATES,
    )(_fitted)


def _unpool(dims: int, d: Draw) -> dict[str, Any]:
    lead = _lead(d)
    pooled = [d.choose(1, 2, 3, 8 if dims == 2 else 4) for _ in range(dims)]
    sizes = [p * d.choose(2, 1, 3) + d.integer(0, 2) for p in pooled]
    shape, plane = (*lead, *pooled), math.prod(sizes)
    # Pooling with overlapping windows gives one place more than once.
    repeated = d.choose(False, False, True)
    return {
        "self": d.tensor(shape),
        "indices": d.tensor(shape, "int64", index_into(plane))
        if repeated
        else d.tensor(shape, "int64", unique_below(plane, math.prod(pooled))),
        "output_size": sizes,
    }


@ops.case("max_unpool2d", dtypes=FLOATS, judge=Judge(rules={0: unpooled}))
def max_unpool2d(d: Draw) -> Arguments:
    return _unpool(2, d)


@ops.case("max_unpool3d", dtypes=FLOATS, judge=Judge(rules={0: unpooled}))
def max_unpool3d(d: Draw) -> Arguments:
    stride, padding = ([d.integer(low, 2) for _ in range(3)] for low in (1, 0))
    return {**_unpool(3, d), "stride": stride, "padding": padding}


def _fractional(dims: int, d: Draw) -> Arguments:
    batch, channels = d.choose((1,), (2,), ()), d.integer(1, 3)
    kernel = [d.choose(2, 1, 3) for _ in range(dims)]
    outputs = [d.integer(1, 4) for _ in range(dims)]
    # The three-dimensional kernel wants one position more than it uses.
    spare = d.integer(dims - 2, 4)
    sizes = [k + o - 1 + spare + d.integer(0, 2) for k, o in zip(kernel, outputs, strict=True)]
    samples = (*(batch or (1,)), channels, dims)
    return {
        "self": d.tensor((*batch, channels, *sizes)),
        "kernel_size": kernel,
        "output_size": outputs,
        "random_samples": d.tensor(samples, domain=between(0.0, 0.96875)),
    }


for _dims in (2, 3):
    ops.case(f"fractional_max_pool{_dims}d", dtypes=FLOATS, judge=_maximum(fractional(_dims), indices=True))(
        partial(_fractional, _dims)
    )
