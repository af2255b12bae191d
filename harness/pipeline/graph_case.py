"""An ONNX graph as a case, with inputs and expected outputs; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from harness.compare.comparison import compare
from harness.compare.judge import Judge
from harness.compare.nearness import Oracle
from harness.compare.output_comparison import OutputComparison
from harness.compare.repeated import Again
from harness.compare.tolerances import Tolerance
from harness.core.dtypes import Array
from harness.pipeline.run_case import StartedRoute
from harness.run.artefact import AnyModel
from harness.run.backend import ShapeRange


@dataclass(frozen=True, eq=False)
class GraphCase:
    """An ONNX graph; see `harness.pipeline.run_case.Case`.

    Attributes:
        model: The graph.
        inputs: Arrays by the names of the graph's inputs.
        oracle: The right outputs.
        judge: The rules for comparing outputs with the oracle's.
    """

    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    oracle: Oracle
    judge: Judge

    @property
    def arrays(self) -> Sequence[Array]:
        """All inputs and outputs."""
        return *self.inputs.values(), *self.oracle.expected

    @property
    def output_names(self) -> Sequence[str]:
        """The graph's own names."""
        return tuple(value.name for value in self.model.graph.output)

    @property
    def is_checked(self) -> bool:
        """Always true: an exporter wrote the graph."""
        return True

    @property
    def unknown(self) -> str:
        """Return "": the oracle is given."""
        return ""

    def export(self, started: StartedRoute) -> AnyModel:
        """Return the graph."""
        return self.model

    def feeds(self, artefact: AnyModel) -> Mapping[str, Array]:
        """Return the inputs."""
        return self.inputs

    def shape_ranges(self, artefact: AnyModel) -> Mapping[str, ShapeRange]:
        """Return the sizes of the inputs."""
        return {name: ShapeRange(min=a.shape, opt=a.shape, max=a.shape) for name, a in self.inputs.items()}

    def choose(self, outputs: tuple[Array, ...], again: Again) -> tuple[Array, ...]:
        """Return the first run's outputs."""
        return outputs

    def compare(self, outputs: Sequence[Array], tolerance: Tolerance | None) -> OutputComparison:
        """Compare outputs with the expected ones; `tolerance` takes the place of those of the dtypes."""
        return compare(self.judge.allowing(tolerance), self.oracle, outputs)
