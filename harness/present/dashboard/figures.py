"""Figures of a run: the numerical error of passing cases, and pass rates weighted by how models use operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.causes.model_use import model_use
from harness.causes.priority import EDGE
from harness.causes.rows import fill_ordinary
from harness.compare.verdict import Outcome
from harness.present.dashboard.coded import CodedRun
from harness.present.dashboard.embed import endless, few
from harness.present.dashboard.site_model import SiteModel
from harness.present.matrix import weighted_share
from harness.present.tolerance_report import COLUMNS, COMPARED, ErrorDistribution, distributions
from harness.record import store

#: Upper ends of the bins of a distribution, in ULP; the last bin has no end.
BINS = (0, 1, 2, 4, 8, 16, 32, 64, 256, 1024, 65536)


def read_distributions(built: SiteModel, run: int) -> tuple[list[ErrorDistribution], list[ErrorDistribution]]:
    """Return the tolerance matrix of a run, of all cases and of the ordinary ones; of several kinds of shapes the
    worst.

    Raises:
        ResultsError: the run is damaged.
    """
    columns = (*COLUMNS, "ordinary")
    rows = store.read(built.runs[run].directory, columns, COMPARED, encoded=True, made=fill_ordinary)
    lost = {built.words.operators.words[number] for number in built.lost[run].tolist()}
    every, ordinary = distributions(rows), distributions(rows.filter(rows["ordinary"]))
    return [d for d in every if d.overload not in lost], [d for d in ordinary if d.overload not in lost]


def tolerance_data(
    built: SiteModel, run: int, every: Sequence[ErrorDistribution], ordinary: Sequence[ErrorDistribution]
) -> dict[str, Any]:
    """Return the tolerances for the page: for all cases, and for the ordinary ones."""
    return {
        "bins": list(BINS),
        "rows": _tolerance_rows(built, every, _bins(built, built.coded[run], only_ordinary=False)),
        "ordinary": _tolerance_rows(built, ordinary, _bins(built, built.coded[run], only_ordinary=True)),
    }


def _tolerance_rows(
    built: SiteModel, found: Sequence[ErrorDistribution], bins: Mapping[tuple[int, int, int], list[int]]
) -> list[list[Any]]:
    place = {name: number for number, name in enumerate(built.names)}
    columns = {name: number for number, name in enumerate(built.words.column_names)}
    dtypes = {name: number for number, name in enumerate(built.dtypes)}
    rows = []
    for d in found:
        key = place[d.overload], columns[d.converter, d.backend], dtypes[d.dtype]
        rows.append(
            [
                *key,
                d.shape_mode,
                d.cases,
                d.wrong,
                endless(d.median_ulp),
                endless(d.p99_ulp),
                endless(d.max_ulp),
                endless(d.rtol),
                endless(d.atol),
                few(d.default_rtol),
                few(d.default_atol),
                d.worst_case,
                bins.get(key, []),
            ]
        )
    return rows


def _bins(built: SiteModel, run: CodedRun, *, only_ordinary: bool) -> dict[tuple[int, int, int], list[int]]:
    """Return (operator's place, column, dtype) → passing cases per bin."""
    passed = np.array([state.outcome == Outcome.PASS for state in built.words.states], dtype=bool)
    keep = passed[run.state] & np.isfinite(run.ulp)
    if only_ordinary:
        keep &= np.array([bucket.ordinary for bucket in built.words.buckets], dtype=bool)[run.bucket]
    operator, column, dtype = built.rank[run.operator[keep]], run.column[keep], run.dtype[keep]
    bin_ = np.searchsorted(np.array(BINS), run.ulp[keep], side="left")
    found: dict[tuple[int, int, int], list[int]] = {}
    rows, counts = np.unique(np.stack([operator, column, dtype, bin_]), axis=1, return_counts=True)
    for (one, where, kind, number), count in zip(rows.T.tolist(), counts.tolist(), strict=True):
        found.setdefault((one, where, kind), [0] * (len(BINS) + 1))[number] = count
    return found


def use_data(built: SiteModel) -> dict[str, Any]:
    """Return the number of models, the number that call each operator, and the weight of an edge case."""
    use = model_use()
    callers = [len(use.callers_of(name)) for name in built.names]
    return {"models": len(use.models), "callers": callers, "edge": EDGE}


def weighted_data(built: SiteModel, number: int) -> list[list[float | None]]:
    """Return, for each column of a run, the weighted shares of ordinary and of edge cases that pass."""
    run, words, use = built.coded[number], built.words, model_use()
    buckets = words.buckets
    judged = np.array([bucket.judged for bucket in buckets], dtype=bool)[run.bucket]
    passed = np.array([bucket.outcome == Outcome.PASS for bucket in buckets], dtype=bool)[run.bucket]
    ordinary = np.array([bucket.ordinary for bucket in buckets], dtype=bool)[run.bucket]
    pair = run.operator * len(words.dtypes.words) + run.dtype
    table: list[list[float | None]] = []
    for column in built.columns_of(number):
        shares = []
        for usual in (True, False):
            mine = judged & (run.column == column) & (ordinary == usual)
            pairs, place = np.unique(pair[mine], return_inverse=True)
            total, passes = np.bincount(place), np.bincount(place, weights=passed[mine])
            operators, dtypes = (pairs // len(words.dtypes.words)), (pairs % len(words.dtypes.words))
            named = zip(operators.tolist(), dtypes.tolist(), passes.tolist(), total.tolist(), strict=True)
            counts = (((words.operators.words[o], words.dtypes.words[d]), int(p), t) for o, d, p, t in named)
            share = weighted_share(counts, use)
            shares.append(None if share is None else round(share, 4))
        table.append(shares)
    return table
