"""`conformance check --inputs FOLDER --preprocess`: a user's files are the runs, and two preparations are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import checked, typed

from harness.models.preprocessing import tensor_difference

PREPARATIONS = """
import numpy as np


def ours(path):
    x = np.load(path).astype(np.float32) / 255
    return ((x - 0.5) / 0.25).transpose(2, 0, 1)[None]


def reversed_channels(path):
    x = np.load(path)[..., ::-1].astype(np.float32) / 255
    return ((x - 0.5) / 0.25).transpose(2, 0, 1)[None]


def same(path):
    return {"": ours(path)}


def fails(path):
    raise OSError("no such codec")
"""

MODEL = """
import torch


def make():
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.Linear(4, 5)).eval(), (torch.randn(1, 3, 8, 8),)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, its preparations, and a folder with pictures."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "prepare.py").write_text(PREPARATIONS)
    (tmp_path / "pictures").mkdir()
    random = np.random.default_rng(0)
    for i in range(3):
        np.save(tmp_path / "pictures" / f"{i}.npy", random.integers(0, 255, size=(8, 8, 3)).astype(np.uint8))
    return tmp_path


def words(folder: Path, *functions: str) -> list[str]:
    """Return the words of a check with these preparations."""
    prepared = [word for name in functions for word in ("--preprocess", f"{folder / 'prepare.py'}:{name}")]
    return [f"{folder / 'model.py'}:make", "--inputs", str(folder / "pictures"), *prepared]


def test_each_file_is_a_run_and_has_its_accuracy(folder: Path) -> None:
    (way,) = checked(*words(folder, "ours"))["ways"]
    assert [run["change"] for run in way["runs"]] == ["0.npy", "1.npy", "2.npy"]
    assert [run["inputs"] for run in way["accuracy"]] == ["0.npy", "1.npy", "2.npy"]
    assert all(run["rows"] == 1 and run["top1"] == 0 for run in way["accuracy"])


def test_a_quantiser_is_calibrated_with_the_files(folder: Path) -> None:
    (way,) = checked(*words(folder, "ours"), "--transform", "quantize-static")["ways"]
    assert min(run["sqnr"] for run in way["accuracy"]) > 25


def test_two_preparations_are_compared_before_the_model_is(folder: Path) -> None:
    found = checked(*words(folder, "ours", "reversed_channels"), status=1)
    assert {(d["file"], d["kind"]) for d in found["preprocessing"]["differences"]} == {
        (f"{i}.npy", "channels") for i in range(3)
    }
    assert found["ways"][0]["survives"]
    assert checked(*words(folder, "ours", "same"))["preprocessing"]["differences"] == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda x: x, None),
        (lambda x: x + 1e-6, None),
        (lambda x: x.transpose(0, 2, 3, 1), "layout"),
        (lambda x: x[:, ::-1], "channels"),
        (lambda x: x * 255, "scale"),
        (lambda x: x * np.reshape([1.0, 2.0, 3.0], (1, 3, 1, 1)) + 1, "scale-per-channel"),
        (lambda x: x[..., 1:], "shape"),
        (lambda x: np.roll(x, 1, -1), "values"),
        (lambda x: x.astype(np.float64), "dtype"),
    ],
)
def test_what_explains_a_difference_is_found(change: object, kind: str | None) -> None:
    x = np.random.default_rng(0).normal(size=(1, 3, 6, 6)).astype(np.float32)
    found = tensor_difference(x, np.ascontiguousarray(change(x)))  # type: ignore[operator]
    assert (found.kind if found else None) == kind
    if kind == "scale":
        assert found is not None
        assert found.scale == pytest.approx([255])


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--preprocess", "prepare.py:fails"], "prepare.py:fails: OSError: no such codec"),
        (["--preprocess", "prepare.py:nothing"], "has no function 'nothing'"),
        (["--preprocess", "nowhere.py:load"], "nowhere.py:load names no function: FILE.py:FUNCTION is wanted"),
        ([], "must be float32"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(
    folder: Path, more: list[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = typed("check", f"{folder / 'model.py'}:make", "--inputs", "pictures", *more, status=2)
    assert line in " ".join(done.output.split())


def test_inputs_of_a_file_may_be_a_folder_of_backend_tests(tmp_path: Path) -> None:
    import onnx
    from onnx_texts import saved

    path = saved(tmp_path / "add.onnx", "float[n] x, float[n] w", "float[n] y", "y = Add (x, w)")
    data = tmp_path / "test_data_set_0"
    data.mkdir()
    for i in range(2):
        tensor = onnx.numpy_helper.from_array(np.full(3, i, np.float32))
        (data / f"input_{i}.pb").write_bytes(tensor.SerializeToString())
    (way,) = checked(path, "--inputs", data)["ways"]
    assert [run["change"] for run in way["runs"]] == ["given inputs"]
