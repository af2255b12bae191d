"""The outcomes of every case of every run, in files of which the page loads those of the two runs it compares.

Cases get places in chunks: a chunk holds those that its run was the first to have. Runs of one seed share
their cases, and a run of another seed brings its own, so that a comparison loads what the two runs have and
no more. Their ids lie in files of their own, of which the page loads those of the cases that it lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.present.dashboard.coded import CodedRun
from harness.present.dashboard.embed import endless
from harness.record.dictionary_encoding import Numbers

#: Length of a case id of this version of the record.
_ID = 12
#: Places of a chunk whose ids are one file.
_BLOCK = 16_384


@dataclass
class CaseIndex:
    """Places of cases, filled run by run."""

    _keys: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    _places: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _starts: list[int] = field(default_factory=list)
    _chunks: list[dict[str, Any]] = field(default_factory=list)
    _ids: list[str | list[str]] = field(default_factory=list)
    _cells: list[tuple[int, tuple[Numbers, ...]]] = field(default_factory=list)
    _runs: int = 0

    def add(self, run: CodedRun, rank: Numbers, flaky: npt.NDArray[np.uint64]) -> dict[str, Any]:
        """Add a run, and return the page's facts about it.

        Args:
            rank: Operators' places on the page.
            flaky: Keys of cases that are known to end in two ways.
        """
        fresh = np.flatnonzero(~np.isin(run.key, self._keys))
        if len(fresh):
            self._open_chunk(run, fresh, rank)
        self._runs += 1
        at = self._places[np.searchsorted(self._keys, run.key)]
        return {"parts": list(self._parts(run, at, np.isin(run.key, flaky)))}

    def marked(self, mark: Callable[..., Numbers]) -> list[list[int]]:
        """Run lengths of 0 and 1 for the cells of each chunk.

        Args:
            mark: Gives them for the run that a chunk is of, and numbers of operator, column, dtype and kind.
        """
        return [_run_lengths(mark(run, *cells)) for run, cells in self._cells]

    def chunks(self) -> list[dict[str, Any]]:
        """Return the page's facts about the cases, chunk by chunk."""
        return self._chunks

    def ids(self) -> Iterator[tuple[str, str | list[str]]]:
        """Return the name of a block of a chunk, and the ids of its cases in the order of their places."""
        for chunk, ids in enumerate(self._ids):
            step = _BLOCK * (_ID if isinstance(ids, str) else 1)
            for start in range(0, len(ids), step):
                yield f"{chunk}-{start // step}", ids[start : start + step]

    def _open_chunk(self, run: CodedRun, fresh: Numbers, rank: Numbers) -> None:
        operator, column, dtype = rank[run.operator[fresh]], run.column[fresh], run.dtype[fresh]
        order = np.lexsort((run.key[fresh], run.kind[fresh], dtype, column, operator))
        fresh = fresh[order]
        start = len(self._keys)
        places = np.arange(start, start + len(fresh))
        keys = np.concatenate([self._keys, run.key[fresh]])
        by_key = np.argsort(keys)
        self._keys, self._places = keys[by_key], np.concatenate([self._places, places])[by_key]
        self._starts.append(start)
        cells = np.stack([operator[order], column[order], dtype[order]], axis=1)
        # Cases of several sources and kinds of shapes are several cells: each may have been asked for or not.
        kind = run.kind[fresh]
        parts = np.column_stack([cells, kind])
        edges = np.flatnonzero(np.any(np.diff(parts, axis=0) != 0, axis=1)) + 1
        firsts = np.concatenate([[0], edges])
        sizes = np.diff(np.concatenate([firsts, [len(cells)]]))
        first = fresh[firsts]
        words = (run.operator[first], run.column[first], run.dtype[first], run.kind[first])
        self._cells.append((self._runs, words))
        ids: list[str] = run.case[fresh].tolist()
        self._ids.append("".join(ids) if all(len(case_id) == _ID for case_id in ids) else ids)
        self._chunks.append(
            {
                "cells": np.column_stack([cells[firsts], sizes]).ravel().tolist(),
                "size": len(fresh),
                "block": _BLOCK,
            }
        )

    def _parts(self, run: CodedRun, at: Numbers, flaky: npt.NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
        ends = [*self._starts, len(self._keys)][1:]
        for chunk, (start, end) in enumerate(zip(self._starts, ends, strict=True)):
            rows = np.flatnonzero((at >= start) & (at < end))
            if not len(rows):
                continue
            states = np.zeros(end - start, dtype=np.int64)
            states[at[rows] - start] = run.state[rows] + 1
            errors = rows[run.ulp[rows] > 0]
            errors = errors[np.argsort(at[errors])]
            places = at[errors] - start
            yield {
                "chunk": chunk,
                "states": _run_lengths(states),
                "at": np.diff(places, prepend=0).tolist(),
                "ulps": list(map(endless, run.ulp[errors].tolist())),
                "flaky": np.sort(at[rows[flaky[rows]]] - start).tolist(),
            }


def _run_lengths(values: Numbers) -> list[int]:
    """Value, how often, value, how often, …"""
    edges = np.flatnonzero(np.diff(values)) + 1
    firsts = np.concatenate([[0], edges])
    lengths = np.diff(np.concatenate([firsts, [len(values)]]))
    found: list[int] = np.column_stack([values[firsts], lengths]).ravel().tolist()
    return found
