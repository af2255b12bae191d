"""Conversions made wrong on purpose: each must be found within the default budget."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness_runs import output, rows, run_harness
from planted.translations import WRONG

DEFECTS = {str(operator): conversion.__name__ for operator, conversion in WRONG.items()}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The default budget for every operator with a planted defect, through the honest and the planted
    converter."""
    directory: Path = tmp_path_factory.mktemp("defects") / "run"
    operators = [word for name in DEFECTS for word in ("--op", name)]
    chosen = ("--converter", "dynamo", "--converter", "planted-wrong", *operators)
    done = run_harness("--results-dir", directory, *chosen)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, output(done)
    return rows(directory, "case_id", "overload", "converter", "stage", "outcome", "signature")


def test_there_are_enough_defects_to_speak_of() -> None:
    assert len(DEFECTS) >= 15


#: Exporters write down the shapes that PyTorch has, so that a conversion to another shape contradicts them:
#: ONNX's checker finds it before any runtime does.
WRONG_SHAPE = {"sum_inverts_keepdim", "cat_takes_the_first_axis", "avg_pool_ignores_ceil_mode"}


@pytest.mark.parametrize("operator", DEFECTS, ids=lambda operator: DEFECTS[operator])
def test_the_default_budget_finds_a_planted_defect(operator: str, record: list[dict[str, Any]]) -> None:
    ended: dict[str, dict[str, tuple[str, str]]] = {"dynamo": {}, "planted-wrong": {}}
    for row in record:
        if row["overload"] == operator:
            ended[row["converter"]][row["case_id"]] = row["stage"], row["outcome"]
    honest, planted = ended["dynamo"], ended["planted-wrong"]
    assert honest.keys() == planted.keys()
    wanted = ("check", "error") if DEFECTS[operator] in WRONG_SHAPE else ("compare", "mismatch")
    # The exporter has defects of its own: only what it does right can show the planted one.
    found = [case for case in planted if planted[case] == wanted and honest[case] == ("compare", "pass")]
    assert found, Counter(planted.values())
