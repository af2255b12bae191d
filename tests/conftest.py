"""The order of the files under pytest-xdist: the longest first.

`--dist loadfile` hands out whole files; one that takes minutes and comes last leaves the other worker idle.
"""

from __future__ import annotations

import pytest

#: By how long they take, as measured with ``--durations=0``; the rest take less than 20 seconds each.
LONGEST = (
    "test_planted_defects.py",
    "test_generator_report.py",
    "test_blame.py",
    "test_upgrade.py",
    "test_equivalence.py",
    "test_models.py",
    "test_dashboard_page.py",
    "test_nightly.py",
    "test_diverge.py",
    "test_baseline.py",
    "test_walkthrough.py",
    "test_golden_committed.py",
    "test_repro.py",
    "test_golden.py",
    "test_shards.py",
    "test_reuse.py",
    "test_capture.py",
    "test_coverage.py",
    "test_explain.py",
    "test_shrink.py",
    "test_backends_trt.py",
    "test_isolation.py",
    "test_rules.py",
    "test_changed_since.py",
    "test_command_line.py",
)
_PLACES = {name: place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files, and leave each as it is."""
    items.sort(key=lambda item: _PLACES.get(item.path.name, len(LONGEST)))
