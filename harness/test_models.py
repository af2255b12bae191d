"""What `pytest harness --models` collects: one item per model, converter and shape mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.models.unit import ModelUnit
from harness.session import Session


def test_model(
    model_unit: ModelUnit,
    conformance: Session,
    record_property: Callable[[str, Any], None],
    pytestconfig: pytest.Config,
) -> None:
    """The model gives PyTorch's results in every backend, for every value and size that it is run with."""
    summary = conformance.run_model(model_unit)
    record_property("cases", summary.cases)
    record_property("failures", summary.failed)
    record_property("open", summary.open)
    record_property("fired", sorted(conformance.fired))
    if summary.failed and not pytestconfig.option.record_only:
        pytest.fail(summary.text(), pytrace=False)
    if not summary.failed and not summary.outcomes["pass"]:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(summary.outcomes.items()))
        pytest.skip(f"nothing could be compared: {counts}")
