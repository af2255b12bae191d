"""Witnesses against optimisers: the export without one, and the guilty pass.

The export before the exporter's own optimiser.

Which pass of an optimiser breaks a graph that is right before it: the runtime's or the exporter's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from harness.blame.failure_context import FailureContext, before_optimiser
from harness.blame.witness import Turn, witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.convert.converter import HasExporterPasses, HasUnoptimised
from harness.core.fewest import fewest
from harness.execute.program import export_request
from harness.run.backend import Backend, HasGraphPasses


@witness("the unoptimised export", place=20, turn=Turn.GRAPH, role=Role.UNOPTIMISED)
def ask_unoptimised_export(context: FailureContext) -> Iterator[Testimony]:
    """Exports again with `harness.convert.converter.HasUnoptimised`."""
    converter = context.converter(context.failure.converter)
    if not isinstance(converter, HasUnoptimised) or context.failure.outcome is Outcome.UNSUPPORTED:
        return
    finding, backend = before_optimiser(context)
    facts = {"converter": converter.name, "backend": backend}
    yield Testimony(Role.UNOPTIMISED, finding, "unoptimised-export", facts)


@witness("the runtime's passes", place=125)
def ask_runtime_passes(context: FailureContext) -> Iterator[Testimony]:
    """Leaves out optimisations where the failing backend is right without any."""
    accused = context.accused
    if context.failure.outcome is Outcome.UNSUPPORTED or not isinstance(accused, HasGraphPasses):
        return
    if context.plain is None or context.find(context.plain)[0] is not Finding.RIGHT:
        return
    guilty = fewest(accused.passes(), lambda names: _is_right(context, accused.without(names), context.model))
    if guilty:
        facts = {"backend": context.failure.backend, "passes": list(guilty)}
        yield Testimony(Role.PASS, Finding.RIGHT, "runtime-passes", facts)


@witness("the exporter's passes", place=25, turn=Turn.GRAPH, role=Role.PASS)
def ask_exporter_passes(context: FailureContext) -> Iterator[Testimony]:
    """Leaves out passes that change the graph where the export is right without the optimiser."""
    converter = context.converter(context.failure.converter)
    if context.failure.outcome is Outcome.UNSUPPORTED or not isinstance(converter, HasExporterPasses):
        return
    if not isinstance(converter, HasUnoptimised):
        return
    if before_optimiser(context)[0] is not Finding.RIGHT:
        return
    request = export_request([context.structure], opset=context.settings.opset, dynamic=context.settings.dynamic)
    _, changing = converter.optimised(request, ())

    def is_right_without(names: Sequence[str]) -> bool:
        try:
            model, _ = converter.optimised(request, names)
        except Exception:
            # What comes behind a pass may rest on it.
            return False
        return _is_right(context, context.accused, model)

    guilty = fewest(changing, is_right_without)
    if guilty:
        facts = {"converter": converter.name, "passes": list(guilty)}
        yield Testimony(Role.PASS, Finding.RIGHT, "exporter-passes", facts)


def _is_right(context: FailureContext, backend: Backend, model: onnx.ModelProto) -> bool:
    return context.find(context.ask(backend, model))[0] is Finding.RIGHT
