"""Track which part of a run is finished, and what is missing because of a lost shard or a killed session.

`RunInfo.planned` lists the operators of every shard (of the only shard, for a whole run). Those whose verdicts are not
all recorded are unfinished, and no view may count them as passing.

While a run is in progress, ``RESULTS/parts/WORKER.units`` gets a line per unit, ``done aten.celu.default dynamo``, once
its rows are written; ``left`` instead of ``done`` means that the user deselected it (`-k`, `--lf`). All functions raise
`ResultsError` if a file cannot be read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from harness.record import layout
from harness.record.layout import ResultsError, reason
from harness.record.run_info import Part, RunInfo, ShardState, read_run_info

#: Overload → its units, ``dynamo`` or ``dynamo-dynamic``, separated by spaces.
Planned: TypeAlias = Mapping[str, str]

_SUFFIX = ".units"


@dataclass(frozen=True)
class UnitProgress:
    """The planned units that are settled.

    Attributes:
        done: Pairs of overload and unit whose rows are all recorded.
        left: Pairs that the user deselected.
    """

    done: frozenset[tuple[str, str]]
    left: frozenset[tuple[str, str]]

    def operators(self, planned: Planned) -> tuple[str, ...]:
        """Return the operators that were not deselected entirely."""
        return tuple(o for o, units in planned.items() if any((o, u) not in self.left for u in units.split()))

    def unfinished(self, planned: Planned) -> tuple[str, ...]:
        """Return the operators whose verdicts are not all recorded."""
        settled = self.done | self.left
        return tuple(o for o, units in planned.items() if any((o, u) not in settled for u in units.split()))


def note(results_dir: Path, worker: str, word: str, units: Iterable[tuple[str, str]]) -> None:
    """Append units to a worker's file."""
    path = results_dir / layout.PARTS_DIRECTORY / f"{worker}{_SUFFIX}"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{word} {overload} {unit}\n" for overload, unit in units)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None


def read(results_dir: Path) -> UnitProgress:
    """Return what all workers noted; a line that a crash cut short is ignored."""
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
    """Return the progress files of all workers."""
    return sorted((results_dir / layout.PARTS_DIRECTORY).glob(f"*{_SUFFIX}"))


@dataclass(frozen=True)
class Completeness:
    """The completeness of a run's shards; a run without shards is one part."""

    parts: tuple[Part, ...]

    @property
    def complete(self) -> bool:
        """Whether everything that was planned is recorded."""
        return all(part.state is ShardState.COMPLETE for part in self.parts)

    @property
    def operators(self) -> tuple[str, ...]:
        """The planned operators, sorted."""
        return tuple(sorted({name for part in self.parts for name in part.operators}))

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The operators whose verdicts are not all recorded, sorted."""
        return tuple(sorted({name for part in self.parts for name in part.unfinished}))

    @property
    def summary(self) -> str:
        """A line on what is missing; "" if nothing is."""
        if self.complete:
            return ""
        parts = []
        if self.parts[0].count == 1:
            parts.append("it did not finish")
        else:
            for state, description in ((ShardState.MISSING, "missing"), (ShardState.PARTIAL, "incomplete")):
                names = [f"{part.index}/{part.count}" for part in self.parts if part.state is state]
                if names:
                    shards = f"shard {names[0]} is" if len(names) == 1 else f"shards {', '.join(names)} are"
                    parts.append(f"{shards} {description}")
        lacking = self.unfinished
        if lacking:
            examples = ", ".join(lacking[:3]) + (", …" if len(lacking) > 3 else "")
            parts.append(f"{len(lacking):,} of {len(self.operators):,} operators lack results ({examples})")
        return "; ".join(parts)


def completeness(results_dir: Path) -> Completeness:
    """Return how complete a run is."""
    info = read_run_info(results_dir)
    if info.shards:
        return Completeness(info.shards)
    try:
        return Completeness((_own_part(results_dir, info),))
    except (KeyError, IndexError) as error:
        raise ResultsError(
            f"{results_dir / layout.RUN_FILE} is damaged (its shards: {reason(error)}); restore it or delete "
            f"{results_dir} and run again"
        ) from None


def _own_part(results_dir: Path, info: RunInfo) -> Part:
    index, count = (info.shard["index"], info.shard["count"]) if info.shard else (1, 1)
    planned = info.planned[index - 1] if info.planned else {}
    if info.finished is not None:
        operators, unfinished = info.operators, info.unfinished
    else:
        progress = read(results_dir)
        operators, unfinished = progress.operators(planned), progress.unfinished(planned)
    # A killed run may have all rows although its last mark is missing.
    over = info.finished is not None or (info.planned and not unfinished)
    state = ShardState.COMPLETE if over and not unfinished else ShardState.PARTIAL
    return Part(index=index, count=count, state=state, operators=operators, unfinished=unfinished)
