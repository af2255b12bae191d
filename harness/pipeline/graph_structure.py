"""An ONNX graph as the structure of cases: it is exported already. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import onnx

from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.case import Case, CaseOracle, RunCase
from harness.pipeline.case_run import CaseRun
from harness.pipeline.stages import in_declared_dtypes, named_feeds
from harness.pipeline.submodel import merge_graphs
from harness.run.artefact import AnyModel, output_names
from harness.run.backend import ShapeRange

if TYPE_CHECKING:
    import torch

    from harness.convert.converter import ExportRequest
    from harness.convert.transform import Samples
    from harness.pipeline.started_route import StartedRoute


def signature(graph: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that have no default."""
    held = {tensor.name for tensor in graph.graph.initializer}
    return [value for value in graph.graph.input if value.name not in held]


@dataclass(frozen=True, eq=False)
class GraphStructure:
    """A graph; see `harness.pipeline.case.Structure`.

    Attributes:
        graph: The graph.
        index: The index of its group.
        ask: Returns the right outputs of a case; None if its cases have oracles of their own.
        answering_backend: The runtime that is asked, which may die of the graph without optimisations, too.
        names: The names of all inputs, of which the graph may have left some out; None for the graph's.
        is_checked: Whether ONNX's checker decides about the graph; of a user's file the runtime does.
        is_whole_model: Whether it may be a large model, which is run by itself; a drawn graph is not.
        inputs: Returns the inputs of its cases, in their order.
    """

    graph: onnx.ModelProto
    index: int = 0
    ask: Callable[[Invocation], CaseOracle] | None = None
    answering_backend: str | None = None
    names: tuple[str, ...] | None = None
    is_checked: bool = False
    is_whole_model: bool = True
    inputs: Callable[[], Sequence[Sequence[Array]]] = tuple

    has_program = False
    model = None

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return no tensors, since nothing is traced."""
        return ()

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs; of the graph's own only those without a default."""
        return tuple(value.name for value in signature(self.graph)) if self.names is None else self.names

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return output_names(self.graph)

    @property
    def promised_outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self.output_names

    def oracle(self, invocation: Invocation) -> CaseOracle:
        """Return the right outputs of a case."""
        assert self.ask is not None
        return self.ask(invocation)

    def returning(self, outputs: int) -> Self:
        """Return the structure itself: the graph says how many outputs it has."""
        return self

    def outputs_in(self, artefact: AnyModel) -> tuple[str, ...]:
        """Return the names of the outputs."""
        return self.output_names

    def request(self, route: Route, others: Sequence[Self] = ()) -> ExportRequest:
        """Return the request that is met with the graph itself, merged with those of others."""
        import torch

        from harness.convert.converter import ExportRequest

        return ExportRequest(
            program=torch.nn.Identity(),
            inputs=(),
            input_names=self.input_names,
            output_names=self.output_names,
            graph=merge_graphs([self.graph, *(other.graph for other in others)]) if others else self.graph,
        )

    def export(self, started: StartedRoute) -> AnyModel:
        """Return the graph."""
        return self.graph

    def feeds(self, artefact: AnyModel, arrays: Sequence[Array]) -> dict[str, Array]:
        """Return the inputs of a run by name; all of the graph's own, also if a transform has dropped one."""
        if self.names is not None:
            return named_feeds(artefact, self.names, arrays)
        return in_declared_dtypes(artefact, dict(zip(self.input_names, arrays, strict=True)))

    def samples(self, artefact: AnyModel) -> Samples:
        """Return the inputs of its cases."""
        return [self.feeds(artefact, arrays) for arrays in self.inputs()]

    def shape_ranges(self, artefact: AnyModel, cases: Sequence[Invocation]) -> dict[str, ShapeRange]:
        """Return no ranges, since a graph is run as a static export is."""
        return {}

    def is_right_by_calls(self, case: Case, wrong: CaseRun, started: StartedRoute, run: RunCase) -> bool:
        """Return false: a graph has no calls."""
        return False
