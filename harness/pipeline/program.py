"""Operator calls as one PyTorch program, with names that lead back to the cases, and its export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import onnx
import torch

from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import Converter, ExportRequest, UnsupportedOperator
from harness.convert.operator_calls import OperatorCall, OperatorCalls
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Weight
from harness.core.program import Program, is_program, open_named_weights
from harness.core.route import Route
from harness.core.tensors import BoundCall, bind, build_tensors, graph_input_shape, weight_tensor
from harness.pipeline.stages import StageFailure, named_feeds, shape_ranges
from harness.run.artefact import AnyModel
from harness.run.backend import ShapeRange


class Structure(Protocol):
    """A call, a program or a model that is exported once and run with several inputs."""

    @property
    def index(self) -> int:
        """The index of its group."""

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Example inputs."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the graph's inputs."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names that the graph's outputs are asked to have."""

    @property
    def promised_outputs(self) -> Sequence[str] | int:
        """Return the outputs to check: their names; their number if a converter names them."""

    @property
    def is_checked(self) -> bool:
        """Whether ONNX's checker decides about the graph; of a user's file the runtime does."""

    def outputs_in(self, artefact: AnyModel) -> tuple[str, ...]:
        """Return the names of its outputs in an artefact, in their order."""

    def request(self, route: Route) -> ExportRequest:
        """Return the export of the structure by itself."""

    def feeds(self, artefact: AnyModel, arrays: Sequence[Array]) -> dict[str, Array]:
        """Graph input → array, without the inputs that the export left out."""

    def shape_ranges(self, artefact: AnyModel, cases: Sequence[Invocation]) -> dict[str, ShapeRange]:
        """Return the sizes that a dynamic artefact will run with; the first case's are typical."""


@dataclass(frozen=True)
class Exportable:
    """A call or a program that is ready for export; see `Structure`.

    Attributes:
        index: Index of its group.
        call: The operator call with its tensors left open.
        tensors: Example inputs. Structures share no tensor, since exporters treat a shared one as one input.
        outputs: Number of tensors that the call returns.
        dynamic_dims: Per tensor, dimensions to leave dynamic; empty sets for a static export.
        buffers: Place among the tensors of `call` → name and tensor of a weight that the module holds under it.
    """

    index: int
    call: BoundCall
    tensors: tuple[torch.Tensor, ...]
    outputs: int
    dynamic_dims: tuple[frozenset[int], ...]
    buffers: Mapping[int, tuple[str, torch.Tensor]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        exported: Invocation,
        cases: Sequence[Invocation] = (),
        *,
        outputs: int,
        index: int = 0,
        tensors: Sequence[torch.Tensor] | None = None,
    ) -> Exportable:
        """Return the structure of an invocation.

        Args:
            exported: The invocation.
            cases: Invocations to run with the export; dimensions in which they differ from it may be left dynamic.
            tensors: Example inputs in place of those that the invocation describes.
        """
        opened, held = _open_named_weights(exported)
        return cls(
            index=index,
            call=bind(opened),
            tensors=build_tensors(exported) if tensors is None else tuple(tensors),
            outputs=outputs,
            dynamic_dims=varying_dims(exported, cases),
            buffers={place: (weight.name, weight_tensor(weight)) for place, weight in held.items()},
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """Graph inputs of this structure."""
        return tuple(f"c{self.index}_i{j}" for j in range(len(self.tensors)))

    @property
    def output_names(self) -> tuple[str, ...]:
        """Graph outputs of this structure."""
        return tuple(f"c{self.index}_o{j}" for j in range(self.outputs))

    @property
    def promised_outputs(self) -> tuple[str, ...]:
        """The names of the graph's outputs."""
        return self.output_names

    @property
    def is_checked(self) -> bool:
        """Always true: an exporter writes the graph."""
        return True

    def outputs_in(self, artefact: AnyModel) -> tuple[str, ...]:
        """Return the names of its outputs."""
        return self.output_names

    def request(self, route: Route) -> ExportRequest:
        """Return the export of this structure by itself."""
        return export_request([self], route)

    def feeds(self, model: AnyModel, arrays: Sequence[Array]) -> dict[str, Array]:
        """Graph input → array, without the inputs that the export left out."""
        return named_feeds(model, self.input_names, arrays)

    def shape_ranges(self, model: AnyModel, cases: Sequence[Invocation]) -> dict[str, ShapeRange]:
        """Return the sizes that `model`, a dynamic export, will run with; the first case's are typical."""
        shapes = [[graph_input_shape(spec) for spec in case.tensors()] for case in cases]
        return shape_ranges(model, self.input_names, shapes)


def export_request(members: Sequence[Exportable], route: Route) -> ExportRequest:
    """Return the request for one export of `members` together."""
    return ExportRequest(
        program=OperatorCalls([OperatorCall(m.call, len(m.tensors), m.outputs, m.buffers) for m in members]).eval(),
        # A tensor that is not a view of another: exporters rebuild the base of a view.
        inputs=tuple(t.detach() for m in members for t in m.tensors),
        input_names=tuple(n for m in members for n in m.input_names),
        output_names=tuple(n for m in members for n in m.output_names),
        opset=route.opset,
        dynamic_dims=tuple(d for m in members for d in m.dynamic_dims) if route.dynamic else None,
        tentative=len(members) > 1,
    )


def _open_named_weights(exported: Invocation) -> tuple[Invocation, Mapping[int, Weight]]:
    if not is_program(exported):
        return exported, {}
    program, held = open_named_weights(Program.of(exported))
    return program.invocation, held


def convert_stage(converter: Converter, request: ExportRequest) -> AnyModel | StageFailure:
    """Export; return an exception of the converter as the failure of the stage."""
    try:
        return converter.convert(request)
    except Exception as error:
        return conversion_failure(error)


def export_alone(converter: Converter, structure: Structure, route: Route) -> onnx.ModelProto:
    """Export one structure by itself; raises the converter's exceptions."""
    return converter.convert(structure.request(route))


def conversion_failure(error: Exception) -> StageFailure:
    """Return an export's exception as the failure of the stage."""
    outcome = Outcome.UNSUPPORTED if isinstance(error, UnsupportedOperator) else Outcome.ERROR
    return StageFailure(Stage.CONVERT, outcome, error)


def varying_dims(exported: Invocation, others: Sequence[Invocation]) -> tuple[frozenset[int], ...]:
    """Per tensor of `exported`, the dimensions in which `others` differ from it."""
    shapes = [spec.shape for spec in exported.tensors()]
    dims: list[set[int]] = [set() for _ in shapes]
    for other in others:
        for found, ours, theirs in zip(dims, shapes, (s.shape for s in other.tensors()), strict=True):
            found |= {i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b}
    return tuple(frozenset(d) for d in dims)
