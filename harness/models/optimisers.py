"""Who breaks a model of which every call is right alone: an optimiser and which pass of it, or else the exporter.

1. Export the model, load it, run it, judge the result.
2. Where it fails, leave out all of the runtime's optimisations. If it is right then, find the fewest that have to be
   left out, by halving.
3. Else export it without the exporter's optimiser. If it is right then, find the fewest passes by halving, too.
4. Where no optimiser is guilty, evaluate the exported graph per ONNX's definitions. The runtime is at fault where that
   gives PyTorch's result, and the exporter where neither takes the graph. Where both give another result, it may be
   rounding, and is nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import onnx

from harness.compare.verdict import Stage
from harness.convert.converter import Converter, HasExporterPasses, HasUnoptimised
from harness.core.fewest import fewest
from harness.core.plugins import UnknownName
from harness.core.route import Route
from harness.pipeline.model_cases import ModelStructure, cases_of
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_reference import ModelReference, run_model
from harness.pipeline.model_task import ModelSource, NoModel
from harness.pipeline.program import export_alone
from harness.pipeline.stages import StageFailure, run_artefact
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.task import Settings, Step
from harness.pipeline.worker import WorkerProcess
from harness.run.artefact import AnyModel
from harness.run.backend import Backend, HasGraphPasses, HasPlain, UnsupportedModel

#: The backend that evaluates a graph per ONNX's definitions.
_DEFINITIONS = "onnx-reference"


@dataclass(frozen=True)
class GuiltyOptimiser:
    """An optimiser without which a model is right; where there is none, whether the exported graph is.

    Attributes:
        owner: ``exporter`` or ``runtime``; "" where no optimiser is guilty.
        passes: The fewest of its passes that have to be left out; none where they cannot be left out one by one.
        is_graph_right: Whether ONNX's definitions give PyTorch's result for the exported graph; False where they and
            the runtime both refuse it. None where that is unknown, and where an optimiser is guilty.
    """

    owner: str = ""
    passes: tuple[str, ...] = ()
    is_graph_right: bool | None = None


@dataclass(frozen=True, kw_only=True)
class OptimiserTask:
    """One run of a model that fails, to be tried without optimisers."""

    handler: ClassVar[str] = "harness.models.optimisers:carry_out"

    source: ModelSource
    route: Route
    settings: Settings
    case: int


def guilty_optimiser(task: OptimiserTask, supervisor: Supervisor) -> GuiltyOptimiser:
    """The optimiser that breaks a run of a model.

    Raises:
        ModelProblem: that cannot be found out; the message says why.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    messages = list(supervisor.serve_alone(task))
    found = [message for message in messages if isinstance(message, GuiltyOptimiser)]
    if found:
        # The last one knows most; the worker may have ended on the way to another.
        return found[-1]
    for message in messages:
        if isinstance(message, NoModel | Death):
            raise ModelProblem(f"optimisers cannot be tried: {message.message}")
    raise ModelProblem("optimisers cannot be tried")


def carry_out(task: OptimiserTask, worker: WorkerProcess) -> None:
    """Try without optimisers in a worker, and send what was found."""
    worker.send(Step(Stage.COMPARE, None, ()))
    try:
        # First: a rule may be for an operator that the model's file defines.
        model = worker.model(task.source)
        converter, _ = worker.converter(task.route)
        backend = worker.start(task.route.backend)
        case = cases_of(model, task.route.dynamic)[task.case]
        alive = partial(worker.send, Step(Stage.COMPARE, None, ()))
        reference = run_model(model, case.invocation, task.settings.tolerance, alive)
        structure = ModelStructure(model, len(reference.expected))
        worker.send(_Trials(structure, reference, task.route).guilty(converter, backend, worker))
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))


@dataclass(frozen=True)
class _Trials:
    """A run of a model, to be tried with less and less optimisation."""

    structure: ModelStructure
    reference: ModelReference
    route: Route

    def guilty(self, converter: Converter, backend: Backend, worker: WorkerProcess) -> GuiltyOptimiser:
        """What has to be left out, or else whether the graph is right."""
        request = self.structure.request(self.route)
        exported = export_alone(converter, self.structure, self.route)
        if self.is_right(exported, backend):
            return GuiltyOptimiser()
        if isinstance(backend, HasPlain) and self.is_right(exported, backend.plain()):
            passes: tuple[str, ...] = ()
            if isinstance(backend, HasGraphPasses):
                graph_passes = backend
                passes = fewest(backend.passes(), lambda names: self.is_right(exported, graph_passes.without(names)))
            return GuiltyOptimiser("runtime", passes)
        if not isinstance(converter, HasUnoptimised) or not self.is_right(
            export_alone(converter.unoptimised(), self.structure, self.route), backend
        ):
            # The definitions are slow: what is known by now is not lost if they take too long.
            worker.send(GuiltyOptimiser())
            return GuiltyOptimiser(is_graph_right=self.is_right_by_definition(exported, backend, worker))
        if not isinstance(converter, HasExporterPasses):
            return GuiltyOptimiser("exporter")
        with_passes = converter
        _, changing = with_passes.optimised(request, ())

        def helps(names: Sequence[str]) -> bool:
            return self.is_right(with_passes.optimised(request, names)[0], backend)

        return GuiltyOptimiser("exporter", fewest(changing, helps))

    def is_right(self, exported: AnyModel, backend: Backend) -> bool:
        """Whether a graph runs and gives PyTorch's result."""
        try:
            return self._gives_the_result(exported, backend) is True
        except UnsupportedModel:
            return False

    def is_right_by_definition(self, exported: AnyModel, backend: Backend, worker: WorkerProcess) -> bool | None:
        """See `GuiltyOptimiser.is_graph_right`."""
        if not isinstance(exported, onnx.ModelProto):
            return None
        try:
            by_definition = self._gives_the_result(exported, worker.start(_DEFINITIONS))
            if by_definition:
                return True
            refused = by_definition is None and self._gives_the_result(exported, backend) is None
        except UnsupportedModel:
            return None
        return False if refused else None

    def _gives_the_result(self, exported: AnyModel, backend: Backend) -> bool | None:
        """Whether a backend gives PyTorch's result; None where it refuses the graph.

        Raises:
            UnsupportedModel: it has no implementation of an operator.
        """
        self.reference.alive()
        outputs = run_artefact(backend, exported, self.structure.feeds(exported, self.reference.feeds))
        if isinstance(outputs, StageFailure):
            if isinstance(outputs.error, UnsupportedModel):
                raise outputs.error
            return None
        return self.reference.compare(outputs).problem is None
