"""Operator calls as one PyTorch program, with names that lead back to the cases, and its export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, cast

import onnx
import torch

from harness.compare.verdict import BEFORE_BACKEND, Outcome, Stage
from harness.convert.converter import Converter, ExportRequest, UnsupportedOperator, find_converter
from harness.convert.operator_calls import OperatorCall, OperatorCalls
from harness.convert.transform import Samples
from harness.core.case_group import CaseGroup
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Weight
from harness.core.program import Program, is_program, open_named_weights
from harness.core.route import Route
from harness.core.tensors import BoundCall, bind, build_tensors, graph_input_shape, weight_tensor
from harness.core.torch_arrays import to_numpy
from harness.pipeline.case import Case, CaseOracle, RunCase, Structure
from harness.pipeline.case_run import CaseRun
from harness.pipeline.chain import CallRun, is_chain_of_right_calls
from harness.pipeline.reference import CallOracle, ProgramOracle, run_reference
from harness.pipeline.stages import StageFailure, named_feeds, shape_ranges
from harness.pipeline.start import start_backend
from harness.pipeline.started_route import StartedRoute
from harness.run.artefact import ONNX, AnyModel
from harness.run.backend import REFERENCE, Backend, ShapeRange


@dataclass(frozen=True, eq=False)
class CallStructure:
    """A call or a program that is ready for export; see `harness.pipeline.case.Structure`.

    Attributes:
        exported: The invocation whose shapes are exported.
        cases: Invocations to run with the export; dimensions in which they differ from it may be left dynamic.
        outputs: Number of tensors that the call returns.
        index: Index of its group.
        examples: Example inputs in place of those that the invocation describes; None for those.
    """

    exported: Invocation
    cases: tuple[Invocation, ...] = ()
    outputs: int = 0
    index: int = 0
    examples: tuple[torch.Tensor, ...] | None = None

    has_program = True
    model = None
    answering_backend = None
    is_checked = True
    is_whole_model = False

    @classmethod
    def of(cls, group: CaseGroup) -> Self:
        """Return the structure of a group, whose number of outputs its oracles will tell."""
        return cls(group.exported, group.invocations, index=group.index)

    @cached_property
    def _opened(self) -> tuple[Invocation, Mapping[int, Weight]]:
        """The invocation with its named weights as tensors, and these by their places."""
        if not is_program(self.exported):
            return self.exported, {}
        program, held = open_named_weights(Program.of(self.exported))
        return program.invocation, held

    @cached_property
    def call(self) -> BoundCall:
        """The operator call with its tensors left open."""
        return bind(self._opened[0])

    @cached_property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Example inputs. Structures share no tensor, since exporters treat a shared one as one input."""
        return build_tensors(self.exported) if self.examples is None else self.examples

    @cached_property
    def buffers(self) -> Mapping[int, tuple[str, torch.Tensor]]:
        """Place among the tensors of `call` → name and tensor of a weight that the module holds under it."""
        return {place: (weight.name, weight_tensor(weight)) for place, weight in self._opened[1].items()}

    @cached_property
    def dynamic_dims(self) -> tuple[frozenset[int], ...]:
        """Per tensor, dimensions to leave dynamic; empty sets for a static export."""
        return varying_dims(self.exported, self.cases)

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

    def oracle(self, invocation: Invocation) -> CallOracle | ProgramOracle:
        """Return PyTorch's answer to a call or a program of this structure; raises `CallRejected`."""
        return run_reference(invocation)

    def returning(self, outputs: int) -> Self:
        """Return the structure with its number of outputs."""
        return replace(self, outputs=outputs)

    def outputs_in(self, artefact: AnyModel) -> tuple[str, ...]:
        """Return the names of its outputs."""
        return self.output_names

    def request(self, route: Route, others: Sequence[Self] = ()) -> ExportRequest:
        """Return the export of this structure together with others."""
        return export_request([self, *others], route)

    def export(self, started: StartedRoute) -> AnyModel | StageFailure:
        """Return the artefact that a route's converter makes of this structure alone."""
        return convert_stage(started, self)

    def feeds(self, artefact: AnyModel, arrays: Sequence[Array]) -> dict[str, Array]:
        """Graph input → array, without the inputs that the export left out."""
        return named_feeds(artefact, self.input_names, arrays)

    def samples(self, artefact: AnyModel) -> Samples:
        """Return the inputs of its cases; those of the exported one without any."""
        tensors = [build_tensors(case) for case in self.cases] or [self.tensors]
        return [self.feeds(artefact, [to_numpy(t) for t in of_case]) for of_case in tensors]

    def shape_ranges(self, artefact: AnyModel, cases: Sequence[Invocation]) -> dict[str, ShapeRange]:
        """Return the sizes that a dynamic export will run with; the first case's are typical."""
        shapes = [[graph_input_shape(spec) for spec in case.tensors()] for case in cases]
        return shape_ranges(artefact, self.input_names, shapes)

    def is_right_by_calls(self, case: Case, wrong: CaseRun, started: StartedRoute, run: RunCase) -> bool:
        """Whether a program's outputs are those of its calls one by one, each of which is right."""
        if not is_program(self.exported) or started.converter is None or started.backend is None:
            return False
        if wrong.outputs is None or not case.asks_calls(wrong):
            return False
        backends = [started.backend]
        if find_converter(started.route.converter).makes == ONNX:
            backends.append(start_backend(REFERENCE))
        caller = CallRunner(run, started.converter, backends, started.route)
        exported = self.exported if started.route.dynamic else None
        return is_chain_of_right_calls(caller, case.oracle, wrong.outputs, exported)


@dataclass(frozen=True)
class CallRunner:
    """Runs calls of a program by themselves.

    Attributes:
        run: Runs a case by itself: `harness.pipeline.run_case.run_case`.
        converter: Exports the calls.
        backends: Backends in order; each runs the calls for which those before lack a kernel, as an optimiser may do.
        route: The route of the program.
        index: The index of the case's group, for names.
    """

    run: RunCase
    converter: Converter
    backends: Sequence[Backend]
    route: Route
    index: int = 0

    def run_call(self, exported: Invocation, reference: CaseOracle) -> CallRun:
        """Run one call, by an export of the same call that leaves sizes open in which the two differ."""
        call = reference.invocation
        structure = CallStructure(exported, (call,), outputs=len(reference.expected), index=self.index)
        route = replace(self.route, dynamic=any(structure.dynamic_dims))
        case = Case(structure, reference)
        found: list[CallRun] = []
        for backend in self.backends:
            if not found or found[-1].run.outcome is Outcome.UNSUPPORTED:
                run = self.run(case, StartedRoute(route, self.converter, backend))
                found.append(CallRun(exported, reference, backend.name, run))
                if run.stage in BEFORE_BACKEND:
                    break
                case = replace(case, artefact=run.artefact)
        return next((alone for alone in found if alone.run.outputs), found[0])


def call_case(invocation: Invocation, exported: Invocation | None = None, *, runs: int = 1) -> Case:
    """Return the case of a call or a program, exported as itself or as another one of its structure.

    Args:
        invocation: The call or program.
        exported: The call that is exported in its place; None for itself.
        runs: See `Case`.

    Raises:
        harness.pipeline.torch_call.CallRejected: PyTorch raises for the call.
    """
    oracle = run_reference(invocation)
    structure = CallStructure(exported or invocation, (invocation,), outputs=len(oracle.expected))
    return Case(structure, oracle, runs=runs)


def export_request(members: Sequence[CallStructure], route: Route) -> ExportRequest:
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


def convert_stage(started: StartedRoute, structure: Structure) -> AnyModel | StageFailure:
    """Export a structure by itself; return an exception of the converter as the failure of the stage."""
    assert started.converter is not None
    try:
        return started.converter.convert(structure.request(started.route))
    except Exception as error:
        return conversion_failure(error)


def export_alone(converter: Converter, structure: Structure, route: Route) -> onnx.ModelProto:
    """Return the export of one structure by itself, an ONNX model of most converters; raises its exceptions."""
    made = structure.export(StartedRoute(route, converter))
    if isinstance(made, StageFailure):
        raise made.error
    return cast(onnx.ModelProto, made)


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
