"""Two runs of different converters on the same cases, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness_runs import output, rows, run_harness

from harness.app.cli._group import conformance

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
    return CliRunner().invoke(conformance, ["diff", *map(str, words)])


def test_what_one_alone_passes_is_named(runs: tuple[Path, Path]) -> None:
    dynamo, torchscript = runs
    done = diff(dynamo, torchscript, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["ways"] == ["dynamo → ort-cpu", "torchscript → ort-cpu"]
    ends = {
        way: {row["case_id"]: row["outcome"] for row in rows(run) if row["outcome"] != "skip"}
        for way, run in zip(found["ways"], runs, strict=True)
    }
    ours, theirs = ends.values()
    common = ours.keys() & theirs.keys()
    assert found["cases"] == len(common)
    assert found["both"] == sum(ours[case] == theirs[case] == "pass" for case in common)
    only_ours, _ = found["only"]
    assert sum(one["cases"] for one in only_ours) == sum(ours[case] == "pass" != theirs[case] for case in common)
    assert "aten.erfc.default" in {one["overload"] for one in only_ours}


def test_the_report_says_neither_is_worse(runs: tuple[Path, Path]) -> None:
    said = " ".join(diff(*runs).stdout.split())
    assert "dynamo → ort-cpu beside torchscript → ort-cpu" in said
    assert "dynamo → ort-cpu alone passes" in said
    assert "worse" not in said
    assert diff(*runs, "--markdown").stdout.startswith("### dynamo → ort-cpu beside torchscript → ort-cpu")
    # Of two ways none is the better one, so that a gate stays closed.
    assert diff(*runs, "--fail-on", "regression").exit_code == 1


def test_the_same_way_is_compared_case_by_case(runs: tuple[Path, Path]) -> None:
    dynamo, _ = runs
    assert "beside" not in diff(dynamo, dynamo).stdout
