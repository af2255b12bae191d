"""Counts of cases: per cell of the matrix, per operator and column, per column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from harness.compare import Outcome
from harness.present.dashboard.coded import Bucket, CodedRun
from harness.record import Numbers

#: How an operator, or one of its cells, stands. Only `WHOLE` is a pass.
WHOLE, PART, NONE, UNJUDGED, MISSING = "whole", "part", "none", "unjudged", "missing"
STANDINGS = (WHOLE, PART, NONE, UNJUDGED, MISSING)


@dataclass(frozen=True)
class Tallies:
    """One number per (operator, column) pair that has rows.

    Attributes:
        total: Cases that could have passed: all but those that PyTorch rejects.
        failures: Cases that are somebody's failure.
        ordinary_passes: Ordinary cases that passed, of `ordinary_total` that could have.
    """

    operator: Numbers
    column: Numbers
    passes: Numbers
    total: Numbers
    failures: Numbers
    ordinary_passes: Numbers
    ordinary_total: Numbers

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
    judged = np.array([b.outcome != Outcome.SKIP for b in buckets], dtype=np.int64)[run.bucket]
    passed = np.array([b.outcome == Outcome.PASS for b in buckets], dtype=np.int64)[run.bucket]
    failed = np.array([b.fails for b in buckets], dtype=np.int64)[run.bucket]
    ordinary = np.array([b.ordinary for b in buckets], dtype=np.int64)[run.bucket]

    def summed(values: Numbers) -> Numbers:
        return np.bincount(inverse, weights=values, minlength=len(pairs)).astype(np.int64)

    return Tallies(
        *(pairs // columns, pairs % columns, summed(passed), summed(judged), summed(failed)),
        *(summed(passed * ordinary), summed(judged * ordinary)),
    )


def matrix_data(run: CodedRun, rank: Numbers, missing: Sequence[int]) -> dict[str, Any]:
    """The matrix of one run as the page reads it.

    Returns:
        ``cells``: operator, column, dtype, number of pairs, then pairs of bucket and count; and so on.
        ``missing``: operators of which nothing is to be believed, since the run has lost them.
    """
    sizes = [int(values.max()) + 1 if len(run) else 1 for values in (run.column, run.dtype, run.bucket)]
    packed = ((rank[run.operator] * sizes[0] + run.column) * sizes[1] + run.dtype) * sizes[2] + run.bucket
    values, counts = np.unique(packed, return_counts=True)
    cell, bucket = values // sizes[2], values % sizes[2]
    flat: list[int] = []
    firsts = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.append(firsts[1:], len(cell))
    pairs = np.column_stack([bucket, counts]).ravel().tolist()
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        place = int(cell[first])
        rest, dtype = divmod(place, sizes[1])
        operator, column = divmod(rest, sizes[0])
        flat += [operator, column, dtype, end - first, *pairs[2 * first : 2 * end]]
    return {"cells": flat, "missing": sorted(missing)}


@dataclass(frozen=True, kw_only=True)
class ColumnCounts:
    """What the operators and cases of one column come to.

    Attributes:
        standings: Operators in each of `STANDINGS`.
        passed: Cases that passed, of `total` that could have.
        ordinary_passed: Ordinary cases that passed, of `ordinary_total` that could have.
        ordinary_whole: Operators whose ordinary cases all pass, of the `ordinary_operators` that have any.
    """

    standings: tuple[int, ...]
    passed: int
    total: int
    ordinary_passed: int
    ordinary_total: int
    ordinary_whole: int
    ordinary_operators: int

    def to_data(self) -> list[int]:
        """The numbers in this order, as the page reads them."""
        return [*self.standings, *[getattr(self, field.name) for field in fields(self)[1:]]]


def column_counts(found: Tallies, columns: Sequence[int], missing: int) -> list[ColumnCounts]:
    """The counts of some columns of a run that has lost `missing` operators."""
    standing = found.standing
    table = []
    for column in columns:
        mine = found.column == column
        counts = [int(np.sum(mine & (standing == number))) for number in range(len(STANDINGS))]
        counts[STANDINGS.index(MISSING)] = missing
        passes, drawn = found.ordinary_passes[mine], found.ordinary_total[mine]
        table.append(
            ColumnCounts(
                standings=tuple(counts),
                passed=int(found.passes[mine].sum()),
                total=int(found.total[mine].sum()),
                ordinary_passed=int(passes.sum()),
                ordinary_total=int(drawn.sum()),
                ordinary_whole=int(np.sum((drawn > 0) & (passes == drawn))),
                ordinary_operators=int(np.sum(drawn > 0)),
            )
        )
    return table
