"""Find the transform of a route that breaks a model: the first one after which the case fails as it does."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from harness.blame.breaking_change import find_breaking_change
from harness.blame.failure_context import FailureContext
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome, Stage
from harness.convert.change import Change
from harness.convert.transform import find_transforms
from harness.core.documents import to_data
from harness.pipeline.emulation import Emulation
from harness.pipeline.leeway import emulating_runtime
from harness.pipeline.nodes.node_steps import split_steps
from harness.pipeline.stages import StageFailure
from harness.pipeline.transformed_graph import find_wrong_node
from harness.pipeline.transforming import transformed_models
from harness.run.artefact import AnyModel, as_onnx


def find_guilty_transform(context: FailureContext) -> tuple[Testimony, ...]:
    """Return what is found of the first transform after which the case fails as it does.

    There are none if it fails so with the converter's own model, or cannot be exported again, or does not fail so
    again. A model that is wrong in another way before does not clear a transform: it changes the result, unless by no
    more than the roundings that it asks for.
    """
    try:
        model = context.untransformed
    except Exception:
        return ()
    given, before = model, _finding(context, model)
    if before is Finding.OTHER and _only_rounds(context, model):
        return ()
    for name, transformed in transformed_models(model, context.route, samples=context.structure.samples(model)):
        if before not in (Finding.RIGHT, Finding.OTHER):
            return ()
        after = Finding.REFUSES if isinstance(transformed, StageFailure) else _finding(context, transformed)
        if after not in (Finding.RIGHT, Finding.OTHER):
            facts = {
                "transform": name,
                "backend": context.failure.backend,
                "stage": str(context.failure.stage),
                "is_right": before is Finding.RIGHT,
            }
            guilty = _find_guilty_change(context, name, given) if before is Finding.RIGHT else None
            facts["passes"] = [guilty] if guilty else []
            return Testimony(Role.TRANSFORM, before, "before-transform", facts), *_departures(
                context, given, transformed
            )
        before = after
        if not isinstance(transformed, StageFailure):
            given = transformed
    return ()


def _departures(context: FailureContext, before: AnyModel, after: AnyModel | StageFailure) -> Iterator[Testimony]:
    """Yield the testimony about the first node that a transform makes wrong, if the graph runs and one is seen."""
    if isinstance(after, StageFailure) or context.failure.outcome is not Outcome.MISMATCH:
        return
    runtime, graphs = emulating_runtime(), (as_onnx(before), as_onnx(after))
    try:
        pair = (Emulation(split_steps(graph), context.feeds(graph), runtime) for graph in graphs)
        found = find_wrong_node(*pair)
    except Exception:
        # Not every graph can be split into steps: its nodes may not be sorted.
        return
    if found is not None:
        yield Testimony(Role.TRANSFORM, Finding.WRONG, "transformed-node", to_data(found))


def _only_rounds(context: FailureContext, model: AnyModel) -> bool:
    """Whether the failing result is that of a model before the transforms, up to the roundings that they ask for."""
    before = context.run_model(context.accused, model).outputs
    if before is None or context.got is None or context.emulated is None:
        return False
    pairs = enumerate(zip(before, context.got, strict=True))
    return all(b.shape == g.shape and bool(context.emulated.is_near(i, b, g).all()) for i, (b, g) in pairs)


def _find_guilty_change(context: FailureContext, name: str, given: AnyModel) -> str | None:
    """Return the change of a transform that breaks a model which is right before it; None if it cannot be stopped."""
    (transform,) = find_transforms((name,))
    stop_after = transform.stop_after
    if stop_after is None or not isinstance(given, onnx.ModelProto):
        return None

    def build(limit: int | None, changes: list[Change]) -> onnx.ModelProto:
        model = onnx.ModelProto()
        model.CopyFrom(given)
        return stop_after(model, limit, changes)

    def is_right(model: AnyModel) -> bool:
        return _finding(context, model) in (Finding.RIGHT, Finding.OTHER)

    return find_breaking_change(build, lambda model: context.check(model).failure is None, is_right)


def _finding(context: FailureContext, model: AnyModel) -> Finding:
    """Return how a model ends at the stage at which the case failed: in the checker, or in the backend."""
    if context.failure.stage is not Stage.CHECK:
        return context.classify(context.run_model(context.accused, model))[0]
    return Finding.RIGHT if context.check(model).failure is None else Finding.REFUSES
