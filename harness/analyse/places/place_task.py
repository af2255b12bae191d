"""Find the lines of a recorded failure in a worker process, since an operator may take it down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.analyse.places.locate import locate
from harness.analyse.places.observed_case import Bench
from harness.analyse.places.repair import Limits
from harness.analyse.places.source_code import SourceCode
from harness.analyse.places.suspect import Suspect
from harness.core import Invocation
from harness.execute import Death, Settings, Supervisor, WorkerProcess

#: Suspects that a person is told.
TOLD = 3


@dataclass(frozen=True, kw_only=True)
class PlaceTask:
    """Cases of one operator that fail in one way with a converter and a backend, and some that pass.

    Attributes:
        limits: See `locate`.
    """

    handler: ClassVar[str] = "harness.analyse.places.place_task:carry_out"

    failing: tuple[Invocation, ...]
    passing: tuple[Invocation, ...]
    converter: str
    backend: str
    settings: Settings
    limits: Limits | None = None


@dataclass(frozen=True)
class FoundPlaces:
    """The suspects, the likeliest first."""

    suspects: tuple[Suspect, ...]


def find_places(task: PlaceTask, supervisor: Supervisor) -> tuple[Suspect, ...]:
    """The lines that failures may come of; none where they do not fail here, or where nobody can tell.

    Raises:
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    found: Sequence[Suspect] = ()
    # All messages are taken: what is left in the pipe would be taken for an answer to the next task.
    for message in list(supervisor.serve_alone(task)):
        if isinstance(message, FoundPlaces):
            found = message.suspects
        elif isinstance(message, Death):
            return ()
    return tuple(found)


def carry_out(task: PlaceTask, worker: WorkerProcess) -> None:
    """Find the suspects in a worker, and send them."""
    converter, _ = worker.converter(task.converter, task.settings)
    bench = Bench(converter, worker.backend(task.backend), task.settings.opset)
    located = locate(bench, task.failing, task.passing, SourceCode(), task.limits)
    worker.send(FoundPlaces(tuple(suspect for _, suspect in located.suspects[:TOLD])))
