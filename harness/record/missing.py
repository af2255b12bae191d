"""What a run was to do and did not: a shard that was lost, a session that was killed.

Both say it in one way: `RunInfo.planned` has the operators of every shard (one for a whole run), and those of
which the record lacks verdicts are unfinished. No view may take them for passing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.record import layout, progress
from harness.record.layout import ResultsError, reason
from harness.record.run_info import Part, RunInfo, ShardState, read_run_info


@dataclass(frozen=True)
class Completeness:
    """What there is of a run.

    Attributes:
        parts: Its shards; one for a run without.
    """

    parts: tuple[Part, ...]

    @property
    def complete(self) -> bool:
        """Whether all that was planned is there."""
        return all(part.state is ShardState.COMPLETE for part in self.parts)

    @property
    def operators(self) -> tuple[str, ...]:
        """Planned, by name."""
        return tuple(sorted(name for part in self.parts for name in part.operators))

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Operators of which verdicts are missing, by name."""
        return tuple(sorted(name for part in self.parts for name in part.unfinished))

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
            words.append(f"{len(lacking):,} of {len(self.operators):,} operators lack verdicts ({some})")
        return "; ".join(words)


def completeness(results_dir: Path) -> Completeness:
    """What there is of a run.

    Raises:
        ResultsError: it cannot be read.
    """
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
        came = progress.read(results_dir)
        operators, unfinished = came.operators(planned), came.unfinished(planned)
    # Of a run that was not finished, the last word may be missing though all rows are there.
    over = info.finished is not None or (info.planned and not unfinished)
    state = ShardState.COMPLETE if over and not unfinished else ShardState.PARTIAL
    return Part(index=index, count=count, state=state, operators=operators, unfinished=unfinished)
