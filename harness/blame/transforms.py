"""Find the transform of a route that breaks a model: the first one after which the case fails as it does."""

from __future__ import annotations

from harness.blame.failure_context import FailureContext
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Stage
from harness.pipeline.stages import StageFailure
from harness.pipeline.transforming import transformed_models
from harness.run.artefact import AnyModel


def find_guilty_transform(context: FailureContext) -> Testimony | None:
    """Return the testimony about the model before the first transform after which the case fails as it does.

    None if it fails so with the converter's own model, or cannot be exported again, or does not fail so again. A model
    that is wrong in another way before does not clear a transform: it changes the result.
    """
    try:
        model = context.untransformed
    except Exception:
        return None
    before = _finding(context, model)
    for name, transformed in transformed_models(model, context.route):
        if before not in (Finding.RIGHT, Finding.OTHER):
            return None
        after = Finding.REFUSES if isinstance(transformed, StageFailure) else _finding(context, transformed)
        if after not in (Finding.RIGHT, Finding.OTHER):
            facts = {
                "transform": name,
                "backend": context.failure.backend,
                "stage": str(context.failure.stage),
                "is_right": before is Finding.RIGHT,
            }
            return Testimony(Role.TRANSFORM, before, "before-transform", facts)
        before = after
    return None


def _finding(context: FailureContext, model: AnyModel) -> Finding:
    """Return how a model ends at the stage at which the case failed: in the checker, or in the backend."""
    if context.failure.stage is not Stage.CHECK:
        return context.classify(context.run_model(context.accused, model))[0]
    return Finding.RIGHT if context.check(model).failure is None else Finding.REFUSES
