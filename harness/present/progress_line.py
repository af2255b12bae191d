"""How far a run is, on one line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ProgressState:
    """What the line is made of.

    Attributes:
        cases: Done so far.
        failures: Among them.
        items_done: Pytest items that are through.
        items: Pytest items in all.
        elapsed: Seconds since the first began.
    """

    cases: int
    failures: int
    items_done: int
    items: int
    elapsed: float

    @property
    def rate(self) -> float:
        """Cases per second; 0 before the clock has moved."""
        return self.cases / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the end if items go on to take as long as they did; None while unknown."""
        if not self.items_done:
            return None
        return self.elapsed / self.items_done * max(self.items - self.items_done, 0)


def line(state: ProgressState) -> str:
    """``1,234 cases, 58.2/s, 12/180 items, 4 failures, 2:31 left``."""
    left = "time left unknown" if state.left is None else f"{duration(state.left)} left"
    noun = "failure" if state.failures == 1 else "failures"
    return (
        f"{state.cases:,} cases, {state.rate:.1f}/s, {state.items_done}/{state.items} items, "
        f"{state.failures:,} {noun}, {left}"
    )


def duration(seconds: float) -> str:
    """``0:07``, ``2:31``, ``1:02:31``."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


class ProgressLine:
    """Counts what is done, from the moment it is made."""

    def __init__(self, items: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Start.

        Args:
            items: How many there are to do.
            clock: Seconds from any origin.
        """
        self._items = items
        self._clock = clock
        self._began = clock()
        self._items_done = 0
        self._cases = 0
        self._failures = 0

    def add(self, *, items: int = 0, cases: int = 0, failures: int = 0) -> None:
        """That much more is done."""
        self._items_done += items
        self._cases += cases
        self._failures += failures

    @property
    def state(self) -> ProgressState:
        """Now."""
        return ProgressState(
            cases=self._cases,
            failures=self._failures,
            items_done=self._items_done,
            items=self._items,
            elapsed=self._clock() - self._began,
        )

    def line(self) -> str:
        """Now, on one line."""
        return line(self.state)
