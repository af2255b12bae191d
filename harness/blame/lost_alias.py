"""Whether an exporter takes a value that shares memory with another for a copy, so that a change in place is lost.

PyTorch runs the program with a copy in place of one view after another. If that gives the failing result, the exporter
has captured the pair of calls wrongly: the one whose result shares memory, and the one that changes it in place. No
call of the pair fails by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import torch

from harness.blame.failure_context import FailureContext
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.core.dtypes import Array
from harness.core.invocation import Argument, Invocation, Result
from harness.core.program import Program, map_arguments
from harness.core.tensors import ProgramSteps, bind, build_tensors
from harness.core.torch_arrays import to_numpy
from harness.pipeline.torch_call import quiet_call

#: Views that are taken for copies at once, and combinations that are tried.
_AT_ONCE, _MOST = 2, 40


def find_lost_alias(context: FailureContext) -> Testimony | None:
    """Return the testimony about the pair of calls that an exporter captured wrongly; None if no pair explains it."""
    program = Program.of(context.invocation)
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None or not program.changes_in_place:
        return None
    try:
        pairs = dict(_pairs(program))
        for place in _combinations(list(pairs)):
            outputs = _outputs(_insert_copies(program, place))
            if context.compare(outputs).problem is not None and context.answer.is_same(outputs):
                changed = program.calls[pairs[place[0]]].overload
                facts = {
                    "alias": program.calls[place[0]].overload,
                    "in_place": changed,
                    "backend": context.failure.backend,
                }
                return Testimony(Role.PROGRAM, Finding.SAME, "alias-as-copy", facts)
    except Exception:
        # PyTorch may reject the program with a copy in it.
        return None
    return None


def _combinations(places: Sequence[int]) -> list[tuple[int, ...]]:
    sizes = range(1, min(_AT_ONCE, len(places)) + 1)
    found = [chosen for size in sizes for chosen in combinations(places, size)][:_MOST]
    return [*found, tuple(places)] if len(places) > _AT_ONCE else found


def _pairs(program: Program) -> Iterator[tuple[int, int]]:
    """Yield each call whose result shares memory with an earlier value, with the next call that changes that memory."""
    steps = bind(program.invocation).target
    assert isinstance(steps, ProgramSteps)
    tensors = build_tensors(program.invocation)
    with quiet_call():
        results = steps.results(tensors)
    earlier = {_storage(tensor) for tensor in tensors}
    for place, made in enumerate(results):
        storages = {_storage(value) for value in made if isinstance(value, torch.Tensor)}
        if storages & earlier and not _is_in_place(program.calls[place]):
            later = range(place + 1, len(results))
            changing = (i for i in later if _is_in_place(program.calls[i]) and _storage(results[i][0]) in storages)
            change = next(changing, None)
            if change is not None:
                yield place, change
        earlier |= storages


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_in_place(call: Invocation) -> bool:
    return call.overload.split(".")[1].endswith("_")


def _insert_copies(program: Program, places: Sequence[int]) -> Program:
    """Return a program in which a copy of the result of some calls takes its place."""
    calls: list[Invocation] = []
    moved: dict[int, int] = {}

    def renumbered(argument: Argument) -> Argument:
        return replace(argument, call=moved[argument.call]) if isinstance(argument, Result) else argument

    for place, call in enumerate(program.calls):
        calls.append(map_arguments(call, renumbered))
        if place in places:
            calls.append(Invocation("aten.clone.default", (("self", Result(len(calls) - 1)),)))
        moved[place] = len(calls) - 1
    returns = tuple(renumbered(value) for value in program.returns)
    return replace(program, calls=tuple(calls), returns=returns)  # type: ignore[arg-type]


def _outputs(program: Program) -> tuple[Array, ...]:
    call = bind(program.invocation)
    with quiet_call():
        return tuple(to_numpy(output) for output in call(build_tensors(program.invocation)))
