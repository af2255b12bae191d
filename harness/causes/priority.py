"""What to fix first: how much models use an operator, and how quietly it fails.

How much an operator is used: which models call it, in which dtypes and with which attributes.

The models are those of ``cases/operator_use.json``, which ``python ci/tables/operator_use.py`` makes.

What to mend first: how many models meet a failure, how quietly it fails, how ordinary its trigger is.

    priority = silence of the outcome × max(use in ordinary cases, EDGE × use in all cases)

**Use** is the share of models one of whose own calls fails, in float32 or as half precision makes it: those of
``cases/use.parquet``, which a run has first. A failure that none of them shows, in a run that has them, counts
`UNSEEN` times the share of models that call one of the failing operators in a dtype in which it fails; without them in
the run it counts that share. **Silence** is `SILENCE`: wrong numbers reach a user's users, a refusal is read at
once. **Ordinary** is what `harness.generate.call_traits.call_traits` says of a case: an edge case, such as NaN in a 0-d
tensor, counts `EDGE` as much as plain values do.

The priority of an operator is the same with the share of its cases that fail in place of the silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from harness.causes.rows import CodedRows
from harness.compare.verdict import Outcome
from harness.generate.cases_home import CaseFileError, cases_directory
from harness.record.dictionary_encoding import Numbers
from harness.record.layout import ResultsError, reason

FILE = "operator_use.json"
#: An overload and the dtype under which the record files a case.
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class UseWeights:
    """Models and their calls.

    Attributes:
        models: Name and kind of each: ``("timm/resnet18", "vision")``.
        calls: Overload → dtype → number of a model → how often one forward pass calls it.
        attributes: Overload → argument → value as JSON → calls; only those that are not tensors and no sizes.
    """

    models: tuple[tuple[str, str], ...] = ()
    calls: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict, hash=False)
    attributes: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict, hash=False)

    def callers(self, pairs: Iterable[Pair]) -> frozenset[int]:
        """The models that call one of some overloads in its dtype."""
        calls = (self.calls.get(overload, {}).get(dtype, {}) for overload, dtype in pairs)
        return frozenset(number for models in calls for number in models)

    def callers_of(self, overload: str) -> frozenset[int]:
        """The models that call an overload in whichever dtype."""
        return frozenset(number for models in self.calls.get(overload, {}).values() for number in models)

    def share(self, callers: float) -> float:
        """How likely a further model is to be among the callers, if so many are; never 0 nor 1."""
        return (callers + 0.5) / (len(self.models) + 1)


@cache
def model_use() -> UseWeights:
    """What the package's file says; nothing where there is no such file, and then all weigh the same.

    Raises:
        ResultsError: the file is damaged.
    """
    try:
        path = cases_directory() / FILE
    except CaseFileError:
        return UseWeights()
    if not path.exists():
        return UseWeights()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return _read(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(
            f"{path} cannot be read: {reason(error)}; `python ci/tables/operator_use.py` makes it anew"
        ) from None


def _read(data: Mapping[str, Any]) -> UseWeights:
    operators: Mapping[str, Any] = data["operators"]
    return UseWeights(
        tuple((name, kind) for name, kind in data["models"]),
        {
            overload: {
                dtype: {int(number): times for number, times in models.items()}
                for dtype, models in about["calls"].items()
            }
            for overload, about in operators.items()
        },
        {overload: about["attributes"] for overload, about in operators.items()},
    )


#: How much a failure of a kind counts. A crash and a hang take the program with them, but are noticed.
SILENCE = {
    Outcome.MISMATCH: 1.0,
    Outcome.CRASH: 0.5,
    Outcome.TIMEOUT: 0.4,
    Outcome.ERROR: 0.25,
    Outcome.UNSUPPORTED: 0.125,
}
#: How much an edge case counts beside an ordinary one.
EDGE = 0.02


#: How much a failure counts that no call of a model shows, in a run of these calls: a run has the commonest.
UNSEEN = 0.1
#: How much a model counts whose calls fail only as half precision makes them.
IN_HALF = 0.25


@dataclass(frozen=True)
class Callers:
    """The models that meet a failure.

    Attributes:
        number: How many; 0 where none is known to.
        use: Their share, from 0 to 1.
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
    """The models that meet failures of one kind: those of which a call fails so.

    Their share among models is estimated by the operator where the run has none of their calls.

    Args:
        cases: Ids of the cases that fail so.
        ordinary: Overloads and dtypes of those that are ordinary; none where all are edge cases.
        pairs: Overloads and dtypes of all.
        use: What models call.
        seen: Case id → the models that make this call, in half precision, too; empty for a run without such cases.
        as_made: The same of calls as models make them.
    """
    cases = list(cases)
    models = {model for case_id in cases for model in seen.get(case_id, ())}
    if models:
        own = {model for case_id in cases for model in as_made.get(case_id, ())}
        return Callers(len(models), use.share(len(own) + IN_HALF * len(models - own)))
    ordinary = set(ordinary)
    usual = use.share(len(use.callers(ordinary))) if ordinary else 0.0
    estimate = max(usual, EDGE * use.share(len(use.callers(pairs))))
    # That models call the operator does not say that they make such calls.
    return Callers(0, UNSEEN * estimate if seen else estimate)


def failure_priority(outcome: Outcome, callers: Callers) -> float:
    """The priority of failures of one kind, from 0 to 1."""
    return SILENCE[outcome] * callers.use


def operator_priority(overload: str, ordinary: float, edge: float, use: UseWeights) -> float:
    """The priority of an operator, given the shares of its ordinary and of its edge cases that fail."""
    return use.share(len(use.callers_of(overload))) * max(ordinary, EDGE * edge)


def failing_pairs(rows: CodedRows, group: Numbers) -> dict[int, set[Pair]]:
    """The overloads and dtypes of each group's rows.

    Args:
        rows: Failed rows of the record.
        group: Each row's group, a number from 0; those of rows that do not count are below 0.
    """
    overloads, dtypes = (rows.words(name).to_pylist() for name in ("overload", "dtype"))
    pairs = rows.numbers("overload") * len(dtypes) + rows.numbers("dtype")
    packed = np.unique((group * (len(overloads) * len(dtypes)) + pairs)[group >= 0])
    found: dict[int, set[Pair]] = {}
    for one in packed.tolist():
        number, pair = divmod(one, len(overloads) * len(dtypes))
        overload, dtype = divmod(pair, len(dtypes))
        found.setdefault(number, set()).add((overloads[overload], dtypes[dtype]))
    return found
