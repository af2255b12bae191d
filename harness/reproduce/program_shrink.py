"""Shrinking a program to the fewest calls that fail in the same way.

1. Return one value, or the result of a call in the middle, so that the later calls are dropped.
2. Feed the result of a call instead of making the call, so that the earlier calls are dropped.
3. Leave a call out if its result has the form of one of its inputs.
4. Drop the names of weights.
5. Replace weights and inputs by small plain numbers, if the program fails with these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from harness.core.invocation import (
    Argument,
    Input,
    Invocation,
    Literal,
    Recipe,
    Result,
    TensorSpec,
    Weight,
    contiguous_strides,
)
from harness.core.program import (
    Program,
    Returned,
    map_arguments,
    map_parts,
    parts_of,
    share_inputs,
    unshare_inputs,
)
from harness.core.size_operators import is_size_operator
from harness.core.tensors import ProgramSteps, bind, build_tensors
from harness.pipeline.torch_call import quiet_call

#: Elements up to which values are written out.
_MOST = 256


def plainer_programs(invocation: Invocation) -> Iterator[Invocation]:
    """Yield programs that are one step plainer, those with the fewest calls first."""
    whole = Program.of(invocation)
    call = bind(invocation)
    assert isinstance(call.target, ProgramSteps)
    with quiet_call():
        results = call.target.results(build_tensors(invocation))
    program = unshare_inputs(whole)
    found = {}
    for plainer in _fewer_calls(program, results):
        pruned = share_inputs(_remove_dead_calls(plainer))
        if pruned.calls and pruned.returns and pruned != whole:
            found[pruned.invocation.json] = pruned
    yield from (p.invocation for p in sorted(found.values(), key=lambda p: (len(p.calls), len(p.returns))))
    for plainer in (_without_names(program), *_plainer_numbers(program)):
        yield share_inputs(plainer).invocation


def _fewer_calls(program: Program, results: list[list[Any]]) -> Iterator[Program]:
    for value in program.returns:
        if len(program.returns) > 1:
            yield replace(program, returns=tuple(other for other in program.returns if other != value))
    for place in range(len(program.calls)):
        for output, value in enumerate(results[place]):
            if (Result(place, output),) != program.returns and isinstance(value, torch.Tensor):
                yield replace(program, returns=(Result(place, output),))
    for place, call in enumerate(program.calls):
        if is_size_operator(call.overload):
            yield _replace_result(program, place, {0: results[place][0]})
            continue
        outputs = [_spec(tensor) for tensor in results[place]]
        if not _returns(program, place) and all(spec.numel <= _MOST for spec in outputs):
            yield _replace_result(program, place, dict(enumerate(outputs)))
        if len(outputs) == 1:
            yield from _bypassed(program, place, call, outputs[0], results)


def _bypassed(
    program: Program, place: int, call: Invocation, form: TensorSpec, results: list[list[Any]]
) -> Iterator[Program]:
    """Yield the program without a call, whose result becomes one of its own inputs of the same form."""
    for _, argument in call.arguments:
        for part in parts_of(argument):
            if isinstance(part, Result):
                taken = _spec(results[part.call][part.output])
            elif isinstance(part, TensorSpec | Weight):
                taken = part if isinstance(part, TensorSpec) else part.spec
            else:
                continue
            if (taken.shape, taken.dtype) == (form.shape, form.dtype) and not (
                _returns(program, place) and isinstance(part, TensorSpec)
            ):
                yield _replace_result(program, place, {0: part})


def _replace_result(program: Program, place: int, outputs: dict[int, Argument]) -> Program:
    """Return the program with other values in place of a call's results, so that the call is dead."""

    def changed(argument: Argument) -> Argument:
        is_of_call = isinstance(argument, Result) and argument.call == place
        return outputs[argument.output] if is_of_call else argument  # type: ignore[union-attr]

    return map_parts(program, changed)


def _returns(program: Program, place: int) -> bool:
    """Whether something that a call gives is returned."""
    return any(isinstance(value, Result) and value.call == place for value in program.returns)


def _remove_dead_calls(program: Program) -> Program:
    """Return the program without the calls that no returned value depends on."""
    alive = {value.call for value in program.returns if isinstance(value, Result)}
    for place in reversed(range(len(program.calls))):
        if place in alive:
            arguments = (part for _, a in program.calls[place].arguments for part in parts_of(a))
            alive |= {part.call for part in arguments if isinstance(part, Result)}
    places = {old: new for new, old in enumerate(sorted(alive))}

    def moved(argument: Argument) -> Argument:
        return replace(argument, call=places[argument.call]) if isinstance(argument, Result) else argument

    calls = tuple(map_arguments(program.calls[old], moved) for old in places)
    inputs = [spec for call in program.calls for spec in call.tensors()]
    kept = [spec for call in calls for spec in call.tensors()]

    def moved_or_none(value: Returned) -> Returned | None:
        if isinstance(value, Input):
            spec = inputs[value.place]
            return Input(kept.index(spec)) if spec in kept else None
        return replace(value, call=places[value.call]) if isinstance(value, Result) else value

    returns = tuple(value for value in dict.fromkeys(map(moved_or_none, program.returns)) if value is not None)
    return Program(program.name, calls, returns)


def _without_names(program: Program) -> Program:
    """Return the program with weights that exporters name."""
    return map_parts(program, lambda part: replace(part, name="") if isinstance(part, Weight) else part)


def _plainer_numbers(program: Program) -> Iterator[Program]:
    """Yield programs with plain numbers for the values of a recipe, in all tensors at once and in one by one."""
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
            yield _replace_specs(program, chosen, make)


def _spec_of(part: TensorSpec | Weight) -> TensorSpec:
    return part.spec if isinstance(part, Weight) else part


def _replace_specs(
    program: Program, chosen: Iterable[TensorSpec | Weight], make: Callable[[TensorSpec], TensorSpec]
) -> Program:
    wanted = {id(part) for part in chosen}

    def changed(argument: Argument) -> Argument:
        if id(argument) not in wanted:
            return argument
        if isinstance(argument, Weight):
            return replace(argument, spec=make(argument.spec))
        return make(argument) if isinstance(argument, TensorSpec) else argument

    return map_parts(program, changed)


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
