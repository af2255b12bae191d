"""What a run was to do, what of it is finished, and what is missing: a lost shard, a killed session.

`RunInfo.planned` has the operators of every shard (one for a whole run), and those of which the record lacks
verdicts are unfinished. No view may take them for passing.

Until a run has ended ``RESULTS/parts/WORKER.units`` has a line per unit, ``done aten.celu.default dynamo``,
written once its rows are. ``left`` in place of ``done`` says that the user deselected it (`-k`, `--lf`).

What cannot be written or read raises `ResultsError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from harness.record import layout
from harness.record.layout import ResultsError, reason
from harness.record.run_info import Part, RunInfo, ShardState, read_run_info

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
    """Add units to a worker's file."""
    path = results_dir / layout.PARTS_DIRECTORY / f"{worker}{_SUFFIX}"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{word} {overload} {unit}\n" for overload, unit in units)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None


def read(results_dir: Path) -> UnitProgress:
    """What all workers noted; a line that a crash cut short counts for nothing."""
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


@dataclass(frozen=True)
class Completeness:
    """What there is of a run: its shards; one for a run without."""

    parts: tuple[Part, ...]

    @property
    def complete(self) -> bool:
        """Whether all that was planned is there."""
        return all(part.state is ShardState.COMPLETE for part in self.parts)

    @property
    def operators(self) -> tuple[str, ...]:
        """Planned, by name."""
        return tuple(sorted({name for part in self.parts for name in part.operators}))

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Operators of which verdicts are missing, by name."""
        return tuple(sorted({name for part in self.parts for name in part.unfinished}))

    @property
    def said(self) -> str:
        """What is missing, for a person, in one line; "" for nothing."""
        if self.complete:
            return ""
        words = []
        if self.parts[0].count == 1:
            words.append("it did not finish")
        else:
            for state, what in ((ShardState.MISSING, "missing"), (ShardState.PARTIAL, "incomplete")):
                found = [f"{part.index}/{part.count}" for part in self.parts if part.state is state]
                if found:
                    are = f"shard {found[0]} is" if len(found) == 1 else f"shards {', '.join(found)} are"
                    words.append(f"{are} {what}")
        lacking = self.unfinished
        if lacking:
            some = ", ".join(lacking[:3]) + (", …" if len(lacking) > 3 else "")
            words.append(f"{len(lacking):,} of {len(self.operators):,} operators lack results ({some})")
        return "; ".join(words)


def completeness(results_dir: Path) -> Completeness:
    """What there is of a run."""
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
        came = read(results_dir)
        operators, unfinished = came.operators(planned), came.unfinished(planned)
    # Of a run that was not finished, the last word may be missing though all rows are there.
    over = info.finished is not None or (info.planned and not unfinished)
    state = ShardState.COMPLETE if over and not unfinished else ShardState.PARTIAL
    return Part(index=index, count=count, state=state, operators=operators, unfinished=unfinished)
