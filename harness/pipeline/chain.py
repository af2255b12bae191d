"""Run the calls of a program one by one: a backend's results of each feed the later ones.

A program is right if each of its calls is right by itself, on the values that the backend gave for the calls before,
and the chain of these results is the backend's result for the program: then nothing is wrong between the calls,
whatever the reference for the whole. So a program may leave open the same results as a single call, such as those of
an overflow on its way to a mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import torch

from harness.compare.comparison import wrong_elements
from harness.compare.judge import CLOSE, Judge, Mask
from harness.compare.nearness import tolerance_of
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Argument, Input, Invocation, Literal, Result, TensorSpec, Weight, contiguous_strides
from harness.core.program import Program, map_arguments, parts_of, unshare_inputs
from harness.core.size_operators import is_size_operator
from harness.core.tensors import ProgramSteps, bind, build_tensors, draws_at_random, weight_tensor
from harness.core.torch_arrays import to_numpy
from harness.pipeline.case import CaseOracle
from harness.pipeline.case_run import CaseRun
from harness.pipeline.reference import run_reference
from harness.pipeline.torch_call import CallRejected, quiet_call

#: Elements of a value above which a call is not run by itself: its values are written out.
MOST = 2**14


@dataclass(frozen=True)
class CallRun:
    """A call of a program by itself.

    Attributes:
        exported: The call, with the values that it gets in the program that was exported as its inputs.
        reference: PyTorch's answer to the same call in the program that is run, which may have other sizes.
        backend: The name of the backend that ran it.
        run: The result.
    """

    exported: Invocation
    reference: CaseOracle
    backend: str
    run: CaseRun


class RunsCalls(Protocol):
    """Runs calls by themselves: a `harness.pipeline.program.CallRunner`."""

    def run_call(self, exported: Invocation, reference: CaseOracle) -> CallRun:
        """Run one call, by an export of the same call that leaves sizes open in which the two differ."""


def run_calls(
    caller: RunsCalls, invocation: Invocation, exported: Invocation | None = None, *, hands_on_wrong: bool = False
) -> Iterator[CallRun | None]:
    """Run each call of a program by itself, in order; yield None for a call that cannot be run.

    After a call without a result, or with a wrong one, the later calls get PyTorch's values.

    Args:
        caller: Runs the calls.
        invocation: The program.
        exported: The exported program, perhaps with other sizes; None for the program itself.
        hands_on_wrong: Whether later calls get a call's values of the right form even if they are wrong.
    """
    program = unshare_inputs(Program.of(invocation))
    base = unshare_inputs(Program.of(exported)) if exported is not None else program
    first = values_of(base)
    results: list[Values] = []
    for call, other in zip(program.calls, base.calls, strict=True):
        alone, alike = _valued(call, results), _valued(other, first)
        if is_size_operator(call.overload):
            results.append((bind(alone)(build_tensors(alone)),))
            continue
        if _numbers(alone) != _numbers(alike):
            # By itself a call has the sizes that it takes as numbers.
            alike = alone
        try:
            reference = run_reference(alone)
        except CallRejected:
            # With the backend's results of the calls before.
            yield None
            return
        results.append(reference.expected)
        if any(spec.numel > MOST for one in (alone, alike) for spec in one.tensors()):
            yield None
            continue
        found = caller.run_call(alike if exported is not None else alone, reference)
        yield found
        outputs = found.run.outputs
        if outputs is not None and (found.run.passes or (hands_on_wrong and _have_form(outputs, reference.expected))):
            results[-1] = outputs


def _have_form(arrays: Sequence[Array], others: Sequence[Array]) -> bool:
    return [(a.shape, a.dtype) for a in arrays] == [(o.shape, o.dtype) for o in others]


#: The results of a call: arrays, or the number of one that computes sizes.
Values: TypeAlias = "tuple[Array | int | float, ...]"


def values_of(program: Program) -> list[Values]:
    """Return PyTorch's results of each call of a program."""
    call = bind(program.invocation)
    assert isinstance(call.target, ProgramSteps)
    with quiet_call():
        results = call.target.results(build_tensors(program.invocation))
    return [tuple(to_numpy(o) if isinstance(o, torch.Tensor) else o for o in outputs) for outputs in results]


def _numbers(call: Invocation) -> list[Argument]:
    """Return the arguments of a call other than tensors."""
    parts = (part for _, argument in call.arguments for part in parts_of(argument))
    return [part for part in parts if not isinstance(part, TensorSpec)]


def _valued(call: Invocation, results: Sequence[Values]) -> Invocation:
    """Return a call with values in place of weights and of the results of other calls."""

    def valued(argument: Argument) -> Argument:
        if isinstance(argument, Weight):
            return argument.spec if not argument.dtype else _spec(to_numpy(weight_tensor(argument)))
        if not isinstance(argument, Result):
            return argument
        value = results[argument.call][argument.output]
        return value if isinstance(value, int | float) else _spec(value)

    return map_arguments(call, valued)


def is_chain_of_right_calls(
    caller: RunsCalls, reference: CaseOracle, got: Sequence[Array], exported: Invocation | None = None
) -> bool:
    """Whether what a backend gives for a program is what its calls give one by one, each of which is right."""
    program = Program.of(reference.invocation)
    if not _can_be_chained(program):
        return False
    calls: list[CallRun | None] = []
    for call in run_calls(caller, reference.invocation, exported):
        if call is None or not call.run.passes:
            return False
        calls.append(call)
    return bool(is_chain(calls, reference, got))


def _can_be_chained(program: Program) -> bool:
    """Whether the results of a program's calls are all that they do.

    A call that changes a value in place has more to say than its result, and one that draws at random may draw the
    same when it is loaded again.
    """
    return not program.changes_in_place and not any(map(draws_at_random, program.calls))


def is_chain(
    calls: Sequence[CallRun | None], reference: CaseOracle, got: Sequence[Array], judge: Judge | None = None
) -> bool | None:
    """Whether a backend's result for a program is that of its calls one by one; None if the calls do not tell.

    Args:
        calls: All results of `run_calls`.
        reference: PyTorch's answer to the program.
        got: The backend's answer.
        judge: The rules by which elements are wrong; None for the reference's.
    """
    program = Program.of(reference.invocation)
    places = [place for place, call in enumerate(program.calls) if not is_size_operator(call.overload)]
    if not _can_be_chained(program) or len(calls) < len(places):
        return None
    by_place = dict(zip(places, calls, strict=False))
    chained: list[Array] = []
    for returned in program.returns:
        if isinstance(returned, Input):
            chained.append(reference.feeds[returned.place])
        elif isinstance(returned, Weight):
            chained.append(to_numpy(weight_tensor(returned)))
        else:
            call = by_place[returned.call]
            if call is None or call.run.outputs is None:
                return None
            chained.append(call.run.outputs[returned.output])
    if len(chained) != len(got):
        return False
    return all(map(_same, chained, got, wrong_elements(judge or reference.judge, reference, got)))


def _same(chained: Array, got: Array, wrong: Mask) -> bool:
    """Whether both agree within the last places at the wrong elements."""
    dtype = str(got.dtype)
    if (chained.shape, str(chained.dtype)) != (got.shape, dtype):
        return False
    if dtype not in PRECISION:
        return bool((chained == got)[wrong].all())
    return bool(tolerance_of(CLOSE, dtype).accepts(chained.astype(np.float64), got.astype(np.float64))[wrong].all())


def _spec(array: Array) -> TensorSpec:
    # JSON and PyTorch know no numbers of ml_dtypes.
    wide = array.astype(np.float64) if str(array.dtype) in PRECISION else array
    values = Literal(tuple(wide.flatten().tolist()))
    return TensorSpec(array.shape, str(array.dtype), contiguous_strides(array.shape), 0, values)
