"""Distribute a sweep over several machines.

An operator belongs to one shard with all its converters and shape modes, so that whatever is exported, compared with a
baseline and blamed together stays together. Its shard depends only on the names of the run's operators, and not on the
machine, its processes or its backends.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from harness.generate.cases_home import cases_directory
from harness.plan.options import UsageProblem


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count` parts of a run, counted from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse the argument of ``--shard``: ``3/8``.

        Raises:
            ValueError: The text is something else; the message is one line that begins with the text.
        """
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None:
            raise ValueError(f"{text}: not a part of a run: the third of eight is 3/8")
        index, count = map(int, match.groups())
        if not 1 <= index <= count:
            last = f"of {count} the last is {count}/{count}" if count else "there is at least one"
            raise ValueError(f"{text}: shards are counted from 1: {last}")
        return cls(index, count)

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def distribute(overloads: Collection[str], count: int, known: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Return the operators of each shard, by name.

    Operators with a case and patterns are assigned, longest first, to the shard with the least work (R. L. Graham,
    Bounds on Multiprocessing Timing Anomalies, SIAM J. Appl. Math. 17, 1969). An operator that only a corpus has,
    which may differ between machines, is assigned by a hash of its name and does not affect the others.

    Args:
        overloads: The operators of the whole run.
        count: The number of shards.
        known: Operators with a case, and patterns of programs.
    """
    usual, seconds = _durations()
    parts: list[list[str]] = [[] for _ in range(count)]
    load = [0.0] * count
    chosen = sorted(set(overloads))
    for name in sorted((n for n in chosen if n in known), key=lambda n: (-seconds.get(n, usual), n)):
        least = min(range(count), key=lambda i: (load[i], i))
        load[least] += seconds.get(name, usual)
        parts[least].append(name)
    for name in chosen:
        if name not in known:
            parts[int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % count].append(name)
    return tuple(tuple(sorted(part)) for part in parts)


def check_parts(parts: Sequence[Sequence[str]], shard: Shard | None, units: Sequence[str]) -> None:
    """Check that `parts` divide a run's units, which are given by name.

    Raises:
        UsageProblem: They do not; the message says why.
    """
    if shard is None or shard.count != len(parts):
        raise UsageProblem(f"--shard-parts has {len(parts)} parts: give one of them, --shard 1/{len(parts)}")
    given = Counter(name for part in parts for name in part)
    wrong = sorted({*(n for n, times in given.items() if times > 1), *(set(given) ^ set(units))})
    if wrong:
        raise UsageProblem(f"--shard-parts has to have every unit of the run once: {wrong[0]}")


#: The number of cases that the durations refer to.
USUAL_EXAMPLES = 128


def usual_seconds(overload: str) -> float:
    """Return about how many seconds an operator takes for `USUAL_EXAMPLES` cases of one unit."""
    usual, seconds = _durations()
    return seconds.get(overload, usual)


@cache
def _durations() -> tuple[float, Mapping[str, float]]:
    """Return the usual duration of an operator with 128 cases, in seconds, and the durations of slower ones.

    Only the balance of shards depends on them.
    """
    table = tomllib.loads((cases_directory() / "durations.toml").read_text(encoding="utf-8"))
    return table["usual"], table["seconds"]
