"""A task whose handler says nothing but what it is about to do, and then ends the process."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import ClassVar

from harness.pipeline.worker import WorkerProcess


@dataclass(frozen=True)
class Announcer:
    """Announces one number after the other.

    Attributes:
        pause: Seconds between two.
    """

    handler: ClassVar[str] = "planted.announcing:carry_out"

    numbers: int
    pause: float


def carry_out(task: Announcer, worker: WorkerProcess) -> None:
    """Announce, and die."""
    for number in range(task.numbers):
        worker.announce(number)
        time.sleep(task.pause)
    os._exit(3)
