"""Shrinking a program to the fewest calls that fail in the same way.

1. Return one value, or what a call in the middle gives: what comes after it goes.
2. Feed what a call gives in place of making the call: what comes before it goes.
3. Leave a call out where its result has the form of what it takes.
4. Write out what is held or fed as small plain numbers, where it fails with these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from harness.core.invocation import (
    Argument,
    Invocation,
    Literal,
    Recipe,
    Result,
    TensorSpec,
    Weight,
    contiguous_strides,
)
from harness.core.program import Program, parts_of, with_arguments
from harness.core.size_operators import is_size_operator
from harness.core.tensors import ProgramSteps, bind, build_tensors
from harness.execute.torch_call import quiet_call

#: Elements up to which values are written out.
_MOST = 256


def plainer_programs(invocation: Invocation) -> Iterator[Invocation]:
    """Programs that are one step plainer, those with the fewest calls first."""
    program = Program.of(invocation)
    call = bind(invocation)
    assert isinstance(call.target, ProgramSteps)
    with quiet_call():
        results = call.target.results(build_tensors(invocation))
    found = {}
    for plainer in _fewer_calls(program, results):
        pruned = _without_dead_calls(plainer)
        if pruned != program:
            found[pruned.invocation.json] = pruned
    yield from (p.invocation for p in sorted(found.values(), key=lambda p: (len(p.calls), len(p.returns))))
    for plainer in _plainer_numbers(program):
        yield plainer.invocation


def _fewer_calls(program: Program, results: list[list[Any]]) -> Iterator[Program]:
    for place in range(len(program.calls)):
        for output, value in enumerate(results[place]):
            if (Result(place, output),) != program.returns and isinstance(value, torch.Tensor):
                yield replace(program, returns=(Result(place, output),))
    for place, call in enumerate(program.calls):
        if is_size_operator(call.overload):
            yield _with_result(program, place, {0: results[place][0]})
            continue
        outputs = [_spec(tensor) for tensor in results[place]]
        is_returned = any(result.call == place for result in program.returns)
        if not is_returned and all(spec.numel <= _MOST for spec in outputs):
            yield _with_result(program, place, dict(enumerate(outputs)))
        if len(outputs) == 1:
            yield from _bypassed(program, place, call, outputs[0], results)


def _bypassed(
    program: Program, place: int, call: Invocation, form: TensorSpec, results: list[list[Any]]
) -> Iterator[Program]:
    """Without a call, its result replaced by something of the same form that it takes."""
    for _, argument in call.arguments:
        for part in parts_of(argument):
            if isinstance(part, Result):
                taken = _spec(results[part.call][part.output])
            elif isinstance(part, TensorSpec | Weight):
                taken = part if isinstance(part, TensorSpec) else part.spec
            else:
                continue
            is_returned = any(result.call == place for result in program.returns)
            if (taken.shape, taken.dtype) == (form.shape, form.dtype) and not (
                is_returned and not isinstance(part, Result)
            ):
                yield _with_result(program, place, {0: part})


def _with_result(program: Program, place: int, outputs: dict[int, Argument]) -> Program:
    """The program with something in place of what a call gives; the call is dead then."""

    def changed(argument: Argument) -> Argument:
        is_of_call = isinstance(argument, Result) and argument.call == place
        return outputs[argument.output] if is_of_call else argument  # type: ignore[union-attr]

    calls = tuple(with_arguments(call, changed) for call in program.calls)
    returns = tuple(r if not isinstance(c := changed(r), Result) else c for r in program.returns)
    return replace(program, calls=calls, returns=returns)


def _without_dead_calls(program: Program) -> Program:
    """Without the calls that nothing returned depends on."""
    alive = {result.call for result in program.returns}
    for place in reversed(range(len(program.calls))):
        if place in alive:
            arguments = (part for _, a in program.calls[place].arguments for part in parts_of(a))
            alive |= {part.call for part in arguments if isinstance(part, Result)}
    places = {old: new for new, old in enumerate(sorted(alive))}

    def moved(argument: Argument) -> Argument:
        return replace(argument, call=places[argument.call]) if isinstance(argument, Result) else argument

    calls = tuple(with_arguments(program.calls[old], moved) for old in places)
    returns = tuple(dict.fromkeys(replace(r, call=places[r.call]) for r in program.returns))
    return Program(program.name, calls, returns)


def _plainer_numbers(program: Program) -> Iterator[Program]:
    """With plain numbers for the values of a recipe, all at once and one tensor after the other."""
    plainer: list[Callable[[TensorSpec], TensorSpec]] = [_counted, _halves]
    recipes = [
        part
        for call in program.calls
        for _, argument in call.arguments
        for part in parts_of(argument)
        if isinstance(part, TensorSpec | Weight) and isinstance(_spec_of(part).values, Recipe)
    ]
    for chosen in (recipes, *([part] for part in recipes)):
        for make in plainer:
            yield _with_parts(program, chosen, make)


def _spec_of(part: TensorSpec | Weight) -> TensorSpec:
    return part.spec if isinstance(part, Weight) else part


def _with_parts(
    program: Program, chosen: Iterable[TensorSpec | Weight], make: Callable[[TensorSpec], TensorSpec]
) -> Program:
    wanted = {id(part) for part in chosen}

    def changed(argument: Argument) -> Argument:
        if id(argument) not in wanted:
            return argument
        if isinstance(argument, Weight):
            return replace(argument, spec=make(argument.spec))
        return make(argument) if isinstance(argument, TensorSpec) else argument

    return replace(program, calls=tuple(with_arguments(call, changed) for call in program.calls))


def _counted(spec: TensorSpec) -> TensorSpec:
    """1, 2, 3, 1, …"""
    return _filled(spec, [i % 3 + 1 for i in range(spec.numel)])


def _halves(spec: TensorSpec) -> TensorSpec:
    """-1.5, -1, …, 1.5, as far as the dtype has these."""
    return _filled(spec, [(i * 5 % 7 - 3) / 2 for i in range(spec.numel)])


def _filled(spec: TensorSpec, numbers: list[float]) -> TensorSpec:
    if spec.numel > _MOST or spec.storage_size != spec.numel:
        return spec
    whole = spec.dtype.startswith(("int", "uint"))
    values = tuple(n > 0 if spec.dtype == "bool" else abs(int(n)) if whole else float(n) for n in numbers)
    return replace(spec, values=Literal(values))


def _spec(tensor: torch.Tensor) -> TensorSpec:
    shape = tuple(tensor.shape)
    values = tuple(tensor.contiguous().flatten().tolist()) if tensor.numel() <= _MOST else ()
    return TensorSpec(shape, str(tensor.dtype).removeprefix("torch."), contiguous_strides(shape), 0, Literal(values))
