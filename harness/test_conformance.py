"""What `pytest harness` collects: one item per operator overload, converter and shape mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.pipeline.unit import Unit
from harness.session import Session


def test_conformance(
    unit: Unit,
    conformance: Session,
    record_property: Callable[[str, Any], None],
    pytestconfig: pytest.Config,
) -> None:
    """Every case of the operator gives PyTorch's result in every backend."""
    summary = conformance.run(unit)
    record_property("cases", summary.cases)
    record_property("failures", summary.failed)
    record_property("open", summary.open)
    record_property("fired", sorted(conformance.fired))
    record_property("notices", [(notice.kind, notice.text) for notice in summary.notices])
    record_property("remembered", (summary.remembered.added, summary.remembered.dropped))
    if summary.compared is not None:
        for name, value in conformance.compared(summary).items():
            record_property(name, value)
        worse = [d.message for d in summary.compared.differences if d.finding.fails]
        if worse and not pytestconfig.option.record_only:
            pytest.fail("worse than the baseline:\n" + "\n".join(worse), pytrace=False)
        return
    if summary.failed and not pytestconfig.option.record_only:
        pytest.fail(summary.text(), pytrace=False)
    if not summary.cases:
        pytest.skip("no source has a case: in a dynamic export, nothing varies in the sizes of arguments")
    if not summary.failed and not summary.open and not summary.outcomes["pass"]:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(summary.outcomes.items()))
        pytest.skip(f"nothing could be compared: {counts}")
