"""Known issues: defects that were already reported upstream, in one TOML file of matches, links and notes.

```toml
[[issue]]
link = "https://github.com/pytorch/pytorch/issues/1"
note = "avg_pool2d ignores divisor_override."
overload = "aten.avg_pool2d"        # and the other conditions of `harness.causes.failure_match`
```

An entry matches a failure if all of its conditions hold and the link's repository may be responsible for the blamed
component: an exporter's issue does not explain a runtime's defect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.failure_match import FailureMatch, read_entries
from harness.causes.rows import CodedRows, Condition
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, SPEC, UNKNOWN, Outcome
from harness.generate.cases_home import CaseFileError, cases_directory
from harness.record import store

FILE = "known_issues.toml"
#: The columns that `no_longer_failing` reads.
COLUMNS = (
    *("case_id", "overload", "dtype", "converter", "backend", "blame", "component", "place"),
    *("stage", "outcome", "signature", "message", "invocation"),
)


@dataclass(frozen=True, kw_only=True)
class KnownIssue(FailureMatch):
    """One entry."""

    link: str
    note: str

    def conditions(self, *, failure: bool) -> Iterator[Condition]:
        """Yield conditions for rows of the entry's kind; with `failure`, for rows that fail as the entry says."""
        yield from super().conditions(failure=failure)
        if failure:
            yield "blame", self.blames.__contains__

    @cached_property
    def blames(self) -> frozenset[str]:
        """The blames that the entry may explain, including none, an unknown one and the specification."""
        repository = "/".join(self.link.split("/")[3:5]).lower()
        return frozenset({"", UNKNOWN, SPEC, *_BLAMES.get(repository, {BACKEND})})

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
    return () if path is None else read_entries(path, "issue", KnownIssue)


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
