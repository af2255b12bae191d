"""Conditions on failures, as files of known issues and of waivers state them in TOML.

```toml
overload = "aten.avg_pool2d"        # overload, packet or glob, or a list of them; optional, as are all below
converter = "dynamo"
backend = "ort-cpu"
stage = "compare"
outcome = "mismatch"
dtype = ["float32", "float64"]
signature = "values"                # contained in the failure's signature
pattern = "divisor_\\\\w+"           # a regular expression for the signature
message = "expected nan"            # a regular expression for the failure message
call = "divisor_override="          # a regular expression for the call as `conformance show` prints it
place = "optimiser, ScatterAllStatic" # a regular expression for the place of the failure
```
"""

from __future__ import annotations

import datetime
import difflib
import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from harness.causes.rows import Condition
from harness.compare.verdict import Outcome, Stage
from harness.core import overloads as schema
from harness.core.invocation import InvalidInvocation, Invocation
from harness.record.layout import ResultsError, reason

_Entry = TypeVar("_Entry", bound="FailureMatch")


@dataclass(frozen=True, kw_only=True)
class FailureMatch:
    """Conditions on a failure, with the keys described above; an empty one matches everything."""

    overload: tuple[str, ...] = ()
    converter: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    stage: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    signature: str = ""
    pattern: str = ""
    message: str = ""
    call: str = ""
    place: str = ""

    def conditions(self, *, failure: bool) -> Iterator[Condition]:
        """Yield conditions for rows of the entry's kind; with `failure`, for rows that fail as the entry says."""
        yield "overload", self.covers
        for name in (*(("stage", "outcome") if failure else ()), "converter", "backend", "dtype"):
            if getattr(self, name):
                yield name, getattr(self, name).__contains__
        if failure:
            yield "signature", lambda text: self.signature in text
            for name, pattern in (("signature", self.pattern), ("message", self.message), ("place", self.place)):
                if pattern:
                    yield name, re.compile(pattern).search
        if self.call:
            yield "invocation", lambda text: re.search(self.call, call_text(text)) is not None

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a failed row of the record meets the conditions."""
        return all(holds(row[name]) for name, holds in self.conditions(failure=True))

    def covers(self, overload: str) -> bool:
        """Whether the entry applies to an operator."""
        exact, globs = self._names
        names = (overload, schema.packet(overload))
        return not self.overload or any(
            name in exact or any(fnmatch.fnmatchcase(name, glob) for glob in globs) for name in names
        )

    @cached_property
    def _names(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """The literal overloads and packets, and the globs."""
        globs = tuple(name for name in self.overload if set(name) & set("*?["))
        return frozenset(self.overload).difference(globs), globs


def read_entries(path: Path, key: str, kind: type[_Entry]) -> tuple[_Entry, ...]:
    """Return the entries of a TOML file that holds a list of them, in its order.

    Args:
        path: The file.
        key: The name of the list, as in ``[[issue]]``.
        kind: The type of an entry.

    Raises:
        ResultsError: The file cannot be read, or an entry is invalid; the message names both.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {reason(error)}") from None
    entries = data.pop(key, [])
    if data or not isinstance(entries, list):
        wrong = f"unknown key {next(iter(data))!r}" if data else f"`{key}` is not a list"
        raise ResultsError(f"{path}: {wrong}; it holds [[{key}]] entries only")
    return tuple(_entry(path, number, entry, kind) for number, entry in enumerate(entries, start=1))


_LISTS = {"overload", "converter", "backend", "stage", "outcome", "dtype"}
_WORDS = {"stage": [str(s) for s in Stage], "outcome": [str(o) for o in Outcome if o.is_failure]}
_PATTERNS = ("pattern", "message", "call", "place")


def _entry(path: Path, number: int, data: Any, kind: type[_Entry]) -> _Entry:
    def wrong(what: str) -> ResultsError:
        link = f" ({data['link']})" if isinstance(data, dict) and isinstance(data.get("link"), str) else ""
        return ResultsError(f"{path}: entry {number}{link}: {what}")

    if not isinstance(data, dict):
        raise wrong("not a table")
    known = {field.name: field for field in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise wrong(f"unknown key {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        try:
            values[name] = _value(name, value)
        except ValueError as error:
            raise wrong(str(error)) from None
    for name, field in known.items():
        if field.default is MISSING and name not in values:
            raise wrong(f"no {name!r}")
    if not values.get("link", "https://").startswith("https://"):
        raise wrong("'link' must begin with https://")
    if not values.keys() & {"overload", "signature", "pattern", "message", "place"}:
        raise wrong("it would match every failure: state 'overload', 'signature', 'pattern', 'message' or 'place'")
    return kind(**values)


def _value(name: str, value: Any) -> Any:
    """Return a value of an entry as its field has it; raises `ValueError` if it is not what belongs there."""
    if name in _LISTS:
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not words or not all(isinstance(v, str) and v for v in words):
            raise ValueError(f"{name!r} must be a name or a list of names")
        for word in words:
            if word not in _WORDS.get(name, [word]):
                raise ValueError(f"{name} {word!r} is none of {', '.join(_WORDS[name])}")
        return tuple(schema.normalise(word) if name == "overload" else word for word in words)
    if name == "until":
        if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
            raise ValueError("'until' must be a date, as 2027-03-31 without quotes")
        return value
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name!r} must be a text")
    if name in _PATTERNS:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"{name!r} is not a regular expression: {error}") from None
    return value


def call_text(invocation: str) -> str:
    """Return an invocation as a person would write it; unchanged if another version wrote it."""
    try:
        return str(Invocation.from_json(invocation))
    except InvalidInvocation:
        return invocation
