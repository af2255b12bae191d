"""Calls of any operator in a program, drawn by its operator case, with earlier values for tensors if they fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from harness.core.invocation import Argument, Invocation, Result, TensorSpec, Weight
from harness.core.program import Program, map_arguments, map_parts, results_in
from harness.core.tensors import ProgramSteps, bind, build_tensors, draws_at_random
from harness.generate.case_library import load_cases
from harness.generate.draw import ANY, FINITE, Draw
from harness.generate.draws import draw_invocation
from harness.generate.operator_case import OperatorCase
from harness.generate.programs import ProgramDraw

#: Draws of a call before it is given up.
_ATTEMPTS = 12


@dataclass(frozen=True)
class Value:
    """A value of a program, as far as another call asks."""

    result: Result
    shape: tuple[int, ...]
    dtype: str


class _ShapedDraw(Draw):
    """A draw that often takes its shapes from values."""

    def __init__(self, below: Callable[[int], int], dtype: str, values: Sequence[Value]) -> None:
        super().__init__(below, dtype)
        self._shapes = [value.shape for value in values]

    def shape(self, min_rank: int = 0, max_rank: int = 5, *, min_size: int = 0, max_size: int = 65) -> tuple[int, ...]:
        """See `Draw.shape`."""
        fitting = [
            shape
            for shape in self._shapes
            if min_rank <= len(shape) <= max_rank and all(min_size <= n <= max_size for n in shape)
        ]
        if fitting and self.integer(0, 2):
            return self.choose(*fitting)
        return super().shape(min_rank, max_rank, min_size=min_size, max_size=min(max_size, 4))


def add_any_call(p: ProgramDraw, *, of_weights: bool = False) -> Result | None:
    """Add a call of an operator that models call; return None if no drawn call fits.

    Args:
        of_weights: Take weights only. Otherwise at least one tensor is an earlier value, if there are any.
    """
    values = values_of(p.calls)
    for _ in range(_ATTEMPTS):
        dtype = p.choose(*values).dtype if values and not of_weights else p.dtype
        cases = _cases_for(dtype)
        if not cases:
            continue
        drawn = draw_invocation(_ShapedDraw(p.below, dtype, values), p.choose(*cases))
        call = map_arguments(drawn, _held) if of_weights else _linked(p, drawn, values)
        if values and not of_weights and not any(results_in(call)):
            continue
        p.calls.append(call)
        try:
            if values_of(p.calls)[-1].result.call == len(p.calls) - 1:
                return Result(len(p.calls) - 1)
        except Exception:
            # PyTorch rejects it with these values.
            pass
        p.calls.pop()
    return None


def values_of(calls: Sequence[Invocation]) -> list[Value]:
    """Run the calls of a program and return their results; raises PyTorch's exceptions."""
    if not calls:
        return []
    whole = Program("", tuple(calls), (Result(len(calls) - 1),)).invocation
    steps = bind(whole).target
    assert isinstance(steps, ProgramSteps)
    with torch.no_grad():
        results = steps.results(build_tensors(whole))
    return _described(results)


def shapes_of(calls: Sequence[Invocation]) -> list[Value]:
    """Return the results of the calls of a program without computing them; raises PyTorch's exceptions.

    A kernel may crash at a call that no operator case vouches for, so none is run. An operator without a rule for
    shapes alone raises, and so does a result whose shape depends on values.
    """

    def given(argument: Argument) -> Argument:
        if not isinstance(argument, Weight):
            return argument
        return replace(argument.spec, dtype=argument.dtype or argument.spec.dtype)

    if not calls:
        return []
    program = Program("", tuple(calls), (Result(len(calls) - 1),))
    whole = map_parts(program, given).invocation
    steps = bind(whole).target
    assert isinstance(steps, ProgramSteps)
    return _described(
        steps.results(
            [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta") for spec in whole.tensors()]
        )
    )


def _described(results: Sequence[Sequence[object]]) -> list[Value]:
    return [
        Value(Result(place, output), tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for place, outputs in enumerate(results)
        for output, tensor in enumerate(outputs)
        if isinstance(tensor, torch.Tensor)
    ]


@cache
def _cases_for(dtype: str) -> tuple[OperatorCase, ...]:
    """Return operators that models call and that are converted, with one right answer."""
    return tuple(
        case
        for _, case in sorted(load_cases().items())
        if case.used
        and case.converted
        and dtype in case.dtypes
        and dtype not in case.gaps
        and not case.judge.rules
        and not draws_at_random(Invocation(case.overload, ()))
    )


def _held(argument: Argument) -> Argument:
    return Weight(argument) if isinstance(argument, TensorSpec) else argument


def _linked(p: ProgramDraw, call: Invocation, values: Sequence[Value]) -> Invocation:
    """Return the call with earlier values in place of tensors that may be any value of their form."""

    def linked(argument: Argument) -> Argument:
        if not isinstance(argument, TensorSpec):
            return argument
        domain = getattr(argument.values, "domain", ())
        fitting = [v.result for v in values if (v.shape, v.dtype) == (argument.shape, argument.dtype)]
        if domain in (ANY, FINITE) and fitting:
            return p.choose(*fitting, fitting[-1])
        return Weight(argument) if p.sometimes() else argument

    return map_arguments(call, linked)
