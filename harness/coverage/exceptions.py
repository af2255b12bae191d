"""The exceptions: points that PyTorch takes and that are not drawn, with the reason of each."""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.generate.cases_home import cases_directory


class BadExceptions(Exception):
    """A file of exceptions that cannot be read; the message says what is wrong and where."""


@dataclass(frozen=True)
class Excuse:
    """One entry.

    Attributes:
        overloads: Globs of dotted names.
        points: Globs of names of points that are not drawn.
        reason: Why.
    """

    overloads: tuple[str, ...]
    points: tuple[str, ...]
    reason: str

    def concerns(self, overload: str) -> bool:
        """Whether it excuses points of that operator."""
        return any(fnmatch.fnmatchcase(overload, glob) for glob in self.overloads)

    def covers(self, point: str) -> bool:
        """Whether it excuses that point, of the operators that it concerns."""
        return any(fnmatch.fnmatchcase(point, glob) for glob in self.points)


@cache
def excuses() -> tuple[Excuse, ...]:
    """Those of `cases/unreachable.toml`."""
    return read(cases_directory() / "unreachable.toml")


def read(path: Path) -> tuple[Excuse, ...]:
    """The entries of a file.

    Raises:
        BadExceptions: it is no such file, or an entry has no reason.
    """
    try:
        entries: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("unreachable", [])
        found = tuple(Excuse(tuple(e["overloads"]), tuple(e["points"]), str(e["reason"]).strip()) for e in entries)
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise BadExceptions(f"{path.name}: {error}: an entry has overloads, points and a reason") from None
    for entry in found:
        if not entry.reason:
            raise BadExceptions(f"{path.name}: {', '.join(entry.overloads)}: no reason is given")
    return found
