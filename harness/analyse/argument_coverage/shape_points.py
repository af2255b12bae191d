"""Points of shapes and layouts: ranks, sizes, strides, broadcasting, sums of many terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate, permutations
from operator import mul

from harness.analyse.argument_coverage.point import (
    Acceptance,
    Point,
    SurveyedOperator,
    family,
    specs,
    value_of,
    with_specs,
)
from harness.core import Invocation, TensorSpec, contiguous_strides
from harness.generate import OPERATOR_CASES

#: Vector widths around which kernels switch to their tails.
WIDTHS = (4, 8, 16, 32, 64)
#: Terms beyond which a vectorised sum is added up in another order than a plain loop's.
LONG = 128
#: Families of operators that sum along a dim.
_SUMMING = ("reduction", "matmul", "cumulative", "softmax", "norms")


def reshaped(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """The tensor with another shape, row-major."""
    return replace(spec, shape=shape, strides=contiguous_strides(shape), offset=0)


def _of_rank(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """`shape` with leading ones more, or leading dimensions fewer."""
    return (1,) * (rank - len(shape)) + shape[max(len(shape) - rank, 0) :]


@family("ranks")
def ranks(subject: SurveyedOperator) -> Iterator[Point]:
    """Each rank of each tensor, 0 to 5."""
    for name in subject.tensors:
        for rank in range(6):
            yield Point(
                name=f"{name} rank {rank}",
                hit=lambda call, name=name, rank=rank: any(  # type: ignore[misc]
                    len(spec.shape) == rank for spec in specs(call, name)
                ),
                variants=partial(_ranked, subject, name, rank),
            )


def _ranked(subject: SurveyedOperator, name: str, rank: int, base: Invocation) -> Iterator[Invocation]:
    for spec in specs(base, name)[:1]:
        step = rank - len(spec.shape)
        for names in (subject.tensors, (name,)):
            yield with_specs(base, names, partial(_raised, step))


def _raised(step: int, spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, _of_rank(spec.shape, max(len(spec.shape) + step, 0)))


def _resized(spec: TensorSpec, old: int, new: int) -> TensorSpec:
    shape = tuple(new if size == old else size for size in spec.shape)
    return reshaped(spec, shape) if old in spec.shape else spec


def _replaced(old: TensorSpec, shape: tuple[int, ...], spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, shape) if spec is old else spec


def with_size(subject: SurveyedOperator, name: str, new: int, base: Invocation) -> Iterator[Invocation]:
    """The call with one size replaced, wherever it occurs, and in one place of one tensor."""
    for spec in specs(base, name)[:1]:
        for old in sorted(set(spec.shape) - {new})[-3:]:
            yield with_specs(base, subject.tensors, partial(_resized, old=old, new=new))
        for dim in range(min(len(spec.shape), 3)):
            shape = (*spec.shape[:dim], new, *spec.shape[dim + 1 :])
            yield with_specs(base, (name,), partial(_replaced, spec, shape))


@family("sizes")
def sizes(subject: SurveyedOperator) -> Iterator[Point]:
    """Dimensions of size 0 and 1 in each tensor, and rows of lengths near each vector width in
    some: kernels loop over as many of the last dimensions at once as lie together in memory."""
    for name in subject.tensors:
        for size in (0, 1):
            yield Point(
                name=f"{name} size {size}",
                hit=lambda call, name=name, size=size: any(size in s.shape for s in specs(call, name)),  # type: ignore[misc]
                variants=partial(with_size, subject, name, size),
            )
    for width in WIDTHS if subject.tensors else ():
        yield Point(
            name=f"row near {width}",
            hit=lambda call, width=width: any(  # type: ignore[misc]
                abs(row - width) <= 1 for spec in call.tensors() for row in _rows(spec.shape)
            ),
            variants=partial(with_size, subject, subject.tensors[0], width),
        )


def _rows(shape: tuple[int, ...]) -> Iterator[int]:
    """Sizes, and products of the last few."""
    yield from shape
    yield from accumulate(reversed(shape), mul)


@family("layouts")
def layouts(subject: SurveyedOperator) -> Iterator[Point]:
    """Tensors that do not lie row-major, that repeat elements, that begin inside their storage."""
    for name in subject.tensors:
        yield Point(
            name=f"{name} non-contiguous",
            hit=lambda call, name=name: any(not s.is_contiguous for s in specs(call, name)),  # type: ignore[misc]
            variants=partial(_laid, name, stepped),
        )
        yield Point(
            name=f"{name} expanded",
            hit=lambda call, name=name: any(map(_repeats, specs(call, name))),  # type: ignore[misc]
            variants=partial(_laid, name, expanded),
        )
        yield Point(
            name=f"{name} offset",
            hit=lambda call, name=name: any(s.offset for s in specs(call, name)),  # type: ignore[misc]
            variants=partial(_laid, name, lambda spec: replace(spec, offset=3)),
        )


def _repeats(spec: TensorSpec) -> bool:
    return any(size > 1 and not stride for size, stride in zip(spec.shape, spec.strides, strict=True))


def _laid(name: str, change: object, base: Invocation) -> Iterator[Invocation]:
    if any(spec.numel > 1 for spec in specs(base, name)):
        yield with_specs(base, (name,), change)  # type: ignore[arg-type]


def stepped(spec: TensorSpec) -> TensorSpec:
    """The tensor with gaps between its elements."""
    return replace(spec, strides=tuple(2 * s for s in contiguous_strides(spec.shape)))


def expanded(spec: TensorSpec) -> TensorSpec:
    """The tensor with one row repeated."""
    widest = max(spec.shape, default=1)
    return replace(spec, strides=tuple(0 if n == widest else s for n, s in zip(spec.shape, spec.strides, strict=True)))


@family("broadcasting")
def broadcasting(subject: SurveyedOperator) -> Iterator[Point]:
    """Each of two tensors smaller than the other."""
    for small, large in permutations(subject.single_tensors, 2):
        yield Point(
            name=f"{small} broadcast to {large}",
            hit=partial(_is_broadcast, small, large),
            variants=partial(_shrunk, small, large),
            confirm=_same_result,
        )


def _is_broadcast(small: str, large: str, call: Invocation) -> bool:
    a, b = value_of(call, small), value_of(call, large)
    if not isinstance(a, TensorSpec) or not isinstance(b, TensorSpec) or a.shape == b.shape:
        return False
    padded = _of_rank(a.shape, len(b.shape))
    return len(a.shape) <= len(b.shape) and all(m in (1, n) for m, n in zip(padded, b.shape, strict=True))


def _shrunk(small: str, large: str, base: Invocation) -> Iterator[Invocation]:
    a, b = value_of(base, small), value_of(base, large)
    if isinstance(a, TensorSpec) and isinstance(b, TensorSpec) and a.shape == b.shape:
        for shape in ((1,) * len(a.shape), ()) if min(a.shape, default=1) > 1 else ():
            yield with_specs(base, (small,), partial(reshaped, shape=shape))


def _same_result(base: Acceptance, answer: Acceptance) -> bool:
    return bool(answer.shapes) and answer.shapes == base.shapes and answer.shapes[0] != ()


@family("accumulation")
def accumulation(subject: SurveyedOperator) -> Iterator[Point]:
    """Sums so long that the order of additions shows, which differs between libraries."""
    case = OPERATOR_CASES[subject.overload]
    if (case.judge.accumulates or case.judge.terms) and case.family in _SUMMING and subject.tensors:
        yield Point(
            name=f"{LONG} terms",
            hit=lambda call: any(size >= LONG for spec in call.tensors() for size in spec.shape),
            variants=partial(with_size, subject, subject.tensors[0], LONG + 1),
        )
