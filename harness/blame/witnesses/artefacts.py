"""Witnesses of artefacts other than ONNX models: the tool that made them, other backends, and PyTorch's kernels.

The kernels run the program that the converter hands over to the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.blame.failure_context import FailureContext
from harness.blame.witness import Turn, Witness, add_witnesses, witness
from harness.blame.witnesses.runtimes import ask_other_backend
from harness.compare.comparison import compare
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.core.text import one_line
from harness.pipeline.task import Settings
from harness.run.artefact import ONNX, Artefact
from harness.run.backend import BACKENDS


def _ask_other_backend(name: str, context: FailureContext) -> Iterator[Testimony]:
    if context.is_taken_by(name):
        yield from ask_other_backend(name, context)


@add_witnesses
def _installed(settings: Settings) -> Iterator[Witness]:
    willing = [e for e in BACKENDS.entries() if e.witness is not None and ONNX not in e.takes]
    for entry in sorted(willing, key=lambda e: e.witness or 0):
        if entry.probe("") is None:
            ask = partial(_ask_other_backend, entry.name)
            yield Witness(entry.name, Turn.FIRST, 70, ask, of_any_artefact=True)


@witness("the artefact's own tool", place=110, of_any_artefact=True)
def confirm_making(context: FailureContext) -> Iterator[Testimony]:
    """Testify that the artefact's own tool made it: no other checker of such an artefact exists."""
    if isinstance(context.loaded, Artefact):
        facts = {"converter": context.failure.converter}
        yield Testimony(Role.MODEL, Finding.VALID, "own-tool", facts)


@witness("the lowered program", place=15, turn=Turn.GRAPH, of_any_artefact=True, of_pytorch=True)
def ask_lowered_program(context: FailureContext) -> Iterator[Testimony]:
    """Run the program that the converter hands over in PyTorch, to distinguish a wrong program from a wrong kernel."""
    artefact = context.loaded
    if not isinstance(artefact, Artefact):
        return
    facts = {"converter": context.failure.converter, "backend": context.failure.backend}
    if artefact.lowered is None:
        yield Testimony(Role.LOWERED, Finding.LACKS, "lowered-program", facts)
        return
    try:
        outputs = artefact.lowered(context.feeds(artefact))
    except Exception as error:
        yield Testimony(Role.LOWERED, Finding.REFUSES, "lowered-program", {**facts, "error": one_line(error)[:200]})
        return
    if compare(context.judge, context.reference, outputs).problem is None:
        yield Testimony(Role.LOWERED, Finding.RIGHT, "lowered-program", facts)
    elif context.got is not None and context.answer.is_same(tuple(outputs)):
        yield Testimony(Role.LOWERED, Finding.SAME, "lowered-program", facts)
    else:
        yield Testimony(Role.LOWERED, Finding.OTHER, "lowered-program", facts)
