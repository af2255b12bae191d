"""Complex numbers from draw to record: a product made wrong is found and is the converter's defect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness_runs import output, rows, run_harness

_SOME = ("--dtype", "complex64", "--dtype", "complex128", "--examples", "24", "--shrink", "0")


def _run(results: Path, *options: str) -> Sequence[Mapping[str, Any]]:
    done = run_harness(*options, *_SOME, "--results-dir", results)
    found = rows(results)
    assert found, output(done)
    return found


def test_a_wrong_product_is_found_and_blamed_on_the_converter(tmp_path: Path) -> None:
    wrong = _run(tmp_path / "wrong", "--op", "mul.Tensor", "--converter", "planted-complex")
    assert {row["dtype"] for row in wrong} >= {"complex64", "complex128"}
    right = {row["case_id"]: row for row in _run(tmp_path / "right", "--op", "mul.Tensor")}
    found = [row for row in wrong if (row["outcome"], right[row["case_id"]]["outcome"]) == ("mismatch", "pass")]
    # A few differ only by infinities in the other part, which is not a defect.
    settled = [row for row in found if row["blame"] != "spec"]
    assert len(settled) > len(wrong) / 4
    assert {(row["blame"], row["stage"]) for row in settled} == {("converter", "compare")}
    assert "values" in {row["signature"] for row in settled}


def test_a_converter_without_complex_numbers_is_unsupported(tmp_path: Path) -> None:
    found = _run(tmp_path, "--op", "mul.Tensor", "--converter", "torchscript")
    assert {(row["stage"], row["outcome"]) for row in found} == {("convert", "unsupported")}
    assert all("no complex numbers" in row["message"] for row in found)
