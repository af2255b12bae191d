"""The program that the exporter translates, run in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, witness
from harness.compare import Outcome, compare
from harness.convert import HasProgram
from harness.core import build_tensors
from harness.execute import quiet_call, to_numpy

#: Operators that are named to a person.
_NAMED = 6


@witness("the decomposed program", place=5, turn=Turn.GRAPH, role=Role.PROGRAM)
def ask_decomposed_program(trial: Trial) -> Iterator[Testimony]:
    """Whether PyTorch gives the failing backend's result once it has decomposed the call.

    Where it does, the conversions of the operators that are left translate a program that is wrong already.
    """
    converter = trial.converter(trial.complaint.converter)
    if trial.complaint.outcome is not Outcome.MISMATCH or not isinstance(converter, HasProgram):
        return
    if trial.got is None:
        return
    program = trial.translation.program
    if program is None:
        return
    inputs = tuple(t.clone() for t in build_tensors(trial.invocation))
    with quiet_call():
        results = program.module()(*inputs)
    outputs = [to_numpy(t) for t in results if isinstance(t, torch.Tensor)]
    if len(outputs) != len(trial.reference.expected):
        return
    operators = dict.fromkeys(str(n.target) for n in program.graph.nodes if n.op == "call_function")
    if trial.invocation.overload in operators:
        # Not decomposed: it is the kernel again.
        return
    some = ", ".join(list(operators)[:_NAMED]) + (", …" if len(operators) > _NAMED else "")
    if compare(trial.judge, trial.reference, outputs).problem is None:
        words = f"PyTorch gives its own result for the program that is translated ({some})."
        yield Testimony(Role.PROGRAM, Finding.CONFIRMS, words)
    elif trial.is_same(outputs):
        words = (
            f"PyTorch decomposes {trial.invocation.overload} to {some}, "
            f"and gives {trial.complaint.backend}'s result for that itself."
        )
        yield Testimony(Role.PROGRAM, Finding.CONTRADICTS, words)
