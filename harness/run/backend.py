"""The interface of backends: a model and inputs in, outputs out.

A backend is one file in this package that calls :func:`register` at import. It knows nothing of operators, converters,
batches or verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness.core.dtypes import Array
from harness.core.plugins import Registry, Unavailable
from harness.core.snippet import RunSnippet, RunWanted
from harness.run.artefact import ONNX, AnyModel, NodeKernel, PlacedNode

#: The backend that computes each operator as its specification says, in the graph's dtypes.
REFERENCE = "onnx-reference"


@dataclass(frozen=True, kw_only=True)
class ShapeRange:
    """The shapes that a dynamic graph input will have, dimension by dimension.

    `opt` is a shape that will be run; `min` and `max` bound all of them. TensorRT calls this an optimisation profile.
    """

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


class _AboutNodes(Exception):
    """An error of a backend, with the ONNX nodes that it names.

    Args:
        message: The backend's message.
        nodes: Names of the guilty ONNX nodes, as far as the backend names them, or of outputs of another artefact. The
            pipeline uses this hint to find the guilty cases of a batch without bisection; other nodes may be guilty
            too.
        reasons: Node → message about that node alone, if the backend reports several. Other nodes share `message`.
    """

    def __init__(self, message: str, nodes: Sequence[str] = (), reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.nodes = tuple(nodes)
        self.reasons = dict(reasons or {})

    def __reduce__(self) -> tuple[type[_AboutNodes], tuple[str, tuple[str, ...], dict[str, str]]]:
        # Exceptions are pickled with their message only, and these are sent between processes.
        return type(self), (str(self), self.nodes, self.reasons)


class UnsupportedModel(_AboutNodes):
    """The backend declares that it does not implement something in the model."""


class InvalidModel(_AboutNodes):
    """The backend rejects the model as wrong, rather than as unimplemented."""


class BackendFailure(_AboutNodes):
    """Any other failure of the backend to load or run a model, with the nodes that it names."""


class DeviceLost(Exception):
    """The device is unusable for the rest of this process: a persistent CUDA fault, or no memory left.

    The pipeline treats it as a crash: it replaces the process and splits the batch.
    """


class BackendSession(Protocol):
    """A loaded model."""

    @property
    def runnable(self) -> bool:
        """Whether it can run here; False if it could only be built, for lack of a GPU."""

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run the model and return its outputs in the order of `graph.output`.

        Raises:
            UnsupportedModel: A kernel is missing, which is noticed only now.
            DeviceLost: See there.
            Exception: Any other error of the backend; a `BackendFailure` may name nodes.
        """


@runtime_checkable
class HasPlacement(Protocol):
    """A session whose runtime may run nodes on the CPU although another device was requested."""

    def placed(self) -> Sequence[PlacedNode] | None:
        """Return where each node runs, including those of subgraphs; None if the runtime does not report it."""


class Backend(Protocol):
    """One inference runtime on one device."""

    name: str
    #: "cpu", "cuda", or the runtime's name of the device.
    device: str
    #: Version of the runtime, as its package states it.
    version: str

    def narrows(self, dtype: str) -> str | None:
        """Return the dtype that silently replaces `dtype` ("float64" → "float32"); None if it is kept."""

    def load(self, model: Any, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        """Prepare a model for running.

        Args:
            model: A checked `onnx.ModelProto` whose inputs and outputs are tensors, or a
                `harness.run.artefact.Artefact` of a kind that the backend takes.
            shapes: A range for each graph input of a model with dynamic dimensions; else None.

        Raises:
            UnsupportedModel: Something in the model is not implemented.
            InvalidModel: The runtime considers the model wrong.
            DeviceLost: See there.
            Exception: Any other error of the backend; a `BackendFailure` may name nodes.
        """


@runtime_checkable
class HasPlain(Protocol):
    """A backend that can run without optimisations, which distinguishes a wrong optimisation from a wrong kernel."""

    def plain(self) -> Backend:
        """Return the same runtime on the same device without graph optimisations."""


@runtime_checkable
class HasGraphPasses(Protocol):
    """A backend whose graph optimisations can be left out separately, to find the wrong one."""

    def passes(self) -> Sequence[str]:
        """Return the names of all optimisations, including those that change nothing."""

    def without(self, passes: Sequence[str]) -> Backend:
        """Return the same runtime on the same device without some optimisations."""


@runtime_checkable
class HasKernelReport(Protocol):
    """A backend whose runtime says which kernel ran each node."""

    def node_kernels(
        self, model: AnyModel, feeds: Mapping[str, Array], shapes: Mapping[str, ShapeRange] | None
    ) -> Sequence[NodeKernel]:
        """Load a model, run it once if the runtime says it only then, and return what ran; raises as `Backend.load`."""


@runtime_checkable
class HasPassLog(Protocol):
    """A backend that tells which of its graph optimisations change a model."""

    def applied_passes(self, model: onnx.ModelProto) -> Sequence[str]:
        """Return the optimisations that change a model which the backend has loaded before, as they are applied."""


@dataclass(frozen=True, kw_only=True)
class BackendEntry:
    """A registered backend before any of it is imported or started.

    Attributes:
        name: The argument of ``--backend``. If it ends in ``:``, the rest of the user's argument is passed on
            (``onnx-api:onnxruntime.backend``).
        probe: Returns None if the backend can run here, else why not. Must be cheap and must not start a device context
            in the calling process.
        create: Starts the backend, given the text after the colon ("" without one). Called only in workers.
        version: Returns the version without starting anything, for the header.
        default: Whether a run that names no backend uses it, if its converter makes what it takes.
        engine: A name shared by the entries of one runtime; "" for a runtime with one entry. Agreement of two backends
            proves something only if their engines differ.
        summary: A short description.
        snippet: Code that runs a model without the harness, for scripts that reproduce a defect; None if there is none.
        tracker: The GitHub repository where its bugs are reported: ``microsoft/onnxruntime``.
        issue_form: The tracker's form: heading → text, with names of properties of a `Report`
            (`harness.reproduce.issue`) in braces. Empty if it has no form.
        distributions: Packages whose versions determine its behaviour; None if unknown.
        on_cpu: Whether it needs no graphics card.
        variables: Prefixes, without the underscore, of environment variables that its runtime reads.
        witness: Its rank, lowest first, among the backends that are asked about another backend's failure; None if it
            is not asked.
        last_witness: Whether it is asked only if the failure cannot be decided otherwise.
        resources: Resources of a cluster node, in addition to a CPU, and the amount that one process uses:
            ``{"GPU": 1}``. Other names are defined by the cluster.
        adapter: Returns what it runs on, for the header, if there are several possibilities; None otherwise.
        flushes: Clause on the text that lets it flush subnormal numbers to zero: "WGSL allows"; "" if none does.
        passes: Names of its graph optimisations, as far as they are known without starting it.
        passes_out_of_reach: Pass that cannot change an exported program here → the reason.
        takes: The kinds of artefact that it loads (`harness.run.artefact`).
    """

    name: str
    probe: Callable[[str], Unavailable | None]
    create: Callable[[str], Backend]
    version: Callable[[str], str]
    default: bool = False
    engine: str = ""
    summary: str = ""
    snippet: Callable[[RunWanted], RunSnippet] | None = None
    tracker: str = ""
    issue_form: Mapping[str, str] = field(default_factory=dict)
    distributions: tuple[str, ...] | None = None
    on_cpu: bool = False
    variables: tuple[str, ...] = ()
    witness: int | None = None
    last_witness: bool = False
    resources: Mapping[str, float] = field(default_factory=dict)
    adapter: Callable[[], str] | None = None
    flushes: str = ""
    passes: Sequence[str] = ()
    passes_out_of_reach: Mapping[str, str] = field(default_factory=dict)
    takes: tuple[str, ...] = (ONNX,)


def _broken(name: str, problem: Unavailable, version: str) -> BackendEntry:
    def create(argument: str) -> Backend:
        raise RuntimeError(problem.reason)

    summary = "a plug-in that failed to load"
    return BackendEntry(
        name=name, probe=lambda argument: problem, create=create, version=lambda _: version, summary=summary
    )


def graph_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs of a model that are fed, in order, without weights."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def negation() -> onnx.ModelProto:
    """Return the model -x for one number; a backend that runs it works."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"], name="neg")], "probe", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def try_negating(session: BackendSession) -> list[Array]:
    """Run `negation`, loaded as a session, on 1."""
    return session.run({"x": np.ones(1, np.float32)})


#: All backends. To add one, write a file in `harness/run/backends/` that calls `register` at import, or an entry point
#: of another package. Importing a backend's file must not import its runtime.
BACKENDS: Registry[BackendEntry] = Registry(
    "backend", package="harness.run.backends", group="harness.backends", broken=_broken
)


register = BACKENDS.register


def runtime_distributions() -> tuple[str, ...]:
    """Return the packages that all backends use, installed or not."""
    return tuple(dict.fromkeys(name for e in BACKENDS.entries() for name in e.distributions or ()))
