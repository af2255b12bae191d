"""Points of shapes and layouts: ranks, sizes, strides, broadcasting, sums of many terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate, permutations
from operator import mul

from harness.core.invocation import Invocation, TensorSpec, contiguous_strides
from harness.coverage.points import (
    Acceptance,
    Point,
    SurveyedOperator,
    change_specs,
    family,
    reshaped,
    specs,
    value_of,
)
from harness.generate.operator_case import OPERATOR_CASES

#: Widths of vector instructions; kernels process what remains in a separate loop.
WIDTHS = (4, 8, 16, 32, 64)
#: Number of terms from which a vectorised sum has another order than a plain loop.
LONG = 128
#: Families of operators that sum along a dimension.
_SUMMING = ("reduction", "matmul", "cumulative", "softmax", "norms")


def _set_rank(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return `shape` with leading ones added, or with leading dimensions removed."""
    return (1,) * (rank - len(shape)) + shape[max(len(shape) - rank, 0) :]


@family("ranks")
def ranks(subject: SurveyedOperator) -> Iterator[Point]:
    """Name each rank, 0 to 5, of each tensor."""
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
            yield change_specs(base, names, partial(_raised, step))


def _raised(step: int, spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, _set_rank(spec.shape, max(len(spec.shape) + step, 0)))


def _resized(spec: TensorSpec, old: int, new: int) -> TensorSpec:
    shape = tuple(new if size == old else size for size in spec.shape)
    return reshaped(spec, shape) if old in spec.shape else spec


def _replaced(old: TensorSpec, shape: tuple[int, ...], spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, shape) if spec is old else spec


def replace_size(subject: SurveyedOperator, name: str, new: int, base: Invocation) -> Iterator[Invocation]:
    """Yield the call with one size replaced: everywhere, and in one dimension of one tensor."""
    for spec in specs(base, name)[:1]:
        for old in sorted(set(spec.shape) - {new})[-3:]:
            yield change_specs(base, subject.tensors, partial(_resized, old=old, new=new))
        for dim in range(min(len(spec.shape), 3)):
            shape = (*spec.shape[:dim], new, *spec.shape[dim + 1 :])
            yield change_specs(base, (name,), partial(_replaced, spec, shape))


@family("sizes")
def sizes(subject: SurveyedOperator) -> Iterator[Point]:
    """Name sizes 0 and 1 in each tensor, and row lengths near each vector width in some tensor.

    Kernels loop over as many of the last dimensions as are contiguous, so products of sizes count too.
    """
    for name in subject.tensors:
        for size in (0, 1):
            yield Point(
                name=f"{name} size {size}",
                hit=lambda call, name=name, size=size: any(size in s.shape for s in specs(call, name)),  # type: ignore[misc]
                variants=partial(replace_size, subject, name, size),
            )
    for width in WIDTHS if subject.tensors else ():
        yield Point(
            name=f"row near {width}",
            hit=lambda call, width=width: any(  # type: ignore[misc]
                abs(row - width) <= 1 for spec in call.tensors() for row in _rows(spec.shape)
            ),
            variants=partial(replace_size, subject, subject.tensors[0], width),
        )


def _rows(shape: tuple[int, ...]) -> Iterator[int]:
    """Yield the sizes, and the products of the last ones."""
    yield from shape
    yield from accumulate(reversed(shape), mul)


@family("layouts")
def layouts(subject: SurveyedOperator) -> Iterator[Point]:
    """Name tensors that are not contiguous, that repeat elements, or that start inside their storage."""
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
        yield change_specs(base, (name,), change)  # type: ignore[arg-type]


def stepped(spec: TensorSpec) -> TensorSpec:
    """Return the tensor with gaps between its elements."""
    return replace(spec, strides=tuple(2 * s for s in contiguous_strides(spec.shape)))


def expanded(spec: TensorSpec) -> TensorSpec:
    """Return the tensor with one row repeated."""
    widest = max(spec.shape, default=1)
    return replace(spec, strides=tuple(0 if n == widest else s for n, s in zip(spec.shape, spec.strides, strict=True)))


@family("broadcasting")
def broadcasting(subject: SurveyedOperator) -> Iterator[Point]:
    """Name broadcasting each of two tensors to the other."""
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
    padded = _set_rank(a.shape, len(b.shape))
    return len(a.shape) <= len(b.shape) and all(m in (1, n) for m, n in zip(padded, b.shape, strict=True))


def _shrunk(small: str, large: str, base: Invocation) -> Iterator[Invocation]:
    a, b = value_of(base, small), value_of(base, large)
    if isinstance(a, TensorSpec) and isinstance(b, TensorSpec) and a.shape == b.shape:
        for shape in ((1,) * len(a.shape), ()) if min(a.shape, default=1) > 1 else ():
            yield change_specs(base, (small,), partial(reshaped, shape=shape))


def _same_result(base: Acceptance, answer: Acceptance) -> bool:
    return bool(answer.shapes) and answer.shapes == base.shapes and answer.shapes[0] != ()


@family("accumulation")
def accumulation(subject: SurveyedOperator) -> Iterator[Point]:
    """Name sums that are long enough to show their order, which differs between libraries."""
    case = OPERATOR_CASES[subject.overload]
    if (case.judge.accumulates or case.judge.terms) and case.family in _SUMMING and subject.tensors:
        yield Point(
            name=f"{LONG} terms",
            hit=lambda call: any(size >= LONG for spec in call.tensors() for size in spec.shape),
            variants=partial(replace_size, subject, subject.tensors[0], LONG + 1),
        )
