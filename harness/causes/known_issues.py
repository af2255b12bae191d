"""Known issues: defects that were already reported upstream, in one TOML file of matches, links and notes.

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
signature = "values"                # contained in the failure's signature
pattern = "divisor_\\\\w+"           # a regular expression, optional
message = "expected nan"            # a regular expression for the failure message
call = "divisor_override="          # a regular expression for the call as `conformance show` prints it
place = "optimiser, ScatterAllStatic" # a regular expression for the place of the failure
```

An entry matches a failure if all of its conditions hold and the link's repository may be responsible for the blamed
component: an exporter's issue does not explain a runtime's defect.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.rows import CodedRows, Condition
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, SPEC, UNKNOWN, Outcome, Stage
from harness.core import overloads as schema
from harness.core.invocation import InvalidInvocation, Invocation
from harness.generate.cases_home import CaseFileError, cases_directory
from harness.record import store
from harness.record.layout import ResultsError, reason

FILE = "known_issues.toml"
#: The columns that `no_longer_failing` reads.
COLUMNS = (
    *("case_id", "overload", "dtype", "converter", "backend", "blame", "component", "place"),
    *("stage", "outcome", "signature", "message", "invocation"),
)


@dataclass(frozen=True, kw_only=True)
class KnownIssue:
    """One entry, with the keys described above; an empty condition matches everything."""

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
    place: str = ""

    def conditions(self, *, failure: bool) -> Iterator[Condition]:
        """Yield conditions for rows of the entry's kind; with `failure`, for rows that fail as the entry says."""
        yield "overload", self.covers
        for name in (*(("stage", "outcome") if failure else ()), "converter", "backend", "dtype"):
            if getattr(self, name):
                yield name, getattr(self, name).__contains__
        if failure:
            yield "blame", self.blames.__contains__
            yield "signature", lambda text: self.signature in text
            for name, pattern in (("signature", self.pattern), ("message", self.message), ("place", self.place)):
                if pattern:
                    yield name, re.compile(pattern).search
        if self.call:
            yield "invocation", lambda text: re.search(self.call, call(text)) is not None

    @cached_property
    def blames(self) -> frozenset[str]:
        """The blames that the entry may explain, including none, an unknown one and the specification."""
        repository = "/".join(self.link.split("/")[3:5]).lower()
        return frozenset({"", UNKNOWN, SPEC, *_BLAMES.get(repository, {BACKEND})})

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a failed row of the record is this defect."""
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

    def to_data(self) -> dict[str, str]:
        """Return plain JSON data."""
        return {"link": self.link, "note": self.note}


#: Repository → blames of the issues that are reported there; all other repositories belong to runtimes.
_BLAMES = {
    "pytorch/pytorch": {CONVERTER, PYTORCH},
    "microsoft/onnxscript": {CONVERTER},
}


def shipped_file() -> Path | None:
    """Return the path of ``cases/known_issues.toml`` without importing the operator cases; None if it is missing."""
    try:
        path = cases_directory() / FILE
    except CaseFileError:
        return None
    return path if path.is_file() else None


def read_known_issues(path: Path | None = None) -> tuple[KnownIssue, ...]:
    """Return the entries of a file, in its order.

    Args:
        path: The file; None means the one that comes with the operator cases.

    Raises:
        ResultsError: The file cannot be read, or an entry is invalid; the message names both.
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
        wrong = f"unknown key {next(iter(data))!r}" if data else "`issue` is not a list"
        raise ResultsError(f"{path}: {wrong}; it holds [[issue]] entries only")
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries, start=1))


@dataclass(frozen=True)
class NoLongerFailing:
    """An entry that a run contradicts: cases of its kind passed, and none failed as it says."""

    issue: KnownIssue
    passed: int

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {**self.issue.to_data(), "passed": self.passed}


def no_longer_failing(known: Sequence[KnownIssue], verdicts: pa.Table) -> list[NoLongerFailing]:
    """Return the entries of which a run has passing cases and no case that fails as they say.

    Entries that name no operator are skipped, since a run may cover only some operators.

    Args:
        verdicts: All rows of a run, or those that `rows_about` reads.
    """
    rows = CodedRows(verdicts.select(COLUMNS))
    overloads = rows.words("overload").to_pylist()
    gone = []
    for issue in known:
        if not issue.overload or not any(map(issue.covers, overloads)):
            continue
        if any(True for _ in rows.matching([_FAILED, *issue.conditions(failure=True)])):
            continue
        passed = list(rows.matching([_PASSED, *issue.conditions(failure=False)]))
        if passed:
            gone.append(NoLongerFailing(issue, len(np.unique(rows.numbers("case_id")[passed]))))
    return gone


_FAILED: Condition = ("outcome", lambda word: Outcome(word).is_failure)
_PASSED: Condition = ("outcome", lambda word: word == Outcome.PASS)


def rows_about(known: Sequence[KnownIssue], run: Path) -> pa.Table:
    """Return the rows of a run that `no_longer_failing` needs, usually a small part of it.

    Raises:
        ResultsError: The run cannot be read.
    """
    overloads = store.distinct_values(run, "overload")
    names = [name for name in overloads if any(i.overload and i.covers(name) for i in known)]
    return store.read(run, COLUMNS, pc.field("overload").isin(pa.array(names, pa.string())), encoded=True)


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
    if not values.keys() & {"overload", "signature", "pattern", "message", "place"}:
        raise wrong("it would match every failure: state 'overload', 'signature', 'pattern', 'message' or 'place'")
    for name in ("pattern", "message", "call", "place"):
        try:
            re.compile(values.get(name, ""))
        except re.error as error:
            raise wrong(f"{name!r} is not a regular expression: {error}") from None
    return KnownIssue(**values)


def call(invocation: str) -> str:
    """Return an invocation as a person would write it; unchanged if another version wrote it."""
    try:
        return str(Invocation.from_json(invocation))
    except InvalidInvocation:
        return invocation
