"""What is run, and in which order.

The longest files first: `--dist loadfile` hands out whole files; one that takes minutes and comes last leaves
the other worker idle. What takes long and is nearly covered by other tests is run with ``--thorough`` only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from harness.convert.converter import CONVERTERS
from harness.run.backend import BACKENDS

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


#: By file and function; of a parametrised one, the case that is left out where others of it stay.
THOROUGH = frozenset(
    {
        "test_rules.py::test_rules_run_under_xdist",
        "test_isolation.py::test_with_and_without_xdist_every_crash_is_recorded_and_nothing_else_lost[0]",
        "test_command_line.py::test_two_workers_run_the_same_cases_to_the_same_verdicts",
        "test_command_line.py::test_last_failed_runs_the_failing_operator_alone",
        "test_command_line.py::test_x_stops_at_the_first_failing_operator",
        "test_changed_since.py::test_a_converters_file_selects_everything_of_that_converter",
        "test_changed_since.py::test_a_changed_case_is_run_and_recorded",
        "test_changed_since.py::test_a_changed_rule_selects_its_operator",
        "test_changed_since.py::test_what_a_converter_imports_is_its_code_too",
        "test_changed_since.py::test_what_a_rule_uses_selects_its_operator_and_unchanged_rules_are_not_missed",
        "test_upgrade.py::test_an_account_of_what_moved_and_taking_it_over",
        "test_explain.py::test_a_skeleton_filled_in_converts",
        "test_explain.py::test_upsample_bilinear2d",
        "test_explain.py::test_outcomes_come_from_a_run_where_it_has_any",
        "test_golden.py::test_recording_again_gives_the_same_bytes",
        "test_sources.py::test_a_run_keeps_its_smallest_failures",
        "test_sources.py::test_dtypes_and_kinds_of_export_choose_among_the_entries",
        "test_shrink.py::test_a_planted_defect_is_shrunk_to_its_core[aten.add.Tensor]",
        "test_cli.py::test_run_is_pytest_harness_from_any_directory",
        "test_sources.py::test_a_failure_comes_back_with_another_seed",
        "test_sources.py::test_a_replay_leaves_the_corpus_alone",
        "test_command_line.py::test_replaying_one_case_reproduces_its_verdict",
        "test_golden.py::test_calls_that_kill_pytorch_are_passed_over",
        "test_changed_since.py::test_what_no_operator_depends_on_selects_nothing",
        "test_rules.py::test_a_file_that_cannot_be_used_is_refused_in_one_line[None-no such file]",
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--thorough``."""
    parser.addoption("--thorough", action="store_true", help="also what takes long and is nearly covered")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files, and leave each as it is; take out what is not asked for."""
    items.sort(key=lambda item: _PLACES.get(item.path.name, len(LONGEST)))
    # Who names a test wants to see it.
    named = any("::" in str(argument) for argument in config.args)
    if config.getoption("--thorough") or named:
        return
    left_out = [item for item in items if f"{item.path.name}::{item.name}" in THOROUGH]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="module", autouse=True)
def what_a_file_registers_goes_with_it() -> Iterator[None]:
    """Take back the converters and backends that a file of tests adds to this process.

    Commands that take every converter by default would meet them in the next file of the same process, and
    which file that is depends on which worker is free: such a failure comes and goes.
    """
    # What is found at first need stays.
    BACKENDS.entries()
    CONVERTERS.entries()
    modules = set(sys.modules)
    with patch.dict(BACKENDS), patch.dict(CONVERTERS):
        yield
    # So that importing it registers it once more.
    for name in set(sys.modules) - modules:
        if name.startswith("planted."):
            del sys.modules[name]
