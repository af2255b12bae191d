"""A runtime's claims choose what runs, and are answered one by one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import answered, typed

from harness.generate.case_library import load_onnx_cases
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.plan.profile import read_profile

CLAIMS = """
opsets = [13, 18]
[operators]
Relu = ["float32"]
ReduceMin = "all"
"Add.14" = ["float32", "float16"]
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(CLAIMS)
    return path


def test_a_profile_chooses_operators_versions_dtypes_and_operator_sets(profile: Path) -> None:
    plan = make_plan(Options(sources=("onnx",), profile=str(profile), shapes="static"))
    units = {unit.overload: (unit.dtypes, unit.route.opset) for unit in plan.units}
    assert units == {
        # Of Relu's versions those are claimed that opset 13 or 18 has.
        "ai.onnx.Relu.13": (("float32",), 13),
        "ai.onnx.Relu.14": (("float32",), 18),
        "ai.onnx.ReduceMin.13": (None, 13),
        "ai.onnx.ReduceMin.18": (None, 18),
        "ai.onnx.Add.14": (("float32", "float16"), 18),
    }


@pytest.mark.parametrize(
    ("text", "names"),
    {
        "unknown-operator": ("[operators]\nRelluu = 'all'", "Relu"),
        "no-table": ("opsets = [18]", "operators"),
        "no-dtypes": ("[operators]\nRelu = []", "Relu"),
        "no-number": ("opsets = ['x']\n[operators]\nRelu = 'all'", "opsets"),
        "no-toml": ("[operators", "mine.toml"),
    }.values(),
)
def test_what_is_wrong_with_a_profile_is_one_line(tmp_path: Path, text: str, names: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageProblem) as raised:
        read_profile(path, tuple(load_onnx_cases()))
    assert names in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_each_claim_has_an_outcome(profile: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "pytest", "harness", "--onnx", "--profile", str(profile), "--examples", "32"]
    subprocess.run([*command, "--results-dir", str(run), "-p", "no:cacheprovider"], capture_output=True, check=False)
    claims = {
        claim["overload"]: claim["outcome"] for claim in answered("profile", profile, "--run", run, status=1)["claims"]
    }
    # ONNX Runtime loses NaN in minima.
    assert claims["ai.onnx.ReduceMin.18"] == "FAIL"
    assert claims["ai.onnx.Relu.14"] == claims["ai.onnx.Add.14"] == "PASS"
    assert "EXCLUDED" in typed("profile", profile, "--run", run, status=1).stdout
