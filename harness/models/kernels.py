"""Ask a runtime for the device, the dtypes and the kernel of each node of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.compare.verdict import Stage
from harness.core.dtypes import is_float
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.core.text import first_line
from harness.pipeline.first_run import ask_first_run, make_first_run
from harness.pipeline.model_task import ModelSource
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Step
from harness.pipeline.worker import WorkerProcess
from harness.run.artefact import NodeKernel
from harness.run.backend import HasKernelReport

#: Names of dtypes in the runtimes' words → ours.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
}
#: Operators that change a dtype: they have two by their nature.
_CASTS = frozenset({"Cast", "Convert", "Reorder", "Reformat"})


@dataclass(frozen=True)
class KernelReport:
    """The answer of a runtime about the nodes of a model on a route.

    Attributes:
        route: The route.
        nodes: The nodes; empty if it says nothing.
        problem: Why it says nothing; "" if it does.
    """

    route: Route
    nodes: tuple[NodeKernel, ...] = ()
    problem: str = ""

    def off_device(self, device: str) -> tuple[NodeKernel, ...]:
        """Return the nodes that ran elsewhere than on a device: ``cpu``, ``cuda``, or the name of a provider."""
        return tuple(node for node in self.nodes if device.lower() not in node.device.lower())

    def off_dtype(self, dtype: str) -> tuple[NodeKernel, ...]:
        """Return the nodes that computed in another floating dtype; casts have two."""
        return tuple(
            node
            for node in self.nodes
            if node.operator not in _CASTS and any(is_float(name) and name != dtype for name in dtypes_of(node))
        )


def dtypes_of(node: NodeKernel) -> tuple[str, ...]:
    """Return the dtypes of a node in our words."""
    return tuple(_DTYPES.get(name, name) for name in node.dtypes)


@dataclass(frozen=True)
class KernelTask:
    """Ask the runtime of a route about one run of a model."""

    handler: ClassVar[str] = "harness.models.kernels:carry_out"

    source: ModelSource
    route: Route
    invocation: Invocation


def report_kernels(source: ModelSource, route: Route, supervisor: Supervisor) -> KernelReport:
    """Return what the runtime of a route says about the first run of a model.

    Raises:
        ModelProblem: the model cannot be loaded.
    """
    answer = ask_first_run(source, route, supervisor, lambda run: KernelTask(source, route, run), KernelReport)
    return KernelReport(route, problem=answer) if isinstance(answer, str) else answer


def carry_out(task: KernelTask, worker: WorkerProcess) -> None:
    """Load the model in a worker, and send what the runtime says."""
    worker.begin(Step(Stage.LOAD, task.route.backend, ()), send=True)
    try:
        nodes = _ask(task, worker)
    except Exception as error:
        worker.send(KernelReport(task.route, problem=first_line(error)))
    else:
        worker.send(KernelReport(task.route, tuple(nodes)))


def _ask(task: KernelTask, worker: WorkerProcess) -> Sequence[NodeKernel]:
    route, backend = task.route, worker.start(task.route.backend)
    if not isinstance(backend, HasKernelReport):
        raise ValueError(f"{route.backend} does not say what ran where")
    case, artefact = make_first_run(task.source, route, task.invocation, worker)
    shapes = case.shape_ranges(artefact) if route.dynamic else None
    return backend.node_kernels(artefact, case.feeds(artefact), shapes)
