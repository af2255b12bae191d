"""The stage between conversion and the checker: the transforms of a route, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from harness.compare.verdict import Outcome, Stage
from harness.convert.change import Change
from harness.convert.transform import NotTransformable, Samples, TransformEntry, find_transforms
from harness.core.dtypes import PRECISION
from harness.core.route import Route
from harness.pipeline.case import Structure
from harness.pipeline.model_task import GraphChange
from harness.pipeline.nodes.node_steps import split_steps
from harness.pipeline.stages import StageFailure, check_opset
from harness.pipeline.transformed_graph import find_wrong_storage
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
        made: onnx.ModelProto | StageFailure
        try:
            made = _transformed(transform, model, changes, samples)
        except WrongStorage as error:
            made = StageFailure(Stage.TRANSFORM, Outcome.ERROR, error, transform.name, error.found.change)
        except Exception as error:
            outcome = Outcome.UNSUPPORTED if isinstance(error, NotTransformable) else Outcome.ERROR
            made = StageFailure(Stage.TRANSFORM, outcome, error, transform.name)
        yield transform.name, made
        if isinstance(made, StageFailure):
            return
        model = made


class WrongStorage(Exception):
    """A quantiser stores numbers in wrong steps."""

    def __init__(self, found: GraphChange) -> None:
        off = f", off by up to {found.steps:.3g} steps" if found.steps else ""
        super().__init__(f"{found.operator} {found.value}: wrong {found.change}{off}")
        self.found = found


def _transformed(
    transform: TransformEntry, model: AnyModel, changes: list[Change] | None, samples: Samples
) -> onnx.ModelProto:
    """Return a model after a transform, whose exceptions it raises; the given model is not changed."""
    if isinstance(model, Artefact):
        raise TypeError(f"{transform.name} takes ONNX models, and not {model.kind}")
    given = onnx.ModelProto()
    given.CopyFrom(model)
    fed = {value.name for value in model.graph.input}.difference(t.name for t in model.graph.initializer)
    if changes is None or transform.stop_after is None:
        made = transform.transform(given, samples)
    else:
        made = transform.stop_after(given, None, changes)
    if not isinstance(made, onnx.ModelProto):
        raise TypeError(f"{transform.name} returns {type(made).__name__}, and not an onnx.ModelProto")
    lost = fed.difference(value.name for value in made.graph.input)
    if lost:
        # Whoever runs the model feeds them.
        raise ValueError(f"{transform.name} removes the model's inputs {', '.join(sorted(lost))}")
    if transform.precision and transform.precision not in PRECISION:
        wrong = find_wrong_storage(split_steps(model), split_steps(made))
        if wrong is not None:
            raise WrongStorage(wrong)
    return made
