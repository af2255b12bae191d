#!/usr/bin/env python3
"""How well the priority of failures predicts what a model will meet that was never looked at.

    python ci/leave_a_model_out.py RUN      # a run with calls of real models: a default one, or `--source use`

1. Of each model, take the root causes that its own calls fail with.
2. Rank all root causes by what the other models call, as `harness.causes.priority` does for a report.
3. Say how high those of the model stand: the mean of the average precision over the models, beside that of a ranking
   by the number of failing cases.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from harness.causes.priority import callers_of_failure, failure_priority, model_use
from harness.compare.verdict import SPEC, Outcome
from harness.generate.sources.use import callers_by_case
from harness.record import store

_COLUMNS = ["case_id", "overload", "dtype", "outcome", "blame", "component", "place", "fault", "ordinary"]
Cause = tuple[str, str, str, str]
Callers = Mapping[str, Sequence[int]]


def root_causes(run: Path) -> dict[Cause, list[Mapping[str, Any]]]:
    """Component, place, fault and outcome → failing rows."""
    found: defaultdict[Cause, list[Mapping[str, Any]]] = defaultdict(list)
    for row in store.read(run, _COLUMNS).to_pylist():
        if Outcome(row["outcome"]).is_failure and row["blame"] != SPEC:
            found[row["component"], row["place"], row["fault"], row["outcome"]].append(row)
    return dict(found)


def without(callers: Callers, model: int) -> dict[str, tuple[int, ...]]:
    """Who else makes each call."""
    others = {case_id: tuple(m for m in models if m != model) for case_id, models in callers.items()}
    return {case_id: models for case_id, models in others.items() if models}


def average_precision(order: Sequence[Cause], wanted: Collection[Cause]) -> float:
    """The mean, over the wanted ones, of the share of wanted ones down to there."""
    places = [place for place, cause in enumerate(order, start=1) if cause in wanted]
    return fmean(found / place for found, place in enumerate(places, start=1))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    causes = root_causes(parser.parse_args().run)
    seen, as_made, use = callers_by_case(as_made=False), callers_by_case(as_made=True), model_use()
    own: defaultdict[int, set[Cause]] = defaultdict(set)
    for cause, rows in causes.items():
        for row in rows:
            for model in as_made.get(row["case_id"], ()):
                own[model].add(cause)
    by_number = sorted(causes, key=lambda cause: -len(causes[cause]))
    ours, theirs, first = list[float](), list[float](), list[int]()
    for model, wanted in own.items():
        rest, seen_elsewhere, made_elsewhere = use.without(model), without(seen, model), without(as_made, model)

        def priority(cause: Cause) -> float:
            rows = causes[cause]
            usual = {(row["overload"], row["dtype"]) for row in rows if row["ordinary"]}
            pairs = {(row["overload"], row["dtype"]) for row in rows}
            cases = [row["case_id"] for row in rows]
            callers = callers_of_failure(cases, usual, pairs, rest, seen_elsewhere, made_elsewhere)  # noqa: B023
            return failure_priority(Outcome(cause[3]), callers)

        order = sorted(causes, key=priority, reverse=True)
        ours.append(average_precision(order, wanted))
        theirs.append(average_precision(by_number, wanted))
        first.append(min(map(order.index, wanted)) + 1)
    print(f"{len(causes):,} root causes, {len(own)} models with a failing call of their own")
    print(f"mean average precision {fmean(ours):.2f}; ranked by the number of failing cases {fmean(theirs):.2f}")
    print(f"the first root cause of a model left out stands in place {median(first):.0f} (median)")


if __name__ == "__main__":
    main()
