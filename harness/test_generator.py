"""What `pytest harness --generator-report` collects in place of conformance: one item per operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from harness.generate.operator_case import REGISTRY
from harness.reach.asker import Asker
from harness.reach.survey import survey
from harness.reach.unreachable import excuses


@pytest.fixture(scope="session")
def asker() -> Iterator[Asker]:
    """A process in which PyTorch is asked."""
    with Asker() as one:
        yield one


def test_generator(
    surveyed: str, asker: Asker, record_property: Callable[[str, Any], None], pytestconfig: pytest.Config
) -> None:
    """PyTorch takes what is drawn, and every point that it takes is drawn."""
    draws = pytestconfig.option.generator_report
    found = survey(REGISTRY[surveyed], asker, seed=pytestconfig.option.seed, draws=draws, excuses=excuses())
    record_property("survey", asdict(found))
    record_property("cases", found.draws)
    record_property("failures", len(found.defects))
    if found.defects and not pytestconfig.option.record_only:
        pytest.fail("\n".join(found.defects), pytrace=False)
