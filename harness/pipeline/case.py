"""A case: what is exported and run, and the oracle that knows the right outputs.

This file needs no PyTorch, since goldens are cases, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from harness.compare.comparison import compare
from harness.compare.judge import Judge, Leeway
from harness.compare.nearness import Sensitivity
from harness.compare.output_comparison import OutputComparison
from harness.compare.repeated import Again, first_wrong
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.model_task import ErrorGrowth, NodesJudged, OutputError
from harness.pipeline.stages import StageFailure
from harness.run.artefact import AnyModel
from harness.run.backend import ShapeRange

if TYPE_CHECKING:
    import torch

    from harness.convert.converter import ExportRequest
    from harness.convert.transform import Samples
    from harness.pipeline.case_run import CaseRun
    from harness.pipeline.model_loading import LoadedModel
    from harness.pipeline.started_route import StartedRoute

#: Takes a case along a route.
RunCase: TypeAlias = "Callable[[Case, StartedRoute], CaseRun]"


@dataclass(frozen=True)
class CaseOracle(ABC):
    """The right outputs of a case, and how outputs are compared with them; an `harness.compare.nearness.Oracle`.

    Attributes:
        invocation: The case.
        feeds: Its tensors as arrays, before the call.
        expected: The right outputs in the case's dtypes; empty if they are unknown.
    """

    invocation: Invocation
    feeds: tuple[Array, ...]
    expected: tuple[Array, ...]

    @property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """The outputs in float64 for the absolute values of the inputs; None if nothing has them."""
        return None

    @property
    def unscaled(self) -> tuple[Array | None, ...] | None:
        """The magnitude with scales of at least one."""
        return None

    @property
    def marked(self) -> tuple[Array | None, ...] | None:
        """The magnitude with 1 for every finite number, scales of at least one: finite if all numbers are."""
        return None

    @property
    def flushed(self) -> tuple[Array, ...] | None:
        """The outputs with zeros in place of subnormal inputs; None if no input is subnormal."""
        return None

    @property
    def definition(self) -> tuple[Array, ...] | None:
        """The outputs of the operator's definition; None if it has no other."""
        return None

    @property
    def finite_terms(self) -> tuple[tuple[Array | None, ...] | None, tuple[Array | None, ...] | None]:
        """The truth and the magnitude with zeros for infinite inputs and NaN."""
        return None, None

    @property
    @abstractmethod
    def truth(self) -> tuple[Array | None, ...] | None:
        """The outputs in float64; None for an output, or as a whole, if float64 gives none."""

    @property
    @abstractmethod
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """The sensitivity of each output to roundings; None if float64 has no answer."""

    @property
    @abstractmethod
    def judge(self) -> Judge:
        """The rules for comparing a backend's outputs."""

    @property
    @abstractmethod
    def arguments(self) -> Mapping[str, Any]:
        """Schema name → value, tensors as arrays, complex numbers as such; for rules."""

    @cached_property
    def dtypes(self) -> frozenset[str]:
        """Dtypes of all inputs and outputs."""
        return frozenset(str(a.dtype) for a in self.arrays)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All inputs and outputs, which a backend may narrow."""
        return *self.feeds, *self.expected

    @property
    def has_strided_input(self) -> bool:
        """Whether an input does not lie row-major in memory, which runtimes never see."""
        return not all(spec.is_contiguous for spec in self.invocation.tensors())

    @property
    def unknown(self) -> str:
        """Why the right outputs are not known, so that no result can be judged; "" if they are."""
        return ""

    @property
    def nodes(self) -> NodesJudged | None:
        """The comparison of a graph's nodes with their definitions, if this case's oracle has made it."""
        return None

    def compare(self, outputs: Sequence[Array], leeway: Leeway | None = None) -> OutputComparison:
        """Compare a backend's outputs; `leeway` is what transforms of the graph allow."""
        return compare(self.judge.allowing(leeway), self, outputs)

    def output_errors(self, outputs: Sequence[Array]) -> Iterator[OutputError]:
        """Yield the error of each output that is measured: of a model's floating outputs."""
        yield from ()

    def error_growth(self, outputs: Sequence[Array]) -> ErrorGrowth | None:
        """Return the growth of a model's errors; None if it is not known. It takes several runs in float64."""
        return None


class Structure(Protocol):
    """A call, a program, a model or a graph that is exported once and run with several inputs."""

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
        """The outputs to check: their names; their number if a converter names them."""

    @property
    def is_checked(self) -> bool:
        """Whether ONNX's checker decides about the graph; of a user's file the runtime does."""

    @property
    def is_whole_model(self) -> bool:
        """Whether a step may take long and its artefact much memory, so that neither is kept or repeated."""

    @property
    def has_program(self) -> bool:
        """Whether PyTorch has a program of it, which a converter makes a graph of."""

    @property
    def model(self) -> LoadedModel | None:
        """The user's model with its Python code; None if there is none."""

    @property
    def answering_backend(self) -> str | None:
        """The backend that the oracle asks; None for PyTorch."""

    def oracle(self, invocation: Invocation) -> CaseOracle:
        """Return the oracle of a case; raises `harness.pipeline.torch_call.CallRejected`."""

    def returning(self, outputs: int) -> Self:
        """Return the structure that returns so many tensors, as its oracles have found."""

    def outputs_in(self, artefact: AnyModel) -> tuple[str, ...]:
        """Return the names of its outputs in an artefact, in their order."""

    def request(self, route: Route, others: Sequence[Self] = ()) -> ExportRequest:
        """Return the export of the structure, together with others of its kind that share no names with it."""

    def export(self, started: StartedRoute) -> AnyModel | StageFailure:
        """Return the artefact of the structure by itself; a graph returns itself."""

    def feeds(self, artefact: AnyModel, arrays: Sequence[Array]) -> dict[str, Array]:
        """Graph input → array, without the inputs that the export left out."""

    def samples(self, artefact: AnyModel) -> Samples:
        """Return the inputs that calibrate a transform: those that the structure will be run with, as far as known."""

    def shape_ranges(self, artefact: AnyModel, cases: Sequence[Invocation]) -> dict[str, ShapeRange]:
        """Return the sizes that a dynamic artefact will run with; the first case's are typical."""

    def is_right_by_calls(self, case: Case, wrong: CaseRun, started: StartedRoute, run: RunCase) -> bool:
        """Whether outputs that are wrong as a whole are those of its calls one by one, each of which is right.

        Args:
            case: The case.
            wrong: How it ends as a whole.
            started: Its route.
            run: Runs a case by itself: `harness.pipeline.run_case.run_case`.
        """


@dataclass(frozen=True, eq=False)
class Case:
    """A call, a program, a run of a model, or a graph.

    Attributes:
        structure: The call, program, model or graph that is exported.
        oracle: The oracle, which also has the inputs.
        judge: The rules for comparing outputs; None means the oracle's.
        runs: Maximum number of runs of a case that draws at random, until one is wrong.
        artefact: The artefact that the structure has been exported to; None exports it.
        asks_calls: Gets the end of a wrong program, and returns whether to run its calls one by one.
    """

    structure: Structure
    oracle: CaseOracle
    judge: Judge | None = None
    runs: int = 1
    artefact: AnyModel | None = None
    asks_calls: Callable[[CaseRun], bool] = lambda wrong: True

    def export(self, started: StartedRoute) -> AnyModel | StageFailure:
        """Return the artefact."""
        return self.structure.export(started) if self.artefact is None else self.artefact

    def feeds(self, artefact: AnyModel) -> Mapping[str, Array]:
        """Return the inputs by name, without those that the export left out."""
        return self.structure.feeds(artefact, self.oracle.feeds)

    def shape_ranges(self, artefact: AnyModel) -> Mapping[str, ShapeRange]:
        """Return the sizes that a dynamic artefact is run with."""
        return self.structure.shape_ranges(artefact, [self.oracle.invocation])

    def choose(self, outputs: tuple[Array, ...], again: Again) -> tuple[Array, ...]:
        """Return the outputs to judge: the first run's, or the first wrong ones if the case draws at random."""
        return tuple(first_wrong(self.judge or self.oracle.judge, self.oracle, outputs, again, self.runs))

    def compare(self, outputs: Sequence[Array], leeway: Leeway | None) -> OutputComparison:
        """Compare outputs with the right ones; `leeway` is what transforms of the graph allow."""
        if self.judge is None:
            return self.oracle.compare(outputs, leeway)
        return compare(self.judge.allowing(leeway), self.oracle, outputs)
