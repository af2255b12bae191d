"""Which units of a run came to their end: ``RESULTS/parts/WORKER.units``, until the run itself has.

A line per unit, ``done aten.celu.default dynamo``, written once its rows are. ``left`` in place of ``done``
says that the user deselected it (`-k`, `--lf`): it was not to be run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from harness.record import layout
from harness.record.layout import ResultsError, reason

#: Overload → the units of it, ``dynamo`` or ``dynamo-dynamic``, with blanks between.
Planned: TypeAlias = Mapping[str, str]

_SUFFIX = ".units"


@dataclass(frozen=True)
class UnitProgress:
    """What became of the planned units.

    Attributes:
        done: (overload, unit) of those whose rows are all in the record.
        left: Of those that the user deselected.
    """

    done: frozenset[tuple[str, str]]
    left: frozenset[tuple[str, str]]

    def operators(self, planned: Planned) -> tuple[str, ...]:
        """The operators of which something was to be run."""
        return tuple(o for o, units in planned.items() if any((o, u) not in self.left for u in units.split()))

    def unfinished(self, planned: Planned) -> tuple[str, ...]:
        """The operators of which verdicts are missing."""
        settled = self.done | self.left
        return tuple(o for o, units in planned.items() if any((o, u) not in settled for u in units.split()))


def note(results_dir: Path, worker: str, word: str, units: Iterable[tuple[str, str]]) -> None:
    """Add units to a worker's file.

    Raises:
        ResultsError: it cannot be written.
    """
    path = results_dir / layout.PARTS_DIRECTORY / f"{worker}{_SUFFIX}"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{word} {overload} {unit}\n" for overload, unit in units)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None


def read(results_dir: Path) -> UnitProgress:
    """What all workers noted; a line that a crash cut short counts for nothing.

    Raises:
        ResultsError: a file cannot be read.
    """
    noted: dict[str, set[tuple[str, str]]] = {"done": set(), "left": set()}
    for path in files(results_dir):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ResultsError(f"cannot read {path}: {reason(error)}") from None
        for line in text.splitlines(keepends=True):
            words = line.split()
            if line.endswith("\n") and len(words) == 3 and words[0] in noted:
                noted[words[0]].add((words[1], words[2]))
    return UnitProgress(frozenset(noted["done"]), frozenset(noted["left"]))


def files(results_dir: Path) -> list[Path]:
    """Those of all workers."""
    return sorted((results_dir / layout.PARTS_DIRECTORY).glob(f"*{_SUFFIX}"))
