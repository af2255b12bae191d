"""Points of sliding windows: larger than the input, a stride larger than the window, uneven output sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.core.invocation import Invocation, TensorSpec
from harness.coverage.points import (
    Point,
    SurveyedOperator,
    change_specs,
    family,
    reshaped,
    set_argument,
    value_of,
)
from harness.generate.pairs.conditions import per_dim, targets, window


def _larger(call: Invocation) -> bool:
    found = window(call)
    return found is not None and any(k > n > 0 for n, k in zip(*found, strict=False))


def _overstrides(call: Invocation) -> bool:
    found = window(call)
    stride = value_of(call, "stride")
    if found is None or stride in (None, ()):
        return False
    reach = found[1]
    return any(s > k for s, k in zip(per_dim(stride, len(reach), 1), reach, strict=False))


@family("windows")
def windows(subject: SurveyedOperator) -> Iterator[Point]:
    """Name unusual windows of convolutions and pooling."""
    names = {argument.name for argument in subject.arguments}
    if "stride" in names and ("kernel_size" in names or {"weight", "padding"} <= names):
        yield Point(name="window larger than input", hit=_larger, variants=partial(_narrowed, subject))
        yield Point(name="stride larger than window", hit=_overstrides, variants=partial(_stretched, subject))
    if "output_size" in names:
        yield Point(name="output does not divide input", hit=_uneven, variants=partial(_unevened, subject))


def _set_last_sizes(sizes: tuple[int, ...], spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, (*spec.shape[: -len(sizes)], *sizes))


def _narrowed(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = window(base)
    if found is not None:
        for less in (1, 2):
            sizes = tuple(max(k - less, 1) for k in found[1])
            if sizes != tuple(found[1]):
                yield change_specs(base, subject.tensors[:1], partial(_set_last_sizes, sizes))


def _stretched(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = window(base)
    if found is not None:
        yield set_argument(subject, base, "stride", tuple(k + 1 for k in found[1]))


def _uneven(call: Invocation) -> bool:
    found = targets(call)
    return found is not None and any(m > 0 and n % m for n, m in zip(*found, strict=False))


def _unevened(subject: SurveyedOperator, base: Invocation) -> Iterator[Invocation]:
    found = targets(base)
    if found is not None:
        yield set_argument(
            subject, base, "output_size", tuple(next(m for m in range(2, n + 3) if n % m) for n in found[0])
        )
