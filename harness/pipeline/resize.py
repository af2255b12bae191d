"""Other sizes of an invocation, to run a dynamic export with.

Which dimensions of an operator's arguments may change together is not in its schema. Equal sizes are mostly
changed together, since sizes that must agree are equal, and PyTorch is asked whether the result is still
a valid call.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.compare.verdict import Stage
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec
from harness.pipeline.reference import run_reference
from harness.pipeline.task import Resized, ResizeTask, Step
from harness.pipeline.torch_call import CallRejected
from harness.pipeline.worker import WorkerProcess

#: Domains whose first parameter is a dimension's size: indices into it, and the ends of bags that it holds.
_SIZED_DOMAINS = ("index", "signed_index", "unique", "offsets")


def variants(base: Invocation, count: int) -> tuple[Invocation, ...]:
    """Return at most `count` valid invocations that differ from `base` in tensor sizes alone.

    The first are one of each kind that PyTorch takes: larger sizes, sizes of 1, of 0, two different sizes made equal,
    and a size in several places that is no longer the same in all of them. Then come more of them. Sizes that are 0
    or 1 in `base` keep their meaning and are not changed. Nor are sizes that can only change to 1, such as
    those of a tensor that is broadcast to given sizes: no model can leave them open. A variant in which values no
    longer fit the sizes that they refer to, such as offsets that end elsewhere than their list, is left out: PyTorch
    may read what lies behind. Runs PyTorch.
    """
    if any(isinstance(spec.values, Literal) for spec in base.tensors()):
        return ()
    ranks = [array.ndim for array in run_reference(base).expected]
    shapes = _shapes(base)
    relations = _relations(base)

    def is_variant(candidate: Invocation) -> bool:
        return _shapes(candidate) != shapes and _keeps_relations(candidate, relations) and _is_valid(candidate, ranks)

    others = [c for c in _other(base) if is_variant(c)]
    free = frozenset(n for candidate in others for n in _changed(base, candidate))
    found: dict[str, Invocation] = {}
    kinds = [
        iter(others),
        *((c for c in kind(base, free) if is_variant(c)) for kind in (_single, _empty, _equal, _unequal)),
    ]
    while kinds and len(found) < count:
        kind = kinds.pop(0)
        # A candidate of two kinds counts as the first.
        new = next((candidate for candidate in kind if candidate.case_id not in found), None)
        if new is not None:
            found[new.case_id] = new
            kinds.append(kind)
    return tuple(found.values())


def _is_valid(candidate: Invocation, ranks: Sequence[int]) -> bool:
    try:
        outputs = run_reference(candidate).expected
    except CallRejected:
        return False
    return [array.ndim for array in outputs] == list(ranks)


@dataclass(frozen=True)
class _Relation:
    """The values of a tensor refer to a size.

    Attributes:
        tensor: The number of the tensor.
        places: Each dimension of another tensor with that size: the number of the tensor and of the dimension.
    """

    tensor: int
    places: tuple[tuple[int, int], ...]


def _relations(base: Invocation) -> list[_Relation]:
    specs = list(base.tensors())
    relations = []
    for number, spec in enumerate(specs):
        size = _size_of_values(spec)
        places = (
            (other, dim)
            for other, its in enumerate(specs)
            for dim, n in enumerate(its.shape)
            if n == size and other != number
        )
        relations.append(_Relation(number, tuple(places)))
    return [relation for relation in relations if relation.places]


def _size_of_values(spec: TensorSpec) -> int | None:
    """Return the size that the values of a tensor refer to; None if they refer to none."""
    if isinstance(spec.values, Recipe) and spec.values.domain[0] in _SIZED_DOMAINS:
        return int(spec.values.domain[1])
    return None


def _keeps_relations(candidate: Invocation, relations: Sequence[_Relation]) -> bool:
    """Whether each tensor of indices or offsets still refers to the size of a dimension that it referred to."""
    specs = list(candidate.tensors())
    return all(
        _size_of_values(specs[relation.tensor]) in {specs[other].shape[dim] for other, dim in relation.places}
        for relation in relations
    )


def _shapes(call: Invocation) -> list[tuple[int, ...]]:
    return [spec.shape for spec in call.tensors()]


def _changed(base: Invocation, other: Invocation) -> Iterator[int]:
    """Return the sizes of `base` that differ in `other`."""
    for ours, theirs in zip(_shapes(base), _shapes(other), strict=True):
        yield from (n for n, m in zip(ours, theirs, strict=True) if n != m)


def _sizes(base: Invocation) -> list[int]:
    return sorted({n for spec in base.tensors() for n in spec.shape if n > 1})


def _other(base: Invocation) -> Iterator[Invocation]:
    """Yield all sizes one larger, twice as large, three larger, one smaller but 2; then each of them."""
    sizes = _sizes(base)
    for factor, summand in ((1, 1), (2, 0), (1, 3), (1, -1)) if sizes else ():
        yield _resized(base, {n: max(factor * n + summand, 2) for n in sizes})
    for factor, summand in ((1, 1), (2, 0), (1, -1)):
        for n in reversed(sizes):
            yield _resized(base, {n: max(factor * n + summand, 2)})


def _single(base: Invocation, free: frozenset[int]) -> Iterator[Invocation]:
    yield from _all_or_one(base, free, 1)


def _empty(base: Invocation, free: frozenset[int]) -> Iterator[Invocation]:
    yield from _all_or_one(base, free, 0)


def _all_or_one(base: Invocation, free: frozenset[int], size: int) -> Iterator[Invocation]:
    sizes = sorted(free)
    for n in sizes:
        yield _resized(base, {n: size})
    if len(sizes) > 1:
        yield _resized(base, dict.fromkeys(sizes, size))


def _equal(base: Invocation, free: frozenset[int]) -> Iterator[Invocation]:
    """Yield invocations with two different sizes made equal."""
    for one, other in itertools.combinations(sorted(free), 2):
        yield _resized(base, {one: other})
        yield _resized(base, {other: one})


def _unequal(base: Invocation, free: frozenset[int]) -> Iterator[Invocation]:
    """Yield invocations with a size that several dimensions share changed in one of them, counted from the end or the
    start."""
    repeated = [n for n in sorted(free) if any(spec.shape.count(n) > 1 for spec in base.tensors())]
    for n in repeated:
        for place in range(max(len(spec.shape) for spec in base.tensors())):
            for axis in (-1 - place, place):
                yield base.map_tensors(lambda spec, n=n, axis=axis: _resize(spec, {n: n + 1}, axis))  # type: ignore[misc]


def _resized(base: Invocation, sizes: dict[int, int]) -> Invocation:
    return base.map_tensors(lambda spec: _resize(spec, sizes))


def _resize(spec: TensorSpec, sizes: dict[int, int], axis: int | None = None) -> TensorSpec:
    """Return the spec with other sizes, in one dimension alone if `axis` names it."""
    places = range(len(spec.shape))
    changed = places if axis is None else places[axis : axis + 1 or None]
    shape = tuple(sizes.get(n, n) if i in changed else n for i, n in enumerate(spec.shape))
    values = spec.values
    assert isinstance(values, Recipe)
    if values.domain[0] in _SIZED_DOMAINS:
        first, *rest = (sizes.get(int(n), n) for n in values.domain[1:])
        values = replace(values, domain=(values.domain[0], first, *rest))
    strides = [0] * len(shape)
    step = min((s for s in spec.strides if s), default=1)
    for dim in sorted(range(len(shape)), key=lambda i: (spec.strides[i], -i)):
        if spec.strides[dim]:
            strides[dim] = step
            step *= max(shape[dim], 1)
    return replace(spec, shape=shape, strides=tuple(strides), values=values)


def carry_out(task: ResizeTask, worker: WorkerProcess) -> None:
    """Find the variants of each base, and send them."""
    for index, base in task.bases:
        worker.send(Step(Stage.REFERENCE, None, ((index, 0),)))
        try:
            found = variants(base, task.count)
        except CallRejected:
            # PyTorch rejects the base itself, which the task that runs it will report.
            found = ()
        worker.send(Resized(index, found))
