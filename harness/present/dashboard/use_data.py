"""How much models use the operators of a site, and pass rates that are weighted by it."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.causes import EDGE, model_use
from harness.compare import Outcome
from harness.present.dashboard.built import Built
from harness.present.weighted_rates import weighted_share


def use_data(built: Built) -> dict[str, Any]:
    """How many models there are, how many of them call each operator, and how much an edge case counts."""
    use = model_use()
    callers = [len(use.callers_of(name)) for name in built.names]
    return {"models": len(use.models), "callers": callers, "edge": EDGE}


def weighted_data(built: Built, number: int) -> list[list[float | None]]:
    """Of each column of a run, the weighted shares of ordinary and of edge cases that pass."""
    run, words, use = built.coded[number], built.words, model_use()
    buckets = words.buckets
    judged = np.array([bucket.outcome != Outcome.SKIP for bucket in buckets], dtype=bool)[run.bucket]
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
