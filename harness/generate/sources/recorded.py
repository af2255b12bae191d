"""The cases of a recorded run, in place of every other source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow.compute as pc

from harness.core.invocation import InvalidInvocation, Invocation
from harness.generate.sources.source import Request, SourceFinding, grouped
from harness.record import store
from harness.record.layout import ResultsError


@dataclass(frozen=True)
class Replayed:
    """A recorded case, or a form of it that shrinking tries.

    Attributes:
        invocation: The invocation to run.
        exported: The invocation to export, if a dynamic export is run at other sizes; None for a static one.
    """

    invocation: Invocation
    exported: Invocation | None = None

    @classmethod
    def from_row(cls, invocation: str, exported_invocation: str) -> Replayed:
        """Return the case of two columns of the record."""
        exported = Invocation.from_json(exported_invocation) if exported_invocation else None
        return cls(Invocation.from_json(invocation), exported)

    @cached_property
    def key(self) -> tuple[str, str]:
        """Its identity, as a verdict has it."""
        return self.invocation.json, "" if self.exported is None else self.exported.json

    def changed(self, change: Callable[[Invocation], Invocation | None]) -> Replayed | None:
        """Return the case with both invocations changed in the same way; None if one of them cannot be."""
        other = self.change_run_invocation(change)
        if other is None or self.exported is None:
            return other
        exported = change(self.exported)
        return None if exported is None else Replayed(other.invocation, exported)

    def change_run_invocation(self, change: Callable[[Invocation], Invocation | None]) -> Replayed | None:
        """Return the case with the invocation that is run changed; values take no part in an export."""
        invocation = change(self.invocation)
        return None if invocation is None else Replayed(invocation, self.exported)


def read_replay(results_dir: Path, wanted: Sequence[str] = ()) -> tuple[Replayed, ...]:
    """Return the cases of a recorded run, each once per export.

    Args:
        results_dir: The run.
        wanted: Case ids or unambiguous beginnings; empty for all.

    Raises:
        ResultsError: no such run or case, or the record is damaged.
    """
    # Whole ids in one go: there may be thousands.
    whole = set(store.distinct_values(results_dir, "case_id", pc.field("case_id").isin(wanted))) if wanted else ()
    ids = [case if case in whole else store.resolve_case(results_dir, case) for case in wanted]
    where = pc.field("case_id").isin(ids) if ids else None
    rows = store.read(results_dir, ["case_id", "invocation", "exported_invocation"], where)
    found: dict[tuple[str, str], Replayed] = {}
    for row in rows.to_pylist():
        key = row["case_id"], row["exported_invocation"]
        if key not in found:
            try:
                exported = Invocation.from_json(key[1]) if key[1] else None
                found[key] = Replayed(Invocation.from_json(row["invocation"]), exported)
            except InvalidInvocation as error:
                raise ResultsError(f"{results_dir}: case {key[0]} cannot be read: {error}") from None
    return tuple(found.values())


@dataclass(frozen=True)
class FromRecord:
    """Replays given cases, whatever is requested."""

    replayed: tuple[Replayed, ...]
    name = "replay"

    @classmethod
    def of_calls(cls, calls: Iterable[Invocation]) -> FromRecord:
        """Return the source of some calls that are exported as they are."""
        return cls(tuple(Replayed(call, None) for call in calls))

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return {recorded.invocation.overload for recorded in self.replayed}

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        return SourceFinding(grouped([(r.invocation, r.exported) for r in self.replayed]))
