"""How much an operator is used: which models call it, in which dtypes and with which attributes.

The models are those of ``cases/operator_use.json``, which ``python ci/operator_use.py`` makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias

from harness.generate import CaseFileError, cases_directory
from harness.record import ResultsError, reason

FILE = "operator_use.json"
#: An overload and the dtype under which the record files a case.
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class UseWeights:
    """Models and their calls.

    Attributes:
        models: Name and kind of each: ``("timm/resnet18", "vision")``.
        calls: Overload → dtype → number of a model → how often one forward pass calls it.
        attributes: Overload → argument → value as JSON → calls; only those that are no tensors and no sizes.
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

    def share(self, callers: int) -> float:
        """How likely a further model is to be among the callers, if so many are; never 0 nor 1."""
        return (callers + 0.5) / (len(self.models) + 1)

    def pairs_of(self, model: int) -> set[Pair]:
        """What one model calls."""
        return {
            (overload, dtype)
            for overload, dtypes in self.calls.items()
            for dtype, models in dtypes.items()
            if model in models
        }

    def without(self, model: int) -> UseWeights:
        """What the other models call, as if this one had never been looked at."""
        calls = {
            overload: {
                dtype: {number: times for number, times in models.items() if number != model}
                for dtype, models in dtypes.items()
            }
            for overload, dtypes in self.calls.items()
        }
        return replace(self, models=tuple(m for n, m in enumerate(self.models) if n != model), calls=calls)


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
            f"{path} cannot be read: {reason(error)}; `python ci/operator_use.py` makes it anew"
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
