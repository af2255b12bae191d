"""Small changes after which all failing cases pass, and no passing case fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

from harness.analyse.places.applied_edit import CannotApply, Holders, applied_edit, holders
from harness.analyse.places.edits import Edit, edits
from harness.analyse.places.observed_case import Bench
from harness.analyse.places.source_code import SourceCode, Statement
from harness.compare import Outcome
from harness.core import Invocation


@dataclass(frozen=True)
class Limits:
    """How much is tried.

    Attributes:
        tries: Changes.
        seconds: For all of them.
        enough: Repairs after which the search ends.
    """

    tries: int = 200
    seconds: float = 20.0
    enough: int = 1


def repairs(
    statements: Sequence[Statement],
    failing: Sequence[Invocation],
    passing: Sequence[Invocation],
    bench: Bench,
    source: SourceCode,
    codes: Collection[CodeType],
    limits: Limits,
) -> Iterator[Edit]:
    """Changes of the statements, tried in their order, that repair all failing cases and break no other."""
    known = holders(codes)
    begun, tried, found = time.monotonic(), 0, 0
    for statement in statements:
        for edit in edits(statement, source):
            if tried >= limits.tries or time.monotonic() - begun > limits.seconds or found >= limits.enough:
                return
            tried += 1
            if _repairs(edit, failing, passing, bench, source, known):
                found += 1
                yield edit


def _repairs(
    edit: Edit,
    failing: Sequence[Invocation],
    passing: Sequence[Invocation],
    bench: Bench,
    source: SourceCode,
    known: Holders,
) -> bool:
    changed = edit.function(source)
    if changed is None:
        return False
    with contextlib.suppress(CannotApply), applied_edit(edit.statement.file, changed, known):
        return all(bench.outcome(call)[1] is Outcome.PASS for call in (*failing, *passing))
    return False
