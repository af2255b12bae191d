"""Witnesses against optimisers: the export without one, and the guilty pass.

The export before the exporter's own optimiser.

Which pass of an optimiser breaks a graph that is right before it: the runtime's or the exporter's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx

from harness.blame.failure_context import FailureContext, before_optimiser
from harness.blame.witness import Turn, Witness, witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import HasExporterPasses, HasUnoptimised
from harness.core.fewest import fewest
from harness.pipeline.run_case import StartedRoute, run_case
from harness.pipeline.stages import check_stage
from harness.pipeline.torch_case import TorchCase
from harness.run.backend import REFERENCE, Backend, HasGraphPasses


@witness("the unoptimised export", place=20, turn=Turn.GRAPH, role=Role.UNOPTIMISED, of_pytorch=True)
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


@witness("the exporter's passes", place=25, turn=Turn.GRAPH, role=Role.PASS, of_pytorch=True)
def ask_exporter_passes(context: FailureContext) -> Iterator[Testimony]:
    """Leaves out passes that change the graph where the export is right without the optimiser."""
    converter = context.converter(context.failure.converter)
    if context.failure.outcome is Outcome.UNSUPPORTED or not isinstance(converter, HasExporterPasses):
        return
    if not isinstance(converter, HasUnoptimised):
        return
    if before_optimiser(context)[0] is not Finding.RIGHT:
        return
    backends = [backend for backend in (context.accused, context.without_optimisations) if backend is not None]
    if context.is_composed:
        # It may have no kernel for what a pass is to leave as it is.
        backends.append(context.backend(REFERENCE))
    yield from _guilty_passes(context, converter, lambda model: any(_is_right(context, b, model) for b in backends))


def _ask_broken_export(context: FailureContext) -> Iterator[Testimony]:
    """Of an export that fails, or gives no valid model: whether it is the optimiser's doing, and by which pass."""
    converter = context.converter(context.failure.converter)
    if not isinstance(converter, HasUnoptimised):
        return

    def is_valid(model: onnx.ModelProto) -> bool:
        return check_stage(model, context.route.opset, context.structure.output_names) is None

    case = TorchCase(context.structure, context.reference)
    unoptimised = StartedRoute(context.route, converter.unoptimised())
    if run_case(case, unoptimised, until=Stage.CHECK).failure is not None:
        return
    yield Testimony(Role.UNOPTIMISED, Finding.RIGHT, "unoptimised-model", {"converter": converter.name})
    if isinstance(converter, HasExporterPasses):
        yield from _guilty_passes(context, converter, is_valid)


#: Is asked of programs that do not get as far as a runtime.
BROKEN_EXPORT = Witness("the export without the optimiser", Turn.FIRST, 0, _ask_broken_export, of_pytorch=True)


def _guilty_passes(
    context: FailureContext, converter: HasExporterPasses, is_right: Callable[[onnx.ModelProto], bool]
) -> Iterator[Testimony]:
    """The fewest passes without which an export is right."""
    request = context.structure.request(context.route)

    def is_right_without(names: Sequence[str]) -> bool:
        try:
            model, _ = converter.optimised(request, names)
        except Exception:
            # What comes behind a pass may rest on it.
            return False
        return is_right(model)

    try:
        _, changing = converter.optimised(request, ())
    except Exception:
        # No pass is known of an optimiser that fails.
        return
    # The most specific come first; nothing may be right without the passes that make a valid model of the rest.
    enough = next((changing[:n] for n in range(1, len(changing) + 1) if is_right_without(changing[:n])), ())
    guilty = fewest(enough, is_right_without)
    if guilty:
        facts = {"converter": context.failure.converter, "passes": list(guilty)}
        yield Testimony(Role.PASS, Finding.RIGHT, "exporter-passes", facts)


def _is_right(context: FailureContext, backend: Backend, model: onnx.ModelProto) -> bool:
    return context.find(context.ask(backend, model))[0] is Finding.RIGHT
