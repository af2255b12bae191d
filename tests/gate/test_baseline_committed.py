"""The baseline of this repository is green on an unchanged tree, whichever kernels PyTorch and oneDNN choose."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from harness_runs import ROOT, command, environment, output

from harness.gate.baseline.file import read_baseline

pytestmark = pytest.mark.slowest(31)

BASELINE = ROOT / "golden" / "baseline"
#: Operators whose kernels sum, or approximate a function.
OPERATORS = ("aten.softmax.int", "aten.addmm.default", "aten.convolution.default")
APPROXIMATED = ("aten.gelu.default", "aten.exp.default")


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({}, id="this processor", marks=pytest.mark.slow),
        pytest.param({"ATEN_CPU_CAPABILITY": "default"}, id="no vector instructions", marks=pytest.mark.thorough),
        pytest.param({"ONEDNN_MAX_CPU_ISA": "SSE41"}, id="SSE 4.1", marks=pytest.mark.thorough),
    ],
)
def test_the_committed_baseline_is_green(setting: dict[str, str], tmp_path: Path) -> None:
    recorded_with = read_baseline(BASELINE).versions
    for name in ("torch", "onnxscript", "onnxruntime"):
        if metadata.version(name).partition("+")[0] != recorded_with[name].partition("+")[0]:
            pytest.skip(f"recorded with {name} {recorded_with[name]}")
    operators = [word for name in (*OPERATORS, *APPROXIMATED) for word in ("--op", name)]
    chosen = (*operators, "--converter", "dynamo", "--backend", "ort-cpu", "--baseline", str(BASELINE))
    words = command(*chosen, "--results-dir", tmp_path / "run")
    done = subprocess.run(
        words, cwd=ROOT, env={**environment(), **setting}, timeout=300, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, output(done)
    assert "Compared with the baseline" in done.stdout
