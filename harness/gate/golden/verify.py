"""Where PyTorch differs from the one that the goldens were recorded with, or from itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from harness.compare.comparison import compare
from harness.compare.judge import Mask, anything
from harness.compare.nearness import ulp
from harness.core.dtypes import Array, is_float
from harness.core.invocation import TensorSpec
from harness.core.isolation import IsolatedCalls, ProcessDied, preload_in_fork_server
from harness.core.tensors import build_tensor
from harness.core.torch_arrays import to_numpy
from harness.execute.torch_call import call_invocation
from harness.gate.golden.store import Golden
from harness.generate.case_library import load_cases

preload_in_fork_server("harness.execute.preload")

#: The fields of a `GoldenDifference` but for the golden; None where there is none.
Said: TypeAlias = "tuple[bool, str, float | None] | None"
_Asked: TypeAlias = Callable[[Golden], Said]


@dataclass(frozen=True)
class GoldenDifference:
    """What today's PyTorch makes of a golden, where that is not what was recorded.

    Attributes:
        is_wrong: Whether the judge takes today's outputs for wrong, or there are none; else they have
            moved within what is right.
        what: For a person: ``output 0: 2 of 6 elements, by up to 1 ULP``.
        max_ulp: Largest distance between finite floating-point elements, in units in the last place of
            the recorded one; None where no such element differs.
    """

    golden: Golden
    is_wrong: bool
    what: str
    max_ulp: float | None = None


def verify(goldens: Sequence[Golden], *, timeout: float = 60.0) -> Iterator[GoldenDifference]:
    """Run the goldens in today's PyTorch, in a process that may die of it."""
    with IsolatedCalls(timeout=timeout, fork=True) as process:
        yield from differences(goldens, today, process)


def differences(goldens: Sequence[Golden], asked: _Asked, process: IsolatedCalls) -> Iterator[GoldenDifference]:
    """What `asked` says of the goldens in `process`, where that is anything."""
    for golden in goldens:
        try:
            found = process.call(asked, golden)
        except ProcessDied as death:
            found = True, str(death), None
        if found is not None:
            yield GoldenDifference(golden, *found)


def today(golden: Golden) -> Said:
    """What this process's PyTorch makes of the golden; None where every bit is the same."""
    torch.set_num_threads(1)
    load_cases()
    try:
        outputs = [to_numpy(t) for t in call_invocation(golden.invocation, _inputs(golden))]
    except Exception as error:
        return True, f"{type(error).__name__}: {error}".splitlines()[0], None
    parts, largest = _parts(golden, outputs)
    if not parts:
        return None
    comparison = compare(golden.judge, golden, outputs)
    return comparison.problem is not None, "; ".join(parts), largest


def _inputs(golden: Golden) -> list[torch.Tensor]:
    """The recorded numbers in the layouts of the invocation, whatever its recipes stand for today."""
    specs = list(golden.invocation.tensors())
    return [_laid(array, spec) for array, spec in zip(golden.inputs, specs, strict=True)]


def _laid(array: Array, spec: TensorSpec) -> torch.Tensor:
    tensor = build_tensor(spec)
    built = to_numpy(tensor)
    same = array.dtype == built.dtype and array.shape == built.shape and array.tobytes() == built.tobytes()
    if not spec.numel or same:
        return tensor
    # As bytes: a copy of numbers may change NaN.
    size = tensor.element_size()
    storage = np.zeros((spec.storage_size, size), np.uint8)
    places = torch.arange(spec.storage_size).as_strided(spec.shape, spec.strides, spec.offset)
    storage[places.flatten().numpy()] = np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size)
    laid = torch.from_numpy(storage).flatten().view(tensor.dtype)
    return laid.as_strided(spec.shape, spec.strides, spec.offset)


def _parts(golden: Golden, outputs: Sequence[Array]) -> tuple[list[str], float | None]:
    judge = golden.judge
    if len(outputs) != len(golden.expected):
        return [f"{len(outputs)} outputs, {len(golden.expected)} were recorded"], None
    skip: Sequence[Mask | None] = [None] * len(outputs)
    if judge.undefined:
        skip = judge.undefined(golden.arguments, golden.expected)
    unasked = judge.unused_outputs(golden.arguments) if judge.unused_outputs else frozenset()
    parts: list[str] = []
    largest: float | None = None
    for i, (then, now) in enumerate(zip(golden.expected, outputs, strict=True)):
        if then.dtype != now.dtype or then.shape != now.shape:
            if i not in unasked:
                parts.append(f"output {i}: {now.dtype}{list(now.shape)}, {then.dtype}{list(then.shape)} was recorded")
            continue
        if i in unasked or judge.rules.get(i) is anything:
            continue
        differs, ulps = _apart(then, now, skip[i])
        if differs:
            by = "" if ulps is None else f", by up to {ulps:.3g} ULP"
            parts.append(f"output {i}: {differs} of {then.size} elements{by}")
            if ulps is not None:
                largest = ulps if largest is None else max(largest, ulps)
    return parts, largest


def _apart(then: Array, now: Array, skip: Mask | None) -> tuple[int, float | None]:
    """How many elements differ in a bit, NaN payloads apart, and how far the finite ones are."""
    unequal = then != now
    if then.dtype.kind not in "biu":
        unequal &= ~(np.isnan(then) & np.isnan(now))
        if then.dtype.kind != "c":
            unequal |= (then == 0) & (now == 0) & (np.signbit(then) != np.signbit(now))
    unequal = np.asarray(unequal if skip is None else unequal & ~skip)
    if not unequal.any() or not is_float(str(then.dtype)):
        return int(unequal.sum()), None
    wide = then.astype(np.float64)[unequal]
    other = now.astype(np.float64)[unequal]
    finite = np.isfinite(wide) & np.isfinite(other)
    if not finite.any():
        return int(unequal.sum()), None
    distance = np.abs(wide - other)[finite] / ulp(np.abs(wide[finite]), str(then.dtype))
    return int(unequal.sum()), float(distance.max())


#: PyTorch's kernels for a CPU without vector instructions.
_PLAIN_CPU = {"ATEN_CPU_CAPABILITY": "default"}


def disputed(goldens: Sequence[Golden], *, timeout: float) -> list[GoldenDifference]:
    """What PyTorch says otherwise when it is asked again.

    That is, differently in a bit where nothing but memory that it has not written differs; or wrongly, as
    the judge has it, on a CPU without vector instructions, where last places may differ.
    """
    with IsolatedCalls(timeout=timeout, fork=True) as process:
        found = list(differences(goldens, _today_with_other_memory, process))
    # PyTorch looks at the variable as it is imported, which the fork server has done.
    with IsolatedCalls(timeout=timeout, environment=_PLAIN_CPU) as process:
        found += [d for d in differences(goldens, today, process) if d.is_wrong]
    return found


def undisputed(goldens: Iterable[Golden], found: Iterable[GoldenDifference]) -> tuple[Golden, ...]:
    """Those that nothing was found about."""
    ids = {difference.golden.case_id for difference in found}
    return tuple(golden for golden in goldens if golden.case_id not in ids)


@contextmanager
def known_memory() -> Iterator[None]:
    """What is allocated within is filled with NaN or the largest integer."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _today_with_other_memory(golden: Golden) -> Said:
    with known_memory():
        return today(golden)
