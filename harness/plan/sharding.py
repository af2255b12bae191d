"""One sweep on several machines: which operators fall to which of them.

An operator falls to one shard with all its converters and kinds of shapes, so that what is exported together,
compared with a baseline together and blamed together stays together. Which one follows from the names of the
operators of the whole run alone: not from the machine, its processes or its backends.
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
    """The `index`-th of `count` parts of a run, counted from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read what ``--shard`` takes: ``3/8``.

        Raises:
            ValueError: it is something else; the message is one line that begins with what was given.
        """
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if found is None:
            raise ValueError(f"{text}: not a part of a run: the third of eight is 3/8")
        index, count = map(int, found.groups())
        if not 1 <= index <= count:
            last = f"of {count} the last is {count}/{count}" if count else "there is at least one"
            raise ValueError(f"{text}: shards are counted from 1: {last}")
        return cls(index, count)

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def distribute(overloads: Collection[str], count: int, known: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """The operators of each shard, by name.

    Those with an operator case go, longest first, to the shard that has least to do (R. L. Graham, Bounds on
    Multiprocessing Timing Anomalies, SIAM J. Appl. Math. 17, 1969). An operator that only a corpus knows,
    which need not be the same on all machines, goes where its name says and moves no other.

    Args:
        overloads: Of the whole run.
        count: Of shards.
        known: Overloads with an operator case.
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
    """See that `parts` are a division of a run's units, which are given by their names.

    Raises:
        UsageProblem: they are not; it says why.
    """
    if shard is None or shard.count != len(parts):
        raise UsageProblem(f"--shard-parts has {len(parts)} parts: give one of them, --shard 1/{len(parts)}")
    given = Counter(name for part in parts for name in part)
    wrong = sorted({*(n for n, times in given.items() if times > 1), *(set(given) ^ set(units))})
    if wrong:
        raise UsageProblem(f"--shard-parts has to have every unit of the run once: {wrong[0]}")


#: Cases that durations are given for.
USUAL_EXAMPLES = 128


def usual_seconds(overload: str) -> float:
    """About how long an operator takes with `USUAL_EXAMPLES` cases of one unit."""
    usual, seconds = _durations()
    return seconds.get(overload, usual)


@cache
def _durations() -> tuple[float, Mapping[str, float]]:
    """Seconds that an operator takes with 128 cases: most of them, and by overload those that take longer.

    Only the balance depends on them.
    """
    table = tomllib.loads((cases_directory() / "durations.toml").read_text(encoding="utf-8"))
    return table["usual"], table["seconds"]
