"""Other sizes for an invocation: what a dynamic export is run with.

Which dimensions of an operator's arguments may change together is not in its schema. Equal sizes are
changed together, since sizes that must agree are equal, and PyTorch is asked whether the result is still
a valid call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.compare import Stage
from harness.core import Invocation, Literal, Recipe, TensorSpec
from harness.execute.reference import run_reference
from harness.execute.task import Resized, ResizeTask, Step
from harness.execute.worker import WorkerProcess

#: Domains whose first parameter is a dimension's size.
_SIZED_DOMAINS = ("index", "signed_index", "unique")


def variants(base: Invocation, count: int) -> tuple[Invocation, ...]:
    """At most `count` valid invocations that differ from `base` in tensor sizes alone.

    The first changes as many dimensions as PyTorch accepts at once. Sizes 0 and 1 keep their
    meaning and are not changed. Runs PyTorch.
    """
    found: dict[str, Invocation] = {}
    expected_ranks = [array.ndim for array in run_reference(base).expected]
    for candidate in _candidates(base):
        if len(found) == count:
            break
        try:
            outputs = run_reference(candidate).expected
        except Exception:
            continue
        if [array.ndim for array in outputs] == expected_ranks:
            found.setdefault(candidate.case_id, candidate)
    return tuple(found.values())


def _candidates(base: Invocation) -> Iterator[Invocation]:
    sizes = sorted({n for spec in base.tensors() for n in spec.shape if n > 1})
    if not sizes or any(isinstance(s.values, Literal) for s in base.tensors()):
        return
    # (factor, summand): one more, twice as many, three more, one less.
    for factor, summand in ((1, 1), (2, 0), (1, 3), (1, -1)):
        yield _resized(base, {n: factor * n + summand for n in sizes})
    for factor, summand in ((1, 1), (2, 0), (1, -1)):
        for n in reversed(sizes):
            yield _resized(base, {n: factor * n + summand})


def _resized(base: Invocation, sizes: dict[int, int]) -> Invocation:
    return base.map_tensors(lambda spec: _resize(spec, sizes))


def _resize(spec: TensorSpec, sizes: dict[int, int]) -> TensorSpec:
    shape = tuple(sizes.get(n, n) for n in spec.shape)
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
        except Exception:
            # PyTorch rejects the base itself, which the task that runs it will report.
            found = ()
        worker.send(Resized(index, found))
