"""The items that `pytest harness` collects.

One item per operator overload, converter and shape mode; with ``--models`` one per model instead, with
``--generator-report`` one per operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.app.session import Session
from harness.core.documents import to_data
from harness.coverage.asker import Asker
from harness.coverage.exceptions import excuses
from harness.coverage.survey import survey
from harness.generate.operator_case import OPERATOR_CASES
from harness.plan.unit import Unit


def test_conformance(
    unit: Unit,
    conformance: Session,
    record_property: Callable[[str, Any], None],
    pytestconfig: pytest.Config,
) -> None:
    """Every case of the operator, or run of the model, gives PyTorch's result in every backend."""
    summary = conformance.run(unit)
    record_property("cases", summary.cases)
    record_property("failures", summary.failed)
    record_property("open", summary.open)
    record_property("waived", sorted(summary.waived.items()))
    record_property("ran", unit.overload)
    record_property("fired", sorted(conformance.fired))
    record_property("notes", summary.notes)
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


@pytest.fixture(scope="session")
def asker() -> Iterator[Asker]:
    """A process in which PyTorch runs calls."""
    with Asker() as one:
        yield one


def test_generator(
    surveyed: str, asker: Asker, record_property: Callable[[str, Any], None], pytestconfig: pytest.Config
) -> None:
    """PyTorch takes what is drawn, and every point that it takes is drawn."""
    given = pytestconfig.option
    case = OPERATOR_CASES[surveyed]
    found = survey(case, asker, seed=given.seed, draws=given.generator_report, excuses=excuses())
    record_property("survey", to_data(found))
    record_property("cases", found.draws)
    record_property("failures", len(found.defects))
    if found.defects and not given.record_only:
        pytest.fail("\n".join(found.defects), pytrace=False)
