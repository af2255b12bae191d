"""Defects that are already reported upstream: one TOML file of matches, links and notes.

```toml
[[issue]]
link = "https://github.com/pytorch/pytorch/issues/1"
note = "avg_pool2d ignores divisor_override."
overload = "aten.avg_pool2d"        # overload, packet or glob, or a list of them
converter = "dynamo"                # optional, as are all below
backend = "ort-cpu"                 # optional
stage = "compare"
outcome = "mismatch"
dtype = ["float32", "float64"]
signature = "values"                # found in the failure's signature
pattern = "divisor_\\\\w+"           # a regular expression, optional
message = "expected nan"            # a regular expression, found in the failure's own words
call = "divisor_override="          # a regular expression, found in the call as `conformance show` prints it
```

An entry matches a failure where everything that it states holds.
"""

from __future__ import annotations

import difflib
import fnmatch
import importlib.util
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.text import Text

from harness.compare import Outcome, Stage
from harness.core import InvalidInvocation, Invocation, count, listed, overloads as schema, plain
from harness.record import ResultsError, reason

FILE = "known_issues.toml"
#: What `no_longer_failing` looks at.
COLUMNS = (
    *("case_id", "overload", "dtype", "converter", "backend"),
    *("stage", "outcome", "signature", "message", "invocation"),
)


@dataclass(frozen=True, kw_only=True)
class KnownIssue:
    """One entry, as the module's text explains it; what is empty matches everything."""

    link: str
    note: str
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

    def exercised_by(self, row: Mapping[str, Any]) -> bool:
        """Whether a case is of the kind that the entry speaks of, however it ended."""
        return (
            self.covers(row["overload"])
            and all(
                not getattr(self, name) or row[name] in getattr(self, name)
                for name in ("converter", "backend", "dtype")
            )
            and (not self.call or re.search(self.call, call(row["invocation"])) is not None)
        )

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a failed row of the record is this defect."""
        return (
            (not self.stage or row["stage"] in self.stage)
            and (not self.outcome or row["outcome"] in self.outcome)
            and self.signature in row["signature"]
            and (not self.pattern or re.search(self.pattern, row["signature"]) is not None)
            and (not self.message or re.search(self.message, row["message"]) is not None)
            and self.exercised_by(row)
        )

    def covers(self, overload: str) -> bool:
        """Whether the entry speaks of an operator."""
        names = (overload, schema.packet(overload))
        return not self.overload or any(
            fnmatch.fnmatchcase(name, glob) for glob in self.overload for name in names
        )

    def to_data(self) -> dict[str, str]:
        """Plain JSON data."""
        return {"link": self.link, "note": self.note}


def shipped_file() -> Path | None:
    """``cases/known_issues.toml``, found without importing the operator cases; None where it is missing."""
    found = importlib.util.find_spec("cases")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name(FILE)
    return path if path.is_file() else None


def read_known_issues(path: Path | None = None) -> tuple[KnownIssue, ...]:
    """The entries of a file, in its order.

    Args:
        path: None for the file that comes with the operator cases.

    Raises:
        ResultsError: the file cannot be read, or an entry is wrong; the message names both.
    """
    path = path or shipped_file()
    if path is None:
        return ()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {reason(error)}") from None
    entries = data.pop("issue", [])
    if data or not isinstance(entries, list):
        wrong = f"unknown key {next(iter(data))!r}" if data else "`issue` is no list"
        raise ResultsError(f"{path}: {wrong}; it holds [[issue]] entries only")
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries, start=1))


@dataclass(frozen=True)
class NoLongerFailing:
    """An entry that a run speaks against: so many cases of its kind passed, and none failed as it says."""

    issue: KnownIssue
    passed: int

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**self.issue.to_data(), "passed": self.passed}


def no_longer_failing(known: Sequence[KnownIssue], verdicts: pa.Table) -> list[NoLongerFailing]:
    """Entries whose operators ran, of whose kind cases passed, and none failed as they say.

    Of an entry that names no operator a run of some operators says nothing. `verdicts` are all of a run.
    """
    if not known:
        return []
    ended = verdicts.select(COLUMNS)
    ended = ended.filter(pc.not_equal(ended["outcome"], str(Outcome.SKIP)))
    overloads = ended["overload"].unique().to_pylist()
    gone = []
    for issue in known:
        theirs = [name for name in overloads if issue.overload and issue.covers(name)]
        if not theirs:
            continue
        rows = ended.filter(pc.is_in(ended["overload"], pa.array(theirs, pa.string()))).to_pylist()
        if any(issue.matches(row) for row in rows if Outcome(row["outcome"]).is_failure):
            continue
        passed = {
            row["case_id"] for row in rows if row["outcome"] == Outcome.PASS and issue.exercised_by(row)
        }
        if passed:
            gone.append(NoLongerFailing(issue, len(passed)))
    return gone


_LISTS = {"overload", "converter", "backend", "stage", "outcome", "dtype"}
_WORDS = {"stage": [str(s) for s in Stage], "outcome": [str(o) for o in Outcome if o.is_failure]}


def _entry(path: Path, number: int, data: Any) -> KnownIssue:
    def wrong(what: str) -> ResultsError:
        link = f" ({data['link']})" if isinstance(data, dict) and isinstance(data.get("link"), str) else ""
        return ResultsError(f"{path}: entry {number}{link}: {what}")

    if not isinstance(data, dict):
        raise wrong("not a table")
    names = [f.name for f in fields(KnownIssue)]
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            raise wrong(f"unknown key {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        if name in _LISTS:
            value = [value] if isinstance(value, str) else value
            if not isinstance(value, list) or not value or not all(isinstance(v, str) and v for v in value):
                raise wrong(f"{name!r} must be a name or a list of names")
            for word in value:
                if word not in _WORDS.get(name, [word]):
                    raise wrong(f"{name} {word!r} is none of {', '.join(_WORDS[name])}")
            value = tuple(schema.normalise(word) if name == "overload" else word for word in value)
        elif not isinstance(value, str) or not value:
            raise wrong(f"{name!r} must be a text")
        values[name] = value
    for name in ("link", "note"):
        if name not in values:
            raise wrong(f"no {name!r}")
    if not values["link"].startswith("https://"):
        raise wrong("'link' must begin with https://")
    if not values.keys() & {"overload", "signature", "pattern", "message"}:
        raise wrong("it would match every failure: state 'overload', 'signature', 'pattern' or 'message'")
    for name in ("pattern", "message", "call"):
        try:
            re.compile(values.get(name, ""))
        except re.error as error:
            raise wrong(f"{name!r} is no regular expression: {error}") from None
    return KnownIssue(**values)


def call(invocation: str) -> str:
    """An invocation's JSON as a person would write the call; itself where it is of another version."""
    try:
        return str(Invocation.from_json(invocation))
    except InvalidInvocation:
        return invocation


def render(gone: Sequence[NoLongerFailing]) -> RenderableType:
    """The entries that no longer fail, for a terminal."""
    lines = [Text("Listed as known, and no longer failing:", style="bold green")]
    for one in gone:
        passed = f"{plain(listed(one.issue.overload, 3))}: {count(one.passed, 'case')} of the kind passed"
        lines += [Text(f"  {passed}. {plain(one.issue.note)}"), Text(f"    {plain(one.issue.link)}")]
    return Group(*lines)
