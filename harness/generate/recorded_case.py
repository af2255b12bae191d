"""Recorded cases to run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from harness.core import InvalidInvocation, Invocation
from harness.record import ResultsError, store


@dataclass(frozen=True)
class Replayed:
    """A recorded case.

    Attributes:
        invocation: What was run.
        exported: What was exported, where a dynamic export was run at other sizes; None for a static one.
    """

    invocation: Invocation
    exported: Invocation | None


def read_replay(results_dir: Path, wanted: Sequence[str] = ()) -> tuple[Replayed, ...]:
    """The cases of a recorded run, each once per export.

    Args:
        results_dir: The run.
        wanted: Case ids or unambiguous beginnings; empty for all.

    Raises:
        ResultsError: no such run or case, or the record is damaged.
    """
    where = None
    if wanted:
        ids = [store.resolve_case(results_dir, case) for case in wanted]
        where = pc.field("case_id").isin(ids)
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
