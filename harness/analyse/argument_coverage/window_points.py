"""Points of windows that slide: larger than their input, striding over more than themselves, and outputs
whose sizes do not divide their inputs'."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.analyse.argument_coverage.point import (
    Point,
    SurveyedOperator,
    family,
    value_of,
    with_argument,
    with_specs,
)
from harness.analyse.argument_coverage.shape_points import reshaped
from harness.core import Argument, Invocation, TensorSpec


def _per_dim(value: Argument, dims: int, default: int) -> tuple[int, ...]:
    """An argument that gives one number per dimension, or one for all."""
    numbers = tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple) else (value,)
    if not numbers or not all(isinstance(n, int) for n in numbers):
        return (default,) * dims
    return numbers * dims if len(numbers) == 1 else numbers  # type: ignore[return-value]


def _window(call: Invocation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The sizes of the input and how far a window reaches, per dimension."""
    source = next(call.tensors(), None)
    weight, kernel = value_of(call, "weight"), value_of(call, "kernel_size")
    if isinstance(weight, TensorSpec):
        extents = weight.shape[2:]
    else:
        names = len(kernel) if isinstance(kernel, tuple) else 1
        extents = _per_dim(kernel, names, 1)
    if source is None or not extents or len(source.shape) <= len(extents):
        return None
    if not isinstance(weight, TensorSpec) and len(extents) == 1:
        extents = extents * _dims(call)
    dilation = _per_dim(value_of(call, "dilation"), len(extents), 1)
    reach = tuple((k - 1) * by + 1 for k, by in zip(extents, dilation, strict=False))
    return source.shape[-len(reach) :], reach


def _dims(call: Invocation) -> int:
    """Of the operator's windows, as its name says."""
    return next((n for n in (3, 2, 1) if f"{n}d" in call.overload), 1)


def _larger(call: Invocation) -> bool:
    found = _window(call)
    return found is not None and any(k > n > 0 for n, k in zip(*found, strict=False))


def _overstrides(call: Invocation) -> bool:
    found = _window(call)
    stride = value_of(call, "stride")
    if found is None or stride in (None, ()):
        return False
    reach = found[1]
    return any(s > k for s, k in zip(_per_dim(stride, len(reach), 1), reach, strict=False))


@family("windows")
def windows(subject: SurveyedOperator) -> Iterator[Point]:
    """Of convolutions and pooling."""
    names = {argument.name for argument in subject.arguments}
    if "stride" in names and ("kernel_size" in names or {"weight", "padding"} <= names):
        yield Point(name="window larger than input", hit=_larger, variants=partial(_narrowed, subject))
        yield Point(name="stride larger than window", hit=_overstrides, variants=partial(_stretched, subject))
    if "output_size" in names:
        yield Point(name="output does not divide input", hit=_uneven, variants=partial(_unevened, subject))


def _with_last_sizes(sizes: tuple[int, ...], spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, (*spec.shape[: -len(sizes)], *sizes))


def _narrowed(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = _window(base)
    if found is not None:
        for less in (1, 2):
            sizes = tuple(max(k - less, 1) for k in found[1])
            if sizes != tuple(found[1]):
                yield with_specs(base, subject.tensors[:1], partial(_with_last_sizes, sizes))


def _stretched(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = _window(base)
    if found is not None:
        yield with_argument(subject, base, "stride", tuple(k + 1 for k in found[1]))


def _targets(call: Invocation) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The sizes of the input and those asked for, per dimension."""
    source, wanted = next(call.tensors(), None), value_of(call, "output_size")
    if source is None or not isinstance(wanted, tuple) or len(source.shape) < len(wanted) or not wanted:
        return None
    return source.shape[-len(wanted) :], tuple(n for n in wanted if isinstance(n, int))


def _uneven(call: Invocation) -> bool:
    found = _targets(call)
    return found is not None and any(m > 0 and n % m for n, m in zip(*found, strict=False))


def _unevened(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = _targets(base)
    if found is not None:
        yield with_argument(
            subject, base, "output_size", tuple(next(m for m in range(2, n + 3) if n % m) for n in found[0])
        )
