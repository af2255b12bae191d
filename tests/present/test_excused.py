"""Commands print what rules excused, and every problem of a case."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import typed
from harness_runs import record_of, recorded, row_of, unary

from harness.compare.case_problems import problems_text
from harness.compare.verdict import Outcome
from harness.record import layout, store

_WRONG = {"stage": "compare", "outcome": "mismatch"}
_DTYPE = {**_WRONG, "signature": "dtype", "message": "dtype: 1", "blame": "converter", "evidence": "a"}
_VALUES = {**_WRONG, "signature": "values", "message": "values: 2", "blame": "backend", "evidence": "b"}
CALLS = [unary("aten.celu.default", [float(n)]) for n in range(3)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    failed = {"outcome": Outcome.MISMATCH, "blame": "converter", "signature": "dtype", "message": "dtype: 1"}
    rows = [
        row_of(CALLS[0], excused="3: nearness 2 (near the truth); 1: a tie", max_ulp_error=1.0),
        row_of(CALLS[1], excused="5: a tie"),
        row_of(CALLS[2], **failed, problems=problems_text([_DTYPE, _VALUES])),
    ]
    return recorded(tmp_path_factory.mktemp("excused") / "run", rows)


def printed(*words: str | Path) -> str:
    return typed(*words, status=(0, 1)).output


def test_the_tolerance_report_counts_excuses_by_rule(run: Path) -> None:
    tie, truth = json.loads(printed("tolerance", run, "--json"))["excused"]
    assert (tie["rule"], tie["cases"], tie["elements"]) == ("a tie", 2, 6)
    assert tie["example"] == CALLS[1].case_id
    assert (truth["rule"], truth["elements"]) == ("nearness 2 (near the truth)", 3)
    assert truth["operators"] == ["aten.celu.default"]
    assert "2 rules accepted elements" in printed("tolerance", run)


def test_a_case_shows_its_excuses_and_all_its_problems(run: Path) -> None:
    assert "5 elements accepted: a tie" in printed("show", CALLS[1].case_id, "--run", run)
    text = printed("show", CALLS[2].case_id, "--run", run)
    assert "also: mismatch at compare" in text
    assert "values: 2" in text
    [verdict] = json.loads(printed("show", CALLS[2].case_id, "--run", run, "--json"))["verdicts"]
    assert [problem["blame"] for problem in verdict["problems"]] == ["converter", "backend"]


def test_failures_list_each_problem(run: Path) -> None:
    groups = json.loads(printed("failures", run, "--json"))["failures"]["groups"]
    assert {(found["smallest"]["signature"], found["blame"]) for found in groups} == {
        ("dtype", "converter"),
        ("values", "backend"),
    }


def test_a_record_of_before_has_neither(tmp_path: Path) -> None:
    record_of(tmp_path, CALLS, outcome=Outcome.MISMATCH, signature="values", blame="backend")
    path = tmp_path / layout.VERDICTS_FILE
    rows = store.read(tmp_path).drop_columns(["excused", "problems"])
    pq.write_table(rows, path)
    assert json.loads(printed("tolerance", tmp_path, "--json"))["excused"] == []
    assert len(json.loads(printed("failures", tmp_path, "--json"))["failures"]["groups"]) == 1
