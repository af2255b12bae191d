"""What `pytest harness` collects: one item per operator overload, converter and shape mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.conftest import Conformance
    from harness.pipeline.unit import Unit


def test_conformance(
    unit: Unit,
    conformance: Conformance,
    record_property: pytest.RecordProperty,  # type: ignore[name-defined]
) -> None:
    """Every case of the operator gives PyTorch's result in every backend."""
    result = conformance.run(unit)
    record_property("cases", len(result.cases))
    record_property("failures", result.failed)
    if result.failed and not conformance.config.option.record_only:
        pytest.fail(result.text(), pytrace=False)
    if not result.cases:
        pytest.skip("no case was drawn: nothing varies in the sizes of its arguments")
    if not result.failed and not result.outcomes.get("pass"):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(result.outcomes.items()))
        pytest.skip(f"nothing could be compared: {counts}")
