"""Cases with a structure and an oracle that is found out by running: a call, a program, a run of a model or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from harness.compare.comparison import compare
from harness.compare.judge import Judge
from harness.compare.output_comparison import OutputComparison
from harness.compare.repeated import Again, first_wrong
from harness.compare.tolerances import Tolerance
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.pipeline.program import Exportable, Structure, convert_stage
from harness.pipeline.reference import Reference, run_reference
from harness.pipeline.run_case import StartedRoute
from harness.pipeline.stages import StageFailure
from harness.run.artefact import AnyModel
from harness.run.backend import ShapeRange


class CaseKind(Protocol):
    """A way to run invocations in PyTorch and to export them: for calls and programs, or for one model."""

    def reference(self, invocation: Invocation) -> Reference:
        """Run a case in PyTorch; raises `harness.pipeline.torch_call.CallRejected`."""

    def structure(
        self, exported: Invocation, cases: Sequence[Invocation], *, outputs: int, index: int = 0
    ) -> Structure:
        """Return the exported structure; dimensions in which `cases` differ from it may be left open."""


class Calls:
    """Calls and programs, which need nothing but their invocations; see `CaseKind`."""

    def reference(self, invocation: Invocation) -> Reference:
        """Run a call or a program in PyTorch."""
        return run_reference(invocation)

    def structure(
        self, exported: Invocation, cases: Sequence[Invocation], *, outputs: int, index: int = 0
    ) -> Exportable:
        """Return the exported call or program."""
        return Exportable.of(exported, cases, outputs=outputs, index=index)


@dataclass(frozen=True, eq=False)
class TorchCase:
    """A call, a program or a run of a model; see `harness.pipeline.run_case.Case`.

    Attributes:
        structure: The structure to export.
        reference: PyTorch's answer to the case.
        judge: The rules for comparing outputs with it; None means the reference's own judge.
        runs: Maximum number of runs of a case that draws at random, until one is wrong.
        artefact: The artefact that the structure has been exported to; None exports it.
    """

    structure: Structure
    reference: Reference
    judge: Judge | None = None
    runs: int = 1
    artefact: AnyModel | None = None

    @classmethod
    def of(cls, invocation: Invocation, exported: Invocation | None = None, *, runs: int = 1) -> TorchCase:
        """Return the case of a call or a program, exported as itself or as another one of its structure.

        Raises:
            harness.pipeline.torch_call.CallRejected: PyTorch raises for the call.
        """
        reference = run_reference(invocation)
        structure = Exportable.of(exported or invocation, [invocation], outputs=len(reference.expected))
        return cls(structure, reference, runs=runs)

    @cached_property
    def arrays(self) -> Sequence[Array]:
        """All inputs and outputs."""
        return self.reference.arrays

    @property
    def output_names(self) -> Sequence[str] | int:
        """The names of the artefact's outputs, or their number."""
        return self.structure.promised_outputs

    @property
    def is_checked(self) -> bool:
        """Whether ONNX's checker decides about the structure's own graph."""
        return self.structure.is_checked

    @property
    def unknown(self) -> str:
        """Why the right outputs are not known; "" if they are."""
        return self.reference.unknown

    def export(self, started: StartedRoute) -> AnyModel | StageFailure:
        """Export the structure by itself; a graph needs no converter."""
        if self.artefact is not None:
            return self.artefact
        request = self.structure.request(started.route)
        if started.converter is None:
            assert request.graph is not None
            return request.graph
        return convert_stage(started.converter, request)

    def feeds(self, artefact: AnyModel) -> Mapping[str, Array]:
        """Return the inputs by name."""
        return self.structure.feeds(artefact, self.reference.feeds)

    def shape_ranges(self, artefact: AnyModel) -> Mapping[str, ShapeRange]:
        """Return the ranges of the sizes in the case."""
        return self.structure.shape_ranges(artefact, [self.reference.invocation])

    def choose(self, outputs: tuple[Array, ...], again: Again) -> tuple[Array, ...]:
        """Return the outputs of the first wrong run."""
        return tuple(first_wrong(self.judge or self.reference.judge, self.reference, outputs, again, self.runs))

    def compare(self, outputs: Sequence[Array], tolerance: Tolerance | None) -> OutputComparison:
        """Compare outputs with PyTorch's; `tolerance` takes the place of those of the dtypes."""
        if self.judge is None:
            return self.reference.compare(outputs, tolerance)
        return compare(self.judge.allowing(tolerance), self.reference, outputs)
