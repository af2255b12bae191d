"""Counts of cases: per cell of the matrix, per operator and column, per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.compare.verdict import Outcome
from harness.coverage.seen_pairs import SeenPairs
from harness.present.dashboard.coded import Bucket, CodedRun
from harness.record.dictionary_encoding import Numbers

#: The status of an operator, or of one of its cells. Only `WHOLE` is a pass.
WHOLE, PART, NONE, UNJUDGED, MISSING = "whole", "part", "none", "unjudged", "missing"
STANDINGS = (WHOLE, PART, NONE, UNJUDGED, MISSING)


@dataclass(frozen=True)
class Tallies:
    """One number per (operator, column) pair that has rows.

    Attributes:
        total: Cases that passed or failed.
        failures: Cases that are failures of a component.
    """

    operator: Numbers
    column: Numbers
    passes: Numbers
    total: Numbers
    failures: Numbers

    @property
    def standing(self) -> Numbers:
        """Numbers of `STANDINGS`."""
        whole = (self.passes > 0) & (self.passes == self.total)
        unjudged = (self.passes == 0) & (self.failures == 0)
        none = (self.passes == 0) & (self.failures > 0)
        return np.select([whole, unjudged, none], [0, 3, 2], default=1)


def tallies(run: CodedRun, buckets: Sequence[Bucket]) -> Tallies:
    """Count a run's cases by operator and column."""
    columns = int(run.column.max()) + 1 if len(run) else 1
    pairs, inverse = np.unique(run.operator * columns + run.column, return_inverse=True)
    judged = np.array([b.judged for b in buckets], dtype=np.int64)[run.bucket]
    passed = np.array([b.outcome == Outcome.PASS for b in buckets], dtype=np.int64)[run.bucket]
    failed = np.array([b.fails for b in buckets], dtype=np.int64)[run.bucket]

    def summed(values: Numbers) -> Numbers:
        return np.bincount(inverse, weights=values, minlength=len(pairs)).astype(np.int64)

    return Tallies(pairs // columns, pairs % columns, summed(passed), summed(judged), summed(failed))


def ordinary_tallies(run: CodedRun, buckets: Sequence[Bucket]) -> Tallies:
    """Count a run's ordinary cases by operator and column."""
    ordinary = np.array([b.ordinary for b in buckets], dtype=bool)[run.bucket]
    return tallies(run.only(ordinary), buckets)


def matrix_data(
    run: CodedRun, rank: Numbers, missing: Sequence[int], seen: Mapping[int, SeenPairs] | None = None
) -> dict[str, Any]:
    """Return the matrix of one run for the page.

    Args:
        rank: Operator's number → its place in the page's list.
        missing: Places of operators that the run has lost.
        seen: Place of an operator → pairs of conditions that its cases have.

    Returns:
        ``cells``: operator, column, dtype, number of pairs, then pairs of bucket and count; and so on.
        ``missing``: operators whose results are unknown, since the run has lost them.
        ``pairs``: operator and text about its pairs, in turn.
    """
    sizes = [int(values.max()) + 1 if len(run) else 1 for values in (run.column, run.dtype, run.bucket)]
    packed = ((rank[run.operator] * sizes[0] + run.column) * sizes[1] + run.dtype) * sizes[2] + run.bucket
    values, counts = np.unique(packed, return_counts=True)
    cell, bucket = values // sizes[2], values % sizes[2]
    flat: list[int] = []
    firsts = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.append(firsts, len(cell))[1:]
    pairs = np.column_stack([bucket, counts]).ravel().tolist()
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        place = int(cell[first])
        rest, dtype = divmod(place, sizes[1])
        operator, column = divmod(rest, sizes[0])
        flat += [operator, column, dtype, end - first, *pairs[2 * first : 2 * end]]
    pairs = [word for place, share in (seen or {}).items() if share.possible for word in (place, str(share))]
    return {"cells": flat, "missing": sorted(missing), "pairs": pairs}


@dataclass(frozen=True, kw_only=True)
class ColumnCounts:
    """Counts of the operators and cases of one column.

    Attributes:
        standings: Operators in each of `STANDINGS`.
        passed: Cases that passed, of `total` that could have.
        ordinary_standings: Operators in each of `STANDINGS` by their ordinary cases alone, if they have any.
        ordinary_passed: Ordinary cases that passed, of `ordinary_total` that could have.
    """

    standings: tuple[int, ...]
    passed: int
    total: int
    ordinary_standings: tuple[int, ...]
    ordinary_passed: int
    ordinary_total: int

    def to_data(self) -> list[int]:
        """Return the numbers in this order for the page."""
        return [
            *(*self.standings, self.passed, self.total),
            *(*self.ordinary_standings, self.ordinary_passed, self.ordinary_total),
        ]


def column_counts(found: Tallies, ordinary: Tallies, columns: Sequence[int], missing: int) -> list[ColumnCounts]:
    """Return the counts of some columns of a run that has lost `missing` operators.

    Args:
        found: Tallies of all cases.
        ordinary: Tallies of the ordinary cases.
    """
    table = []
    for column in columns:
        parts = []
        for which in (found, ordinary):
            mine = which.column == column
            standing = which.standing[mine]
            counts = [int(np.sum(standing == number)) for number in range(len(STANDINGS))]
            counts[STANDINGS.index(MISSING)] = missing
            parts.append((tuple(counts), int(which.passes[mine].sum()), int(which.total[mine].sum())))
        (standings, passed, total), (usual, usual_passed, usual_total) = parts
        table.append(
            ColumnCounts(
                standings=standings,
                passed=passed,
                total=total,
                ordinary_standings=usual,
                ordinary_passed=usual_passed,
                ordinary_total=usual_total,
            )
        )
    return table
