"""Waivers: expected failures with a reason and an end, in one TOML file.

```toml
[[waiver]]
overload = "aten.celu*"             # and the other conditions of `harness.causes.failure_match`
dtype = "float16"
reason = "Celu has no float16 kernel yet."
link = "https://github.com/microsoft/onnxruntime/issues/1"   # optional
until = 2027-03-31                  # optional: from the next day on, its failures count again
```

A case that fails as a waiver says does not count as a failure, and opens no gate that was closed for another reason.
What expects more than it needs is reported: a waiver that has expired, and one that no failure of a run met.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.causes.failure_match import FailureMatch, read_entries
from harness.causes.rows import CodedRows, Condition
from harness.compare.verdict import SPEC, Outcome, Verdict

#: The columns that waivers look at.
COLUMNS = (
    *("overload", "converter", "backend", "dtype", "stage", "outcome", "blame", "signature", "message", "place"),
    "invocation",
)
_FAILED: Condition = ("outcome", lambda word: Outcome(word).is_failure)
_NOT_OPEN: Condition = ("blame", lambda word: word != SPEC)


@dataclass(frozen=True, kw_only=True)
class Waiver(FailureMatch):
    """One entry.

    Attributes:
        reason: Why the failure is expected.
        link: A report of it; "" for none.
        until: The last day on which it holds; None for no end.
    """

    reason: str
    link: str = ""
    until: datetime.date | None = None


@dataclass(frozen=True)
class WaiverUse:
    """One waiver in one run.

    Attributes:
        waiver: The waiver.
        cases: Number of failing cases that met it.
        is_expired: Whether its last day is over, so that these count.
        could_be_met: Whether the run has an operator that it covers.
    """

    waiver: Waiver
    cases: int
    is_expired: bool
    could_be_met: bool

    @property
    def is_unused(self) -> bool:
        """Whether no failure met it although its operators ran."""
        return self.could_be_met and not self.cases


@dataclass(frozen=True)
class Waivers:
    """The waivers of a file on a day.

    Attributes:
        entries: All waivers, in the order of the file.
        today: The day.
    """

    entries: tuple[Waiver, ...] = ()
    today: datetime.date = datetime.date.min

    @classmethod
    def read(cls, path: Path | None, today: datetime.date | None = None) -> Waivers:
        """Return the waivers of a file; none without a file.

        Raises:
            ResultsError: The file cannot be read, or an entry is invalid.
        """
        entries = read_entries(path, "waiver", Waiver) if path is not None else ()
        return cls(entries, today or datetime.date.today())

    def is_expired(self, waiver: Waiver) -> bool:
        """Whether a waiver's last day is over."""
        return waiver.until is not None and waiver.until < self.today

    def meeting(self, verdict: Verdict) -> int | None:
        """Return the number of the first waiver that a failing case meets, expired ones last; None for none."""
        if not verdict.outcome.is_failure or verdict.is_open:
            return None
        row = vars(verdict)
        return next((number for number in self._order if self.entries[number].matches(row)), None)

    @cached_property
    def _order(self) -> list[int]:
        """The numbers of the waivers, expired ones last."""
        return sorted(range(len(self.entries)), key=lambda number: self.is_expired(self.entries[number]))

    def holds(self, number: int | None) -> bool:
        """Whether the waiver of a number, as from `meeting`, excuses the cases that meet it; False for None."""
        return number is not None and not self.is_expired(self.entries[number])

    def excuses(self, verdict: Verdict) -> bool:
        """Whether a failing case meets a waiver that holds."""
        return self.holds(self.meeting(verdict))

    def uses(self, cases: Mapping[int, int], overloads: Iterable[str]) -> list[WaiverUse]:
        """Return the use of each waiver in a run.

        Args:
            cases: Number of a waiver → the failing cases that met it.
            overloads: The operators that ran.
        """
        names = set(overloads)
        return [
            WaiverUse(waiver, cases.get(number, 0), self.is_expired(waiver), any(map(waiver.covers, names)))
            for number, waiver in enumerate(self.entries)
        ]

    def met_rows(self, rows: pa.Table) -> tuple[npt.NDArray[np.bool_], list[WaiverUse]]:
        """Return which rows of a record are excused, and the use of each waiver.

        Args:
            rows: Rows with `COLUMNS`.
        """
        coded = CodedRows(rows.select(COLUMNS))
        excused, met = np.zeros(len(coded), bool), np.zeros(len(coded), bool)
        cases = Counter[int]()
        for number in self._order:
            waiver = self.entries[number]
            conditions = [_FAILED, _NOT_OPEN, *waiver.conditions(failure=True)]
            places = [place for place in coded.matching(conditions) if not met[place]]
            met[places] = True
            cases[number] += len(places)
            excused[places] = not self.is_expired(waiver)
        return excused, self.uses(cases, coded.words("overload").to_pylist())

    def excuse_rows(self, rows: pa.Table) -> tuple[pa.Table, list[WaiverUse]]:
        """Return rows in which an excused failure counts as one that the specification leaves open."""
        excused, uses = self.met_rows(rows)
        place = rows.schema.get_field_index("blame")
        blames = rows["blame"].cast(pa.string()).to_numpy(zero_copy_only=False).astype(object)
        blames[excused] = SPEC
        column = pa.array(blames, pa.string()).cast(rows.schema.field("blame").type)
        return rows.set_column(place, rows.schema.field("blame"), column), uses


#: No waivers.
NO_WAIVERS = Waivers()


def mark_open(verdict: Verdict) -> Verdict:
    """Return a failing verdict that counts as one that the specification leaves open."""
    return replace(verdict, blame=SPEC)
