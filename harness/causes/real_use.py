"""The share of calls of real models that pass in a run, by dtype and by kind of model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from harness.compare.verdict import Outcome, is_judged
from harness.generate.sources.use import HALVES, callers_by_case, using_models
from harness.record import store

_COLUMNS = ("case_id", "overload", "dtype", "shape_mode", "converter", "backend", "outcome", "blame")
#: The dtypes in which models are deployed, and the label of all others.
DEPLOYED, OTHERS = ("float32", *HALVES), "other dtypes"


@dataclass(frozen=True)
class Share:
    """Numbers of passing calls and of all calls."""

    passed: int
    total: int


@dataclass(frozen=True, kw_only=True)
class RealUse:
    """Results for the calls of real models on one route.

    Attributes:
        converter: The converter.
        backend: The backend.
        calls: The number of distinct calls, as the models make them.
        models: The number of models that make them.
        known: The number of models whose calls are on file.
        by_dtype: Dtype → share, with static shapes; `OTHERS` for integers and other dtypes.
        dynamic: The share with dynamic shapes, where a call passes if it does at all tried sizes.
        by_kind: Kind of model → share of its models' calls, as the models make them.
    """

    converter: str
    backend: str
    calls: int
    models: int
    known: int
    by_dtype: Mapping[str, Share]
    dynamic: Share
    by_kind: Mapping[str, Share]


def real_use(run: Path) -> list[RealUse]:
    """Return the results for calls of real models by converter and backend; empty if the run has none.

    Raises:
        ResultsError: The run or the file of calls cannot be read.
    """
    rows = store.read(run, _COLUMNS, pc.field("source") == "use").to_pylist()
    if not rows:
        return []
    by_route: defaultdict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        if is_judged(Outcome(row["outcome"]), row["blame"]):
            by_route[row["converter"], row["backend"]].append(row)
    return [_summarise(*route, its) for route, its in sorted(by_route.items())]


def _summarise(converter: str, backend: str, rows: list[Mapping[str, str]]) -> RealUse:
    names, callers = using_models(), callers_by_case(as_made=True)
    passed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    kinds_passed: Counter[str] = Counter()
    kinds_total: Counter[str] = Counter()
    as_made: dict[str, tuple[int, ...]] = {}
    dynamic: dict[str, bool] = {}
    for row in rows:
        right = row["outcome"] == Outcome.PASS
        if row["shape_mode"] == "dynamic":
            key = f"{row['overload']} {row['case_id']}"
            dynamic[key] = dynamic.get(key, True) and right
            continue
        dtype = row["dtype"] if row["dtype"] in DEPLOYED else OTHERS
        total[dtype] += 1
        passed[dtype] += right
        models = callers.get(row["case_id"])
        if models is None:
            continue
        as_made[row["case_id"]] = models
        for kind in {names[number][1] for number in models}:
            kinds_total[kind] += 1
            kinds_passed[kind] += right
    return RealUse(
        converter=converter,
        backend=backend,
        calls=len(as_made),
        models=len({number for models in as_made.values() for number in models}),
        known=len(names),
        by_dtype={dtype: Share(passed[dtype], total[dtype]) for dtype in (*DEPLOYED, OTHERS) if total[dtype]},
        dynamic=Share(sum(dynamic.values()), len(dynamic)),
        by_kind={kind: Share(kinds_passed[kind], n) for kind, n in kinds_total.most_common()},
    )
