"""The program that the exporter translates, run in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, witness
from harness.compare import Outcome, compare
from harness.convert import HasProgram
from harness.core import build_tensors, first_line
from harness.execute import quiet_call, to_numpy

#: Operators that are named; a program may have hundreds.
_MOST_NAMED = 24


def translated_program(trial: Trial) -> ExportedProgram | None:
    """The program that the failing converter translates; None where it cannot tell.

    Raises what the converter raises.
    """
    converter = trial.converter(trial.complaint.converter)
    if not isinstance(converter, HasProgram):
        return None
    return trial.translation.program


def operators_of(program: ExportedProgram) -> list[str]:
    """Names of the operators that a program calls, in order, each once."""
    return list(dict.fromkeys(str(n.target) for n in program.graph.nodes if n.op == "call_function"))


@witness("the decomposed program", place=5, turn=Turn.GRAPH, role=Role.PROGRAM)
def ask_decomposed_program(trial: Trial) -> Iterator[Testimony]:
    """Whether PyTorch gives the failing backend's result once it has decomposed the call.

    Where it does, the conversions of the operators that are left translate a program that is wrong already;
    so they do where PyTorch cannot even run what it has made of a call that its kernel accepts.
    """
    if trial.complaint.outcome is Outcome.UNSUPPORTED:
        return
    if trial.got is None and trial.complaint.outcome is Outcome.MISMATCH:
        return
    program = translated_program(trial)
    if program is None:
        return
    operators = operators_of(program)
    if trial.invocation.overload in operators:
        # Not decomposed: it is the kernel again.
        return
    facts = {"overload": trial.invocation.overload, "operators": operators[:_MOST_NAMED]}
    inputs = tuple(t.clone() for t in build_tensors(trial.invocation))
    try:
        with quiet_call():
            results = program.module(check_guards=False)(*inputs)
    except (IndexError, RuntimeError) as error:
        yield Testimony(Role.PROGRAM, Finding.REFUSES, "program", {**facts, "error": first_line(error)})
        return
    outputs = [to_numpy(t) for t in results if isinstance(t, torch.Tensor)]
    if len(outputs) != len(trial.reference.expected):
        return
    if compare(trial.judge, trial.reference, outputs).problem is None:
        yield Testimony(Role.PROGRAM, Finding.CONFIRMS, "program", facts)
    elif trial.got is not None and trial.is_same(outputs):
        facts = {**facts, "backend": trial.complaint.backend}
        yield Testimony(Role.PROGRAM, Finding.CONTRADICTS, "program", facts)
