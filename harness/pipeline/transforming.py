"""The stage between conversion and the checker: the transforms of a route, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from harness.compare.verdict import Outcome, Stage
from harness.convert.change import Change
from harness.convert.transform import NotTransformable, Samples, find_transforms
from harness.core.route import Route
from harness.pipeline.case import Structure
from harness.pipeline.stages import StageFailure, check_opset
from harness.run.artefact import AnyModel, Artefact


def gather_samples(route: Route, structures: Sequence[Structure], artefact: AnyModel) -> Samples:
    """Return the inputs that calibrate the transforms of a route, for structures that share an artefact; none unless
    one takes them."""
    if not any(transform.takes_samples for transform in find_transforms(route.transforms)):
        return ()
    of_structures = [structure.samples(artefact) for structure in structures]
    count = max(map(len, of_structures), default=0)
    return [
        {name: array for samples in of_structures if samples for name, array in samples[i % len(samples)].items()}
        for i in range(count)
    ]


def transform_stage(
    model: AnyModel, route: Route, changes: list[Change] | None = None, samples: Samples = ()
) -> AnyModel | StageFailure:
    """Return the model after all transforms of a route; the given model is not changed.

    Transforms may change the opset, so that the converter's is checked here.

    Args:
        model: The converter's model.
        route: The route.
        changes: Receives the changes of the transforms that tell them; None if nobody asks.
        samples: Inputs that calibrate a transform, by name.
    """
    if not route.transforms:
        return model
    if not isinstance(model, Artefact):
        try:
            check_opset(model, route.opset)
        except ValueError as error:
            return StageFailure(Stage.CHECK, Outcome.ERROR, error)
    result: AnyModel | StageFailure = model
    for _, result in transformed_models(model, route, changes, samples):
        if isinstance(result, StageFailure):
            break
    return result


def transformed_models(
    model: AnyModel, route: Route, changes: list[Change] | None = None, samples: Samples = ()
) -> Iterator[tuple[str, onnx.ModelProto | StageFailure]]:
    """Yield each transform of a route with the model after it; the last one with its failure if it raises."""
    for transform in find_transforms(route.transforms):
        try:
            if isinstance(model, Artefact):
                raise TypeError(f"{transform.name} takes ONNX models, and not {model.kind}")
            given = onnx.ModelProto()
            given.CopyFrom(model)
            fed = {value.name for value in model.graph.input}.difference(t.name for t in model.graph.initializer)
            if changes is None or transform.stop_after is None:
                model = transform.transform(given, samples)
            else:
                model = transform.stop_after(given, None, changes)
            if not isinstance(model, onnx.ModelProto):
                raise TypeError(f"{transform.name} returns {type(model).__name__}, and not an onnx.ModelProto")
            lost = fed.difference(value.name for value in model.graph.input)
            if lost:
                # Whoever runs the model feeds them.
                raise ValueError(f"{transform.name} removes the model's inputs {', '.join(sorted(lost))}")
        except Exception as error:
            outcome = Outcome.UNSUPPORTED if isinstance(error, NotTransformable) else Outcome.ERROR
            yield transform.name, StageFailure(Stage.TRANSFORM, outcome, error, transform.name)
            return
        yield transform.name, model
