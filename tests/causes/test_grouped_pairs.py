"""Pairs of failures for a judge who does not see their groups."""

from __future__ import annotations

import json
from pathlib import Path

from grouped_pairs import count_mistakes, write
from harness_runs import record_of, unary

from harness.compare.verdict import Outcome, Stage

WRONG = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH, "blame": "converter", "signature": "shape"}


def test_a_judge_sees_two_cases_and_no_group(tmp_path: Path) -> None:
    calls = [unary(f"aten.{name}.default", [1.0]) for name in ("conv1d", "conv2d", "conv3d")]
    rejected = "InferenceError: [ShapeInferenceError] (op_type:Conv): unsupported type"
    how = {"stage": Stage.CHECK, "outcome": Outcome.ERROR, "blame": "converter", "signature": rejected}
    one = record_of(tmp_path / "one", calls, **how)
    two = record_of(tmp_path / "two", calls, **WRONG)
    write([one, two], tmp_path / "blind", pairs=4, seed=0, blind=True)
    assert "- blame: " not in (tmp_path / "blind" / "pairs.md").read_text()
    write([one, two], tmp_path / "pairs", pairs=4, seed=0)
    text = (tmp_path / "pairs" / "pairs.md").read_text()
    key = json.loads((tmp_path / "pairs" / "key.json").read_text())
    assert text.count("# Pair ") == text.count("- blame: converter") // 2 == 8
    assert text.count("\n## A: `aten.") == text.count("\n## B: `aten.") == 8
    assert "_aten_convolution_onnx" not in text
    assert sorted(pair["same"] for pair in key.values()) == [False] * 4 + [True] * 4
    assert all(len(set(pair["groups"])) == 2 - pair["same"] for pair in key.values())
    judged = tmp_path / "judged.txt"
    judged.write_text("".join(f"{number} one\n" for number in key))
    *wrong, same, other = count_mistakes(tmp_path / "pairs", judged)
    assert len(wrong) == 4
    assert same == "0 of 4 pairs of one group are two defects (0.0%)"
    assert other == "4 of 4 pairs of two groups are one defect (100.0%)"
