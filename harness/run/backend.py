"""What a backend is: a model and inputs in, outputs out.

A backend is one file in this package that calls :func:`register` at import. It knows nothing
of operators, converters, batches or verdicts.
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
from harness.run.artefact import ONNX, PlacedNode

#: The backend that computes each operator as its text says, in the dtypes that the graph has.
REFERENCE = "onnx-reference"


@dataclass(frozen=True, kw_only=True)
class ShapeRange:
    """The shapes that one dynamic graph input will be run with, dimension by dimension.

    `opt` is a shape that is really run; `min` and `max` bound all of them. TensorRT calls
    this an optimisation profile.
    """

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


class _AboutNodes(Exception):
    """A backend's complaint, with the ONNX nodes that it names.

    Args:
        message: The backend's own words.
        nodes: Names of the guilty ONNX nodes as far as the backend names them, or of outputs of an
            artefact of another kind; the pipeline uses them to find the guilty cases of a batch
            without bisecting. They are a hint: nodes that are not named may be guilty too.
        reasons: Node name → what was said of that node alone, where the backend says several
            things at once. A node that is absent shares `message`.
    """

    def __init__(self, message: str, nodes: Sequence[str] = (), reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.nodes = tuple(nodes)
        self.reasons = dict(reasons or {})

    def __reduce__(self) -> tuple[type[_AboutNodes], tuple[str, tuple[str, ...], dict[str, str]]]:
        # An exception is pickled by its message alone otherwise, and it crosses processes here.
        return type(self), (str(self), self.nodes, self.reasons)


class UnsupportedModel(_AboutNodes):
    """The backend says that it does not implement something in the model."""


class InvalidModel(_AboutNodes):
    """The backend rejects the model as wrong (not merely as unimplemented)."""


class BackendFailure(_AboutNodes):
    """Any other failure of the backend to load or run a model, with the node that it names."""


class DeviceLost(Exception):
    """The device is unusable for the rest of this process: a CUDA fault that sticks, or no memory left.

    The pipeline treats it as a crash: the process is replaced and the batch is split.
    """


class BackendSession(Protocol):
    """A loaded model."""

    @property
    def runnable(self) -> bool:
        """False where the model could be built but not run on this machine (no GPU)."""

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run once. Outputs come in the order of `graph.output`.

        Raises:
            UnsupportedModel: a kernel is missing and shows only now.
            DeviceLost: see there.
            Exception: anything else is the backend's error; a `BackendFailure` may name the node.
        """


@runtime_checkable
class HasPlacement(Protocol):
    """A session whose runtime may leave nodes to the CPU although another device was asked for."""

    def placed(self) -> Sequence[PlacedNode] | None:
        """Where each node runs, those of subgraphs included; None where the runtime does not tell."""


class Backend(Protocol):
    """One inference runtime on one device."""

    name: str
    #: "cpu", "cuda", or what its runtime calls the device.
    device: str
    #: Version of the runtime, as its package states it.
    version: str

    def narrows(self, dtype: str) -> str | None:
        """The dtype that silently replaces `dtype` ("float64" → "float32"), None if kept."""

    def load(self, model: Any, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        """Prepare `model` for running.

        Args:
            model: An `onnx.ModelProto` that has been checked, whose inputs and outputs are tensors; of a backend
                that takes other kinds, a `harness.run.artefact.Artefact` of one of them.
            shapes: For a model with dynamic dimensions, a range per graph input; else None.

        Raises:
            UnsupportedModel: something in the model is not implemented.
            InvalidModel: the runtime says that the model is wrong.
            DeviceLost: see there.
            Exception: anything else is the backend's error; a `BackendFailure` may name the node.
        """


@runtime_checkable
class HasPlain(Protocol):
    """A backend that can do without its optimisations, which tells a wrong one from a wrong kernel."""

    def plain(self) -> Backend:
        """The same runtime on the same device with graph optimisations off."""


@runtime_checkable
class HasGraphPasses(Protocol):
    """A backend whose graph optimisations can be left out one by one, which tells which one is wrong."""

    def passes(self) -> Sequence[str]:
        """Their names, those included that change nothing."""

    def without(self, passes: Sequence[str]) -> Backend:
        """The same runtime on the same device without some of them."""


@dataclass(frozen=True, kw_only=True)
class BackendEntry:
    """A registered backend before anything of it is imported or started.

    Attributes:
        name: As written after ``--backend``. An entry whose name ends in ``:`` takes the rest
            of the user's word as an argument (``onnx-api:onnxruntime.backend``).
        probe: Returns None where the backend can run here, else why not. Cheap; must not start a
            device context in the calling process.
        create: Starts the backend, given what follows the colon ("" without one). Called in the
            worker process only.
        default: Part of a run that names no backend and whose converter makes what it takes.
        engine: Shared by the entries of one runtime; "" for one of its own. That two backends agree tells
            something only if their engines differ.
        snippet: Code that runs a model without the harness, for scripts that reproduce a defect; None where
            there is none.
        tracker: Where its bugs are reported, a GitHub repository: ``microsoft/onnxruntime``.
        issue_form: What that tracker asks for: heading → text, with the names of properties of a `Report`
            (`harness.reproduce.issue`) in braces. Empty for no form of its own.
        distributions: Packages whose versions decide what it does; None where that is not known.
        on_cpu: Whether no graphics card takes part.
        variables: What the names of environment variables that its runtime reads begin with, without the
            underscore behind it.
        witness: Place among the backends that are asked about another backend's failure, the lowest first;
            None for a backend that is not asked.
        last_witness: Whether it is asked only where the failure cannot be decided without it.
        resources: What a node of a cluster must have for it beside a CPU, and how much of it one process
            takes: ``{"GPU": 1}``. Other names are a cluster's own.
        adapter: What it runs on, for the header, where several things could serve; None where that is plain.
        flushes: What lets it take subnormal numbers for zeros, as a clause: "WGSL allows"; "" where nothing does.
        takes: The kinds of artefact that it loads (`harness.run.artefact`).
    """

    name: str
    probe: Callable[[str], Unavailable | None]
    create: Callable[[str], Backend]
    #: Version without starting anything, for the header.
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
    takes: tuple[str, ...] = (ONNX,)


def _broken(name: str, problem: Unavailable, version: str) -> BackendEntry:
    def create(argument: str) -> Backend:
        raise RuntimeError(problem.reason)

    summary = "a plug-in that failed to load"
    return BackendEntry(
        name=name, probe=lambda argument: problem, create=create, version=lambda _: version, summary=summary
    )


def graph_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs of a model that are to be fed, in order: not its weights."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def negation() -> onnx.ModelProto:
    """The model -x for one number: what runs it works."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"], name="neg")], "probe", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def try_negating(session: BackendSession) -> list[Array]:
    """What `negation`, loaded, makes of 1."""
    return session.run({"x": np.ones(1, np.float32)})


#: Every backend. A new one is one file in `harness/run/backends/` that calls `register` when it is imported,
#: or an entry point of another package. Importing a backend's file must not import its runtime.
BACKENDS: Registry[BackendEntry] = Registry(
    "backend", package="harness.run.backends", group="harness.backends", broken=_broken
)


register = BACKENDS.register


def runtime_distributions() -> tuple[str, ...]:
    """The packages that any backend runs, installed or not."""
    return tuple(dict.fromkeys(name for e in BACKENDS.entries() for name in e.distributions or ()))
