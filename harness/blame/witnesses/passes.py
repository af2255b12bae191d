"""Witnesses against optimisers: is the export right before the exporter's, and which change or pass breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import onnx

from harness.blame.breaking_change import find_breaking_change
from harness.blame.failure_context import FailureContext, before_optimiser
from harness.blame.witness import Turn, Witness, backends_to_ask, witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome, Stage
from harness.convert.change import Change
from harness.convert.converter import HasExporterPasses, HasUnoptimised
from harness.convert.exporter_messages import failing_pass
from harness.core.fewest import fewest
from harness.pipeline.program import export_alone
from harness.run.artefact import AnyModel
from harness.run.backend import REFERENCE, HasGraphPasses, HasPassLog


@witness("the exporter's optimiser", place=20, turn=Turn.GRAPH, of_pytorch=True)
def ask_unoptimised_export(context: FailureContext) -> Iterator[Testimony]:
    """Export without the optimiser; if that is right, find the change of the optimiser that breaks it.

    A program that is wrong in another way before clears the optimiser of nothing: it changes the result.
    """
    converter = context.converter(context.failure.converter)
    if not isinstance(converter, HasUnoptimised) or context.failure.outcome is Outcome.UNSUPPORTED:
        return
    finding, backend = before_optimiser(context)
    changes: list[Testimony] = []
    if finding is Finding.RIGHT:
        if _is_right_in_accused(context, context.export(converter, "model")):
            # Something other than the optimiser has changed the failing graph.
            return
        changes += _breaking_change(context, partial(_is_right_in_accused, context))
    elif finding is Finding.OTHER and context.is_composed:
        changes += _breaking_change(context, partial(_fails_otherwise, context))
    facts = {"converter": converter.name, "backend": backend}
    yield Testimony(Role.UNOPTIMISED, finding, "unoptimised-export", facts)
    yield from changes


@witness("the runtime's passes", place=125)
def ask_runtime_passes(context: FailureContext) -> Iterator[Testimony]:
    """Leave out single optimisations if the failing backend is right without any.

    If leaving out any of several mends the result, the one that is applied last is to blame: the others have prepared
    what it rewrites.
    """
    accused = context.accused
    if context.failure.outcome is Outcome.UNSUPPORTED or not isinstance(accused, HasGraphPasses):
        return
    before = context.classify(context.plain)[0] if context.plain is not None else None
    if before is not Finding.RIGHT and not (before is Finding.OTHER and context.is_composed):
        return

    def is_right_without(names: Sequence[str]) -> bool:
        # If it is wrong in another way without any, it is so without the guilty ones.
        return context.classify(context.run_model(accused.without(names), context.model))[0] is before

    applied = accused.applied_passes(context.model) if isinstance(accused, HasPassLog) and context.is_onnx else ()
    single = [name for name in applied if is_right_without((name,))]
    guilty = single[-1:] or fewest(accused.passes(), is_right_without)
    if guilty:
        facts = {"backend": context.failure.backend, "passes": list(guilty)}
        yield Testimony(Role.PASS, Finding.RIGHT, "runtime-passes", facts)


def _ask_broken_export(context: FailureContext) -> Iterator[Testimony]:
    """Find the optimiser's change, if any, that makes an export fail or its model invalid.

    The checker may not see the fault before constants are folded. So the model without the optimiser must give
    PyTorch's result as well, and the rejected one must not: else it is declared wrongly and computes the same.
    """
    converter = context.converter(context.failure.converter)
    if not isinstance(converter, HasUnoptimised):
        return
    backends = [context.backend(name) for name in backends_to_ask()]
    # The evaluator of definitions takes operands that no runtime does.
    runtimes = [backend for backend in backends if backend.name != REFERENCE]
    is_rejected = context.failure.stage is Stage.CHECK
    if is_rejected and any(context.is_right(runtime, context.model) for runtime in runtimes):
        return

    def is_right(model: AnyModel) -> bool:
        return any(context.is_right(backend, model) for backend in backends)

    if _is_valid(context, context.translation.model) and is_right(context.translation.model):
        yield Testimony(Role.UNOPTIMISED, Finding.RIGHT, "unoptimised-model", {"converter": converter.name})
        raising = failing_pass(context.failure.result.message)
        if raising:
            facts = {"converter": converter.name, "passes": [raising]}
            yield Testimony(Role.PASS, Finding.RIGHT, "exporter-passes", facts)
        else:
            yield from _breaking_change(context, is_right)


#: Asked about failures before any runtime.
BROKEN_EXPORT = Witness("the export without the optimiser", Turn.FIRST, 0, _ask_broken_export, of_pytorch=True)


def _breaking_change(context: FailureContext, is_right: Callable[[AnyModel], bool]) -> Iterator[Testimony]:
    """Find the change of the exporter's optimiser after which an export is wrong.

    Args:
        context: The failure.
        is_right: Tells whether a valid model is right.
    """
    converter = context.converter(context.failure.converter)
    if not isinstance(converter, HasExporterPasses):
        return

    def build(limit: int | None, changes: list[Change]) -> onnx.ModelProto:
        return export_alone(converter.stopped_after(limit, changes), context.structure, context.route)

    name = find_breaking_change(build, partial(_is_valid, context), is_right)
    if name is not None:
        facts = {"converter": context.failure.converter, "passes": [name]}
        yield Testimony(Role.PASS, Finding.RIGHT, "exporter-passes", facts)


def _is_valid(context: FailureContext, model: AnyModel) -> bool:
    return context.check(model).failure is None


def _fails_otherwise(context: FailureContext, model: AnyModel) -> bool:
    """Whether a model gives the failing backend another result than the failing one."""
    return context.classify(context.run_model(context.accused, model))[0] in (Finding.RIGHT, Finding.OTHER)


def _is_right_in_accused(context: FailureContext, model: AnyModel) -> bool:
    """Whether a model is right in the failing backend, or without its optimisations.

    The model may need a kernel that the backend lacks before the optimiser has folded it: then its definition counts.
    """
    backends = [backend for backend in (context.accused, context.unoptimised) if backend is not None]
    findings = {context.classify(context.run_model(backend, model))[0] for backend in backends}
    if findings == {Finding.LACKS}:
        return context.is_right(context.backend(REFERENCE), model)
    return Finding.RIGHT in findings
