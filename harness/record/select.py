"""The rows of a run that a person asks for by name."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.core import overloads as schema
from harness.record import store
from harness.record.layout import ResultsError


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Names to keep, column by column of the record; an empty column keeps everything.

    Overloads, packets or globs of them, as after ``--op``; names or globs of the others.
    """

    overload: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    converter: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    blame: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    stage: tuple[str, ...] = ()

    def read(self, results_dir: Path, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
        """The rows of a run that are selected.

        Args:
            where: A further condition.

        Raises:
            ResultsError: the run cannot be read, or holds nothing under a name that was asked for; near
                ones are named.
        """
        for name, wanted in vars(self).items():
            if not wanted:
                continue
            known = sorted(set(store.read(results_dir, [name])[name].to_pylist()) - {""})
            chosen = [value for word in wanted for value in _named(results_dir, name, word, known)]
            condition = pc.field(name).isin(chosen)
            where = condition if where is None else where & condition
        return store.read(results_dir, columns, where)


def _named(results_dir: Path, column: str, word: str, known: Sequence[str]) -> list[str]:
    # These are checked where they are typed: that a run has none is an answer.
    if column in ("blame", "outcome", "stage"):
        return [word]
    if column == "overload":
        dotted = schema.normalise(word)
        found = [
            name
            for name in known
            if fnmatch.fnmatchcase(name, dotted) or fnmatch.fnmatchcase(schema.packet(name), dotted)
        ]
        near = schema.near_names(dotted, known)
    else:
        found = [name for name in known if fnmatch.fnmatchcase(name, word)]
        near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if found:
        return found
    option = "op" if column == "overload" else column
    few = f"; it has {', '.join(known)}" if len(known) <= 12 else ""
    hint = f"; near: {', '.join(near)}" if near else few
    raise ResultsError(f"{results_dir} has no case of --{option} {word}{hint}")
