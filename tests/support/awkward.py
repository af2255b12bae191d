"""Functions for other processes, in a file that needs few imports."""

from __future__ import annotations

import os
import time


class Awkward(Exception):
    """It is pickled, but cannot be read again."""

    def __init__(self, day: int, month: str) -> None:
        super().__init__(f"on the {day}rd of {month}")


def fail_awkwardly() -> None:
    """Raise it."""
    raise Awkward(3, "May")


def sleep_at_start(*_: object) -> None:
    """Never answer; called where a worker begins."""
    time.sleep(3600)


def leave(status: int) -> None:
    """End the process."""
    print("never again")
    os._exit(status)
