"""The README's walk-through: a wrong rule is caught, blamed and shrunk, then mended: the gate is green."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness_runs import output, run_harness
from recorded_run import conformance

pytestmark = pytest.mark.slowest(13)

WRONG = """
from onnxscript import opset18 as op

from harness.convert.rules import dynamo


@dynamo("aten::celu")
def celu(self, alpha=1.0):
    return op.CastLike(op.Celu(op.Cast(self, to=1)), self)  # wrong: alpha is dropped
"""
RIGHT = WRONG.replace("to=1))", "to=1), alpha=alpha)")


@pytest.mark.slow
def test_a_wrong_rule_is_found_mended_and_gated(tmp_path: Path) -> None:
    rules, base, run = tmp_path / "my_rules.py", tmp_path / "baseline", tmp_path / "run"
    done = run_harness(
        *("--op", "celu", "--examples", "64", "--shrink", "0"),
        *("--baseline", base, "--update-baseline", "--results-dir", tmp_path / "first"),
    )
    assert done.returncode == 0, output(done)
    gate = ("--rules", rules, "--baseline", base, "--shrink", "0", "--results-dir")
    rules.write_text(WRONG)
    done = run_harness(*gate, run)
    assert done.returncode == 1, output(done)
    said = done.stdout.partition("Compared with the baseline")[2]
    assert "[rule: the converter's own → my_rules.py:celu]" in said
    case = re.search(r"celu\.default float16, .*: mismatch at compare \(values\): 0 of .*; case (\w+)", said)
    assert case is not None, said
    shown = json.loads(conformance("show", case[1], "--run", run, "--json", cwd=tmp_path).stdout)
    assert {verdict["blame"] for verdict in shown["verdicts"]} == {"converter"}
    shrunk = conformance("shrink", run, "--case", case[1], "--json", cwd=tmp_path)
    minimal = json.loads(shrunk.stdout.splitlines()[0])
    assert minimal["elements"] == 1
    assert minimal["blame"] == "converter"
    assert any("alpha" in sentence for sentence in minimal["matters"]), minimal
    rules.write_text(RIGHT)
    done = run_harness(*gate, tmp_path / "again")
    assert done.returncode == 0, output(done)
    assert "nothing differs" in done.stdout.partition("Compared with the baseline")[2]
