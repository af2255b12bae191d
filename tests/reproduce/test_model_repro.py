"""`conformance repro` of models: the smallest call or graph that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import answered, typed
from onnx_texts import saved

pytestmark = pytest.mark.slowest(30)

MODELS = '''
import torch
from torch import nn

class Pooled(nn.Module):
    """A known defect of one operator in the middle."""
    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, divisor_override=2)
    def forward(self, x):
        return self.pool(torch.relu(self.conv(x)))

def pooled():
    return Pooled(), (torch.randn(1, 3, 12, 12),)

def right():
    return nn.Linear(3, 2), (torch.randn(2, 3),)

class Emptied(nn.Module):
    """ONNX Runtime takes an Expand to no elements for one that changes nothing, where something is behind it."""
    def forward(self, x):
        return torch.sin(x).unsqueeze(1).expand(-1, 0, -1).sum(1) + 1

def emptied():
    return Emptied(), (torch.randn(2, 3),)

class Guarded(nn.Module):
    """The exporter's optimiser takes a small constant for 0."""
    def __init__(self):
        super().__init__()
        self.register_buffer("small", torch.tensor(1e-8))
    def forward(self, x):
        zero = torch.relu(x) - torch.relu(x) * 1.0
        return torch.sin(1 / (zero.sum(-1) + self.small))

def guarded():
    return Guarded(), (torch.randn(3, 4),)
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with the models."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mods.py").write_text(MODELS)
    return tmp_path


#: Relu and Clip between two operators that are right.
FUSED = ("double[n,3] x", "double[n,3] y", "a = Sin (x) b = Relu (a) c = Clip (b, low, high) y = Cos (c)")
BOUNDS = {"low": 0.0, "high": 6.0}


@pytest.mark.slow
def test_a_call_that_fails_alone_is_shrunk_and_written(here: Path) -> None:
    found = answered("repro", "mods.py:pooled")
    assert found["reproduces"]
    assert "avg_pool2d" in found["script"]
    assert "Conv2d" not in found["script"]
    assert found["path"] == "repro_mods_pooled.py"
    assert (here / "repro_mods_pooled.py").read_text() == found["script"]


def test_the_fewest_nodes_that_an_optimiser_breaks_are_written(here: Path) -> None:
    found = answered("repro", saved(here / "model.onnx", *FUSED, **BOUNDS))
    assert found["reproduces"]
    assert "Relu" in found["script"]
    assert "Clip" in found["script"]
    assert "Cos" not in found["script"]
    assert "Sin" not in found["script"]
    assert "FuseReluClip" in found["script"]
    done = subprocess.run([sys.executable, found["path"]], cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "The defect is there." in done.stdout


@pytest.mark.slow
def test_the_fewest_nodes_that_the_exporters_optimiser_breaks_are_written(here: Path) -> None:
    found = answered("repro", "mods.py:guarded", "--issue")
    assert found["reproduces"]
    assert "onnxscript.optimizer.optimize(model)" in found["script"]
    assert [name for name in ("Sin", "Relu", "Mul", "Add") if f"{name} (" in found["script"]] == ["Add"]
    report = Path(found["path"]).read_text()
    assert "microsoft/onnxscript" in report.splitlines()[0]
    assert "identity of Add" in report
    assert "the same graph gives as it is" in report


@pytest.mark.slow
def test_of_a_model_whose_calls_pass_alone_a_part_of_the_graph_is_written(here: Path) -> None:
    found = answered("repro", "mods.py:emptied")
    assert found["reproduces"]
    assert "Expand" in found["script"]
    assert "Sin" not in found["script"]
    assert "ExpandElimination" in found["script"]
    assert "import torch" not in found["script"]


def test_an_issue_names_the_optimiser(here: Path) -> None:
    path = saved(here / "model.onnx", *FUSED, **BOUNDS)
    found = answered("repro", path, "--issue")
    assert found["issue"].startswith(
        "<!-- for https://github.com/microsoft/onnxruntime/issues/new -->\n# Relu and Clip"
    )
    assert "The result is right without FuseReluClip." in found["issue"]


def test_a_wrong_node_is_written_with_plain_numbers(here: Path) -> None:
    # 28 times the float32 next to 4/28 is not 4.
    how = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    text = ("float[1,1,28,28] x", "float[1,1,4,4] y", f'y = Resize <{how}> (x, "", "", sizes)')
    path = saved(here / "model.onnx", *text, sizes=[1, 1, 4, 4])
    found = answered("repro", path)
    assert found["reproduces"]
    assert "np.arange(784)" in found["script"]
    assert found["attachments"] == []


def test_a_file_that_is_wrong_itself_is_no_defect_of_a_runtime(here: Path) -> None:
    text = ("float[2,4] x", "float[2,4] y", "y = Dropout (x, ratio, train)")
    path = saved(here / "model.onnx", *text, ratio=np.float32(1), train=np.bool_(True))
    done = typed("repro", path, status=1)
    assert "is wrong itself, at Dropout" in done.output


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["mods.py:right"], "right survives: there is nothing to reproduce"),
        (["mods.py:right", "--run", "results"], "--run is for recorded cases; mods.py:right is a model"),
        (["mods.py:right", "--inputs", "x.npz"], "--inputs x.npz: no such file or folder"),
        (["none.onnx"], "file not found: none.onnx"),
        (["3f9c", "--axis", "x:0=1..8"], "--axis is for models; 3f9c is a case"),
    ],
)
def test_what_is_wrong_is_one_line(here: Path, words: list[str], line: str) -> None:
    assert line in typed("repro", *words, status=(1, 2)).output
