"""Run the program that the exporter translates in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from harness.blame.failure_context import FailureContext
from harness.blame.translated_program import operators_of, translated_program
from harness.blame.witness import Turn, witness
from harness.compare.comparison import compare
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.convert.fast.fast_export import quick_decompositions
from harness.core.dtypes import Array
from harness.core.tensors import build_tensors
from harness.core.text import first_line
from harness.core.torch_arrays import to_numpy
from harness.pipeline.torch_call import quiet_call

#: Operators that are named; a program may have hundreds.
_MOST_NAMED = 24


@witness("the decomposed program", place=5, turn=Turn.GRAPH, of_one_call=True)
def ask_decomposed_program(context: FailureContext) -> Iterator[Testimony]:
    """Testify if PyTorch gives the failing backend's result once it has decomposed the call.

    If it does, the conversions of the remaining operators translate a program that is wrong already. The same is true
    if PyTorch cannot even run its own decomposition of a call that its kernel accepts. If only the program that the
    exporter translates is wrong, one of the exporter's own passes has made it so.
    """
    if context.failure.outcome is Outcome.UNSUPPORTED:
        return
    if context.got is None and context.failure.outcome is Outcome.MISMATCH:
        return
    program = translated_program(context)
    if program is None:
        return
    operators = operators_of(program)
    if operators == [context.invocation.overload]:
        # Not decomposed: it is the kernel again.
        return
    facts = {"overload": context.invocation.overload, "operators": operators[:_MOST_NAMED]}
    inputs = tuple(t.clone() for t in build_tensors(context.invocation))
    exporters_is_wrong = False
    try:
        outputs = _run_program(program.module(check_guards=False), inputs)
        if len(outputs) != len(context.reference.expected):
            return
        if compare(context.judge, context.reference, outputs).problem is None:
            yield Testimony(Role.PROGRAM, Finding.CONFIRMS, "program", facts)
            return
        if context.got is None or not context.answer.is_same(outputs):
            return
        exporters_is_wrong = True
    except (IndexError, RuntimeError):
        # The program that PyTorch itself captures decides.
        pass
    facts = {**facts, "backend": context.failure.backend}
    yield from _ask_own_program(context, inputs, facts, exporters_is_wrong=exporters_is_wrong)


def _run_program(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[Array]:
    with quiet_call():
        results = module(*inputs)
    return [to_numpy(t) for t in results if isinstance(t, torch.Tensor)]


def _ask_own_program(
    context: FailureContext, inputs: Sequence[torch.Tensor], facts: Mapping[str, Any], *, exporters_is_wrong: bool
) -> Iterator[Testimony]:
    """Run the program that PyTorch itself captures and decomposes, with its checks of sizes.

    The program that the exporter translates has lost the checks, and has been through the exporter's own passes, such
    as the one for type promotion.
    """
    request = context.structure.request(context.route)

    def own() -> torch.nn.Module:
        with quiet_call(), quick_decompositions() as decompositions:
            captured = request.model_call.captured()
            module: torch.nn.Module = captured.run_decompositions(decompositions).module()
            return module

    try:
        module = context.cached_per_structure("PyTorch's own program", own)
    except Exception:
        # It cannot be captured in this way: nothing is known.
        return
    try:
        outputs = _run_program(module, inputs)
    except AssertionError as error:
        yield Testimony(Role.PROGRAM, Finding.INVALID, "program", {**facts, "error": first_line(error)})
    except (IndexError, RuntimeError) as error:
        yield Testimony(Role.PROGRAM, Finding.REFUSES, "program", {**facts, "error": first_line(error)})
    else:
        if context.got is not None and context.answer.is_same(outputs):
            yield Testimony(Role.PROGRAM, Finding.CONTRADICTS, "program", facts)
        elif exporters_is_wrong and compare(context.judge, context.reference, outputs).problem is None:
            facts = {**facts, "converter": context.failure.converter}
            yield Testimony(Role.PROGRAM, Finding.SAME, "exporters-program", facts)
