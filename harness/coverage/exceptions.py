"""Exceptions: points that PyTorch accepts and that need not be drawn, with reasons."""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.generate.cases_home import cases_directory


class BadExceptions(Exception):
    """A file of exceptions is invalid; the message says where and why."""


@dataclass(frozen=True)
class Excuse:
    """One exception.

    Attributes:
        overloads: Globs of overloads.
        points: Globs of names of points.
        reason: Why these points need not be drawn.
    """

    overloads: tuple[str, ...]
    points: tuple[str, ...]
    reason: str

    def concerns(self, overload: str) -> bool:
        """Whether it applies to an operator."""
        return any(fnmatch.fnmatchcase(overload, glob) for glob in self.overloads)

    def covers(self, point: str) -> bool:
        """Whether it excuses a point of an operator that it applies to."""
        return any(fnmatch.fnmatchcase(point, glob) for glob in self.points)


@cache
def excuses() -> tuple[Excuse, ...]:
    """Return the exceptions in `cases/unreachable.toml`."""
    return read(cases_directory() / "unreachable.toml")


def read(path: Path) -> tuple[Excuse, ...]:
    """Return the exceptions in a file.

    Raises:
        BadExceptions: The file is invalid, or an exception has no reason.
    """
    try:
        entries: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("unreachable", [])
        exceptions = tuple(Excuse(tuple(e["overloads"]), tuple(e["points"]), str(e["reason"]).strip()) for e in entries)
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise BadExceptions(f"{path.name}: {error}: an entry has overloads, points and a reason") from None
    for entry in exceptions:
        if not entry.reason:
            raise BadExceptions(f"{path.name}: {', '.join(entry.overloads)}: no reason is given")
    return exceptions
