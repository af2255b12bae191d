"""Priorities of failures: how many models one affects, how silent it is, and how ordinary its trigger is.

    priority = silence of the outcome × max(use in ordinary cases, EDGE × use in all cases)

**Use** is the share of models with a failing call, in float32 or as converted to half precision. Their calls are in
``cases/use.parquet``, which a run executes first. If none of these calls shows a failure, its use is `UNSEEN` times the
share of models that call one of the failing operators in a failing dtype; in a run without these calls, it is that
share. **Silence** is `SILENCE`: wrong numbers go unnoticed, an error is noticed immediately. **Ordinary** is defined by
`harness.generate.call_traits.call_traits`: an edge case, such as NaN in a 0-d tensor, counts `EDGE` times as much.

The priority of an operator is the same with the share of its failing cases in place of the silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.causes.model_use import Pair, UseWeights
from harness.causes.rows import CodedRows
from harness.compare.verdict import Outcome
from harness.record.dictionary_encoding import Numbers

#: The weight of each outcome. A crash or hang takes the program down but is noticed.
SILENCE = {
    Outcome.MISMATCH: 1.0,
    Outcome.CRASH: 0.5,
    Outcome.TIMEOUT: 0.4,
    Outcome.ERROR: 0.25,
    Outcome.UNSUPPORTED: 0.125,
}
#: The weight of an edge case relative to an ordinary one.
EDGE = 0.02


#: The weight of a failure that no recorded model call shows, in a run of these calls, which include the commonest ones.
UNSEEN = 0.1
#: The weight of a model whose calls fail only when converted to half precision.
IN_HALF = 0.25


@dataclass(frozen=True)
class Callers:
    """The models that a failure affects.

    Attributes:
        number: Their number; 0 if none is known.
        use: Their share of all models, from 0 to 1.
    """

    number: int
    use: float


def callers_of_failure(
    cases: Iterable[str],
    ordinary: Iterable[Pair],
    pairs: Iterable[Pair],
    use: UseWeights,
    seen: Mapping[str, Sequence[int]],
    as_made: Mapping[str, Sequence[int]],
) -> Callers:
    """Return the models that a kind of failure affects: those with a call that fails in this way.

    If the run has no such call, their share is estimated from the models that call the operator.

    Args:
        cases: Ids of the failing cases.
        ordinary: Overloads and dtypes of the ordinary ones; empty if all are edge cases.
        pairs: Overloads and dtypes of all.
        use: The models' calls.
        seen: Case id → the models that make this call, also in half precision; empty for a run without such cases.
        as_made: The same without half precision.
    """
    cases = list(cases)
    models = {model for case_id in cases for model in seen.get(case_id, ())}
    if models:
        unconverted = {model for case_id in cases for model in as_made.get(case_id, ())}
        return Callers(len(models), use.share(len(unconverted) + IN_HALF * len(models - unconverted)))
    ordinary = set(ordinary)
    usual = use.share(len(use.callers(ordinary))) if ordinary else 0.0
    estimate = max(usual, EDGE * use.share(len(use.callers(pairs))))
    # A model that calls the operator need not make such calls.
    return Callers(0, UNSEEN * estimate if seen else estimate)


def failure_priority(outcome: Outcome, callers: Callers) -> float:
    """Return the priority of a kind of failure, from 0 to 1."""
    return SILENCE[outcome] * callers.use


def operator_priority(overload: str, ordinary: float, edge: float, use: UseWeights) -> float:
    """Return the priority of an operator, given the failing shares of its ordinary cases and of its edge cases."""
    return use.share(len(use.callers_of(overload))) * max(ordinary, EDGE * edge)


def failing_pairs(rows: CodedRows, group: Numbers) -> dict[int, set[Pair]]:
    """Return the overloads and dtypes of each group's rows.

    Args:
        rows: Failed rows of the record.
        group: The group number of each row; negative for rows to ignore.
    """
    overloads, dtypes = (rows.words(name).to_pylist() for name in ("overload", "dtype"))
    pairs = rows.numbers("overload") * len(dtypes) + rows.numbers("dtype")
    packed = np.unique((group * (len(overloads) * len(dtypes)) + pairs)[group >= 0])
    by_group: dict[int, set[Pair]] = {}
    for value in packed.tolist():
        number, pair = divmod(value, len(overloads) * len(dtypes))
        overload, dtype = divmod(pair, len(dtypes))
        by_group.setdefault(number, set()).add((overloads[overload], dtypes[dtype]))
    return by_group
