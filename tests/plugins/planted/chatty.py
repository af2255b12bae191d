"""A task whose handler never stops talking while it hoards memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from harness.pipeline.worker import WorkerProcess


@dataclass(frozen=True)
class Chatter:
    """Sends a number every few milliseconds.

    Attributes:
        mebibytes: To hoard, one with each message.
    """

    handler: ClassVar[str] = "planted.chatty:carry_out"

    mebibytes: int


def carry_out(task: Chatter, worker: WorkerProcess) -> None:
    """Hoard and talk."""
    hoard = []
    for number in range(task.mebibytes):
        hoard.append(b"x" * 2**20)
        worker.send(number)
        time.sleep(0.002)
