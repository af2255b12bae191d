"""Find the PyTorch program that a converter translates, and the operators that it calls."""

from __future__ import annotations

from torch.export import ExportedProgram

from harness.blame.failure_context import FailureContext
from harness.convert.converter import HasProgram


def translated_program(context: FailureContext) -> ExportedProgram | None:
    """Return the program that the failing converter translates; None if the converter cannot tell.

    Raises the converter's exceptions.
    """
    converter = context.converter(context.failure.converter)
    if not isinstance(converter, HasProgram):
        return None
    return context.translation.program


def operators_of(program: ExportedProgram) -> list[str]:
    """Return the names of the operators that a program calls, in order, each once."""
    return list(dict.fromkeys(str(n.target) for n in program.graph.nodes if n.op == "call_function"))
