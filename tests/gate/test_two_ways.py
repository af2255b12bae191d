"""Two runs of different converters on the same cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from commands import entered
from harness_runs import output, rows, run_harness

pytestmark = pytest.mark.slowest(15)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same cases through both exporters: TorchScript has no conversion of erfc."""
    place = tmp_path_factory.mktemp("runs")
    for converter in ("dynamo", "torchscript"):
        what = ("--op", "aten::erfc", "--op", "aten::neg", "--shapes", "static", "--examples", "24", "--record-only")
        done = run_harness("--results-dir", place / converter, "--converter", converter, *what)
        assert done.returncode == 0, output(done)
    return place / "dynamo", place / "torchscript"


def diff(*words: str | Path) -> Result:
    return entered("diff", *words)


def test_what_one_alone_passes_has_changed(runs: tuple[Path, Path]) -> None:
    done = diff(*runs, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["options"]["converters"] == {"before": "dynamo", "after": "torchscript"}
    dynamo, torchscript = ({row["case_id"]: row["outcome"] for row in rows(run)} for run in runs)
    assert dynamo.keys() == torchscript.keys()
    assert found["compared"] == len(dynamo)
    right = ("pass", "inaccurate")
    alone = [case for case in dynamo if dynamo[case] in right and torchscript[case] not in right]
    assert found["counts"]["regressed"] == len(alone) > 0
    assert {line["converter"] for line in found["overloads"]} == {"dynamo, torchscript"}
    assert "aten.erfc.default" in {line["overload"] for line in found["overloads"]}
    assert found["not_requested"] == {"new": 0, "gone": 0}


def test_a_gate_closes_where_the_second_way_passes_less(runs: tuple[Path, Path]) -> None:
    assert diff(*runs, "--fail-on", "regression").exit_code == 1
    dynamo, _ = runs
    assert diff(dynamo, dynamo, "--fail-on", "regression").exit_code == 0
