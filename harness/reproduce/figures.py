"""Whether a model costs more with one release of a package than with another, measured in pairs.

A pair is one process with each release, one right after the other, in an order that turns: what slows the machine down
for a while slows both. The interval from the smallest to the largest difference of n pairs holds the median with
probability 1 - 2^(1-n), whatever the distribution (the sign test, Dixon and Mood, J. Am. Stat. Assoc. 41, 1946); with
seven pairs that is 98.4%. A difference counts if the whole interval is on one side of none, and if its median is large
enough for somebody to care.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.reproduce.releases import release_environment

#: Number of pairs.
PAIRS = 7
#: Seconds of one process.
_PATIENCE = 900


class Figure(StrEnum):
    """A figure: milliseconds and bytes of a call, signal-to-noise ratio in decibels, rows that choose another class."""

    MILLISECONDS = "ms"
    MEMORY = "memory"
    SQNR = "sqnr"
    FLIPS = "flips"


#: Figure → the key in the document of `conformance measure`.
_KEYS = {
    Figure.MILLISECONDS: "milliseconds",
    Figure.MEMORY: "memory",
    Figure.SQNR: "sqnr",
    Figure.FLIPS: "flips",
}
#: The least median difference that counts: a tenth of the time, 64 KiB a call, one decibel, one row.
LEAST = {Figure.MILLISECONDS: 0.10, Figure.MEMORY: 64 * 2**10, Figure.SQNR: 1.0, Figure.FLIPS: 1.0}


class NotMeasured(Exception):
    """A model cannot be measured with a release; the message is one line."""


@dataclass(frozen=True)
class FigureChange:
    """The change of one figure between two releases.

    Attributes:
        figure: The figure.
        before: The median with the first release.
        after: The median with the second one.
        low: The lower end of the interval of the difference: a share of the time, else in the figure's unit.
        high: The upper end.
        median: The median difference.
    """

    figure: Figure
    before: float
    after: float
    low: float
    high: float
    median: float

    @property
    def is_worse(self) -> bool:
        """Whether the second release is worse, beyond chance and by enough to matter."""
        return self.low > 0 and self.median >= LEAST[self.figure]

    @property
    def is_better(self) -> bool:
        """Whether the second release is better."""
        return self.high < 0 and -self.median >= LEAST[self.figure]


def compare_figures(
    measure_before: Callable[[], dict[str, Any]],
    measure_after: Callable[[], dict[str, Any]],
    pairs: int = PAIRS,
) -> list[FigureChange]:
    """Measure in pairs and return the change of each figure that both have.

    Args:
        measure_before: Measures with the first release, in a process of its own.
        measure_after: The same with the second one.
        pairs: Number of pairs.

    Raises:
        NotMeasured: One of them gives no figures.
    """
    measured: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for number in range(pairs):
        if number % 2:
            second = measure_after()
            measured.append((measure_before(), second))
        else:
            measured.append((measure_before(), measure_after()))
    changes = []
    for figure, key in _KEYS.items():
        values = [(a[key], b[key]) for a, b in measured]
        if any(value is None for pair in values for value in pair):
            continue
        differences = sorted(_difference(figure, *pair) for pair in values)
        before, after = (statistics.median(side) for side in zip(*values, strict=True))
        changes.append(
            FigureChange(figure, before, after, differences[0], differences[-1], statistics.median(differences))
        )
    return changes


def _difference(figure: Figure, before: float, after: float) -> float:
    """Return by how much the second value is worse; negative if it is better."""
    if figure is Figure.MILLISECONDS:
        return after / before - 1
    # Fewer decibels are worse.
    return before - after if figure is Figure.SQNR else after - before


@dataclass(frozen=True)
class MeasureCommand:
    """`conformance measure` with some releases before the installed ones on Python's path.

    Attributes:
        words: The model and the options.
        releases: The folders of the releases.
        cwd: The working directory.
    """

    words: Sequence[str]
    releases: Sequence[Path]
    cwd: Path

    def __call__(self) -> dict[str, Any]:
        """Measure in a new process.

        Raises:
            NotMeasured: It gives no figures.
        """
        command = [sys.executable, "-m", "harness.app.cli", "measure", *self.words, "--json"]
        try:
            done = subprocess.run(
                command,
                env=release_environment(self.releases),
                cwd=self.cwd,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"it took longer than {_PATIENCE} s") from None
        if done.returncode:
            raise NotMeasured((done.stderr.strip().splitlines() or ["it printed nothing"])[-1].removeprefix("Error: "))
        data: dict[str, Any] = json.loads(done.stdout)
        return data
