"""The tolerance matrix."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from commands import entered
from harness_runs import rows
from hypothesis import given, strategies as st
from recorded_run import NAME, make

from harness.compare.tolerances import DEFAULT, needed_tolerance
from harness.record.run_info import read_run_info

pytestmark = pytest.mark.slowest(30)

KEY = ("overload", "dtype", "converter", "backend", "shape_mode")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cwd = tmp_path_factory.mktemp("tolerance")
    make(cwd)
    return cwd / "results" / NAME


def tolerance(*words: str | Path) -> Result:
    return entered("tolerance", *words)


FINITE = st.floats(-1e6, 1e6)


@given(
    st.lists(st.tuples(FINITE, FINITE), min_size=1),
    st.sampled_from(sorted(set(DEFAULT) - {"complex64", "complex128"})),
)
def test_the_needed_pair_accepts_all_and_each_part_is_needed(elements: list[tuple[float, float]], dtype: str) -> None:
    expected, got = np.array(elements).T
    rtol, atol = needed_tolerance(expected, got, dtype)
    slack = 1 + 1e-12
    accepted = np.abs(got - expected) <= slack * ((atol or 0.0) + (rtol or 0.0) * np.abs(expected))
    assert accepted.all()
    # Each number is the error of one of the elements that it is for.
    errors, scale = np.abs(got - expected), np.abs(expected)
    if rtol:
        assert np.isclose(rtol * scale, errors, rtol=1e-9, atol=0).any()
    if atol:
        assert (errors == atol).any()


def test_numbers_beside_zero_ask_for_atol_and_large_ones_for_rtol() -> None:
    default = DEFAULT["float32"]
    border = default.atol / default.rtol
    assert needed_tolerance(np.array([0.0, border / 2]), np.array([3e-5, border / 2]), "float32") == (
        None,
        3e-5,
    )
    rtol, atol = needed_tolerance(np.array([1e3]), np.array([1001.0]), "float32")
    assert (rtol, atol) == (1e-3, None)
    assert needed_tolerance(np.array([]), np.array([]), "float32") == (None, None)


def test_the_matrix_is_what_the_record_says(run: Path, tmp_path: Path) -> None:
    assert tolerance(run, "--out", tmp_path).exit_code == 0
    found = {tuple(row[k] for k in KEY): row for row in json.loads((tmp_path / "tolerance.json").read_text())["rows"]}
    recorded: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows(run):
        if row["outcome"] == "pass" and row["max_ulp_error"] is not None:
            recorded[tuple(row[k] for k in KEY)].append(row)
    assert found.keys() == recorded.keys()
    assert len(found) > 10
    for key, cases in recorded.items():
        ulps = sorted(case["max_ulp_error"] for case in cases)
        row = found[key]
        assert row["cases"] == len(ulps)
        assert row["median_ulp"] == ulps[math.ceil(len(ulps) / 2) - 1]
        assert row["p99_ulp"] == ulps[math.ceil(0.99 * len(ulps)) - 1]
        assert row["max_ulp"] == ulps[-1]
        worst = next(case for case in cases if case["case_id"] == row["worst_case"])
        assert worst["max_ulp_error"] == ulps[-1]
        for name in ("rtol", "atol"):
            needed = [case[f"needed_{name}"] for case in cases if case[f"needed_{name}"] is not None]
            assert row[name] == max(needed, default=None)
    assert any(row["max_ulp"] > 0 and (row["rtol"] or row["atol"]) for row in found.values())


def test_the_files_agree(run: Path) -> None:
    done = tolerance(run)
    assert done.exit_code == 0
    parquet = pq.read_table(run / "tolerance.parquet").to_pylist()
    with (run / "tolerance.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    document = json.loads((run / "tolerance.json").read_text())
    assert document["rows"] == parquet
    assert document["run_id"] == read_run_info(run).run_id
    assert [row["overload"] for row in table] == [row["overload"] for row in parquet]
    for text, row in zip(table, parquet, strict=True):
        assert float(text["max_ulp"]) == row["max_ulp"]
        assert (float(text["rtol"]) if text["rtol"] else None) == row["rtol"]
    assert [row["max_ulp"] for row in parquet] == sorted((r["max_ulp"] for r in parquet), reverse=True)
    printed = json.loads(tolerance(run, "--json").stdout)
    assert printed["rows"] == parquet


def test_a_part_of_the_matrix_is_not_written_over_the_whole(run: Path, tmp_path: Path) -> None:
    tolerance(run)
    before = (run / "tolerance.csv").read_text()
    done = tolerance(run, "--op", "celu", "--dtype", "float32")
    assert "written to" not in done.output
    assert (run / "tolerance.csv").read_text() == before
    done = tolerance(run, "--op", "celu", "--dtype", "float32", "--out", tmp_path, "--json")
    document = json.loads(done.stdout)
    assert {(row["overload"], row["dtype"]) for row in document["rows"]} == {("aten.celu.default", "float32")}
    assert pq.read_table(tmp_path / "tolerance.parquet").num_rows == len(document["rows"])


def test_a_place_that_cannot_be_written_is_one_line(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    done = tolerance(run, "--out", file / "below")
    assert done.exit_code == 2
    assert "choose another place with --out" in done.output
