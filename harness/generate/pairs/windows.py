"""Windows that slide over a tensor, and sizes that are asked for, beside the sizes that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.core import Argument, Invocation, TensorSpec
from harness.generate.pairs.condition import Condition, ConditionKind

_DIMS = re.compile(r"([123])d")


def per_dim(value: Argument, dims: int, default: int) -> tuple[int, ...]:
    """An argument that gives one number per dimension, or one for all."""
    numbers = value if isinstance(value, tuple) else (value,)
    whole = tuple(n for n in numbers if isinstance(n, int))
    if not whole or len(whole) < len(numbers):
        return (default,) * dims
    return whole * dims if len(whole) == 1 else whole


def window(call: Invocation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The sizes of the input and how far a window reaches, per dimension."""
    given = dict(call.arguments)
    source = next(call.tensors(), None)
    weight, kernel = given.get("weight"), given.get("kernel_size")
    if isinstance(weight, TensorSpec):
        extents = weight.shape[2:]
    else:
        extents = per_dim(kernel, len(kernel) if isinstance(kernel, tuple) else 1, 1)
    if source is None or not extents or len(source.shape) <= len(extents):
        return None
    if not isinstance(weight, TensorSpec) and len(extents) == 1:
        named = _DIMS.search(call.overload)
        extents = extents * (int(named[1]) if named else 1)
    dilation = per_dim(given.get("dilation"), len(extents), 1)
    reach = tuple((k - 1) * by + 1 for k, by in zip(extents, dilation, strict=False))
    return source.shape[-len(reach) :], reach


def targets(call: Invocation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The sizes of the input and those asked for, per dimension."""
    source, wanted = next(call.tensors(), None), dict(call.arguments).get("output_size")
    if source is None or not isinstance(wanted, tuple) or len(source.shape) < len(wanted) or not wanted:
        return None
    return source.shape[-len(wanted) :], tuple(n for n in wanted if isinstance(n, int))


def window_conditions(call: Invocation) -> Iterator[Condition]:
    """Of a call with windows, or with an output size."""
    given = dict(call.arguments)
    if "kernel_size" in given or ("weight" in given and "padding" in given):
        found = window(call)
        if found is not None:
            yield from _of_windows(given, *found)
    sizes = targets(call)
    if sizes is not None:
        yield _condition("output size", _beside(*sizes))


def _of_windows(given: dict[str, Argument], sizes: tuple[int, ...], reach: tuple[int, ...]) -> Iterator[Condition]:
    pairs = list(zip(sizes, reach, strict=False))
    larger = any(k > n > 0 for n, k in pairs)
    whole = any(k == n for n, k in pairs)
    word = "larger than" if larger else "as large as" if whole else "smaller than"
    yield _condition("window", f"window {word} input")
    # Where no stride is given pooling takes the window's size, and a convolution goes on by one.
    default = 0 if "kernel_size" in given else 1
    stride = per_dim(given.get("stride"), len(reach), default)
    steps = [s or k for s, k in zip(stride, reach, strict=False)]
    over = any(s > k for s, k in zip(steps, reach, strict=False))
    overlap = any(s < k for s, k in zip(steps, reach, strict=False))
    word = "larger than" if over else "smaller than" if overlap else "as large as"
    yield _condition("stride", f"stride {word} window")
    padding = given.get("padding")
    around = per_dim(padding, len(reach), 0)
    rests = [(n + 2 * p - k) % s for (n, k), s, p in zip(pairs, steps, around, strict=False) if s > 0]
    yield _condition("end", "last window cut" if any(rests) else "windows fit")


def _beside(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    pairs = [(n, m) for n, m in zip(sizes, wanted, strict=False) if n > 0 and m > 0]
    if all(n == m for n, m in pairs):
        return "output as large as input"
    if any(m > n for n, m in pairs):
        return "output larger than input"
    return "output does not divide input" if any(n % m for n, m in pairs) else "output divides input"


def _condition(about: str, name: str) -> Condition:
    return Condition(ConditionKind.WINDOW, "", f"windows {about}", name)
