"""Statistics on the use of operators: the models that call them, in which dtypes and with which attributes.

The data are in ``cases/operator_use.json``, which ``python ci/tables/operator_use.py`` generates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from harness.generate.cases_home import CaseFileError, cases_directory
from harness.record.layout import ResultsError, reason

FILE = "operator_use.json"
#: An overload, and the dtype that the record lists a case under.
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class UseWeights:
    """Models and their calls.

    Attributes:
        models: Name and kind of each model: ``("timm/resnet18", "vision")``.
        calls: Overload → dtype → index of a model → calls in one forward pass.
        attributes: Overload → argument → value as JSON → calls, for arguments that are neither tensors nor sizes.
    """

    models: tuple[tuple[str, str], ...] = ()
    calls: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict, hash=False)
    attributes: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict, hash=False)

    def callers(self, pairs: Iterable[Pair]) -> frozenset[int]:
        """Return the models that call one of the overloads in its dtype."""
        calls = (self.calls.get(overload, {}).get(dtype, {}) for overload, dtype in pairs)
        return frozenset(number for models in calls for number in models)

    def callers_of(self, overload: str) -> frozenset[int]:
        """Return the models that call an overload in any dtype."""
        return frozenset(number for models in self.calls.get(overload, {}).values() for number in models)

    def share(self, callers: float) -> float:
        """Estimate the probability that a further model is a caller, given their number; never 0 or 1."""
        return (callers + 0.5) / (len(self.models) + 1)


@cache
def model_use() -> UseWeights:
    """Return the data of the package; without its file they are empty, and all operators weigh the same.

    Raises:
        ResultsError: The file is damaged.
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
            f"{path} cannot be read: {reason(error)}; regenerate it with `python ci/tables/operator_use.py`"
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
