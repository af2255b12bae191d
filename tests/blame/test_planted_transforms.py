"""A transform that breaks a model is blamed for it, and one that keeps it right never is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness_runs import ROOT, environment, output, rows, run_harness, shared
from onnx_texts import saved

#: Transform → stage and outcome of what it breaks.
WRONG = {
    "wrong_sign": ("compare", "mismatch"),
    "dropped_cast": ("check", "error"),
    "lost_name": ("check", "error"),
    "unsorted": ("check", "error"),
    "raises": ("transform", "error"),
    "wrong_in_float16": ("compare", "mismatch"),
}
#: Transform → what it stores wrongly.
STORED = {
    "wrong_axis": "axis",
    "zero_point_off": "zero-point",
    "other_scale": "scale",
    "swapped_halves": "packing",
    "transposed": "transposed",
}
RIGHT = ("unchanged", "through_ir", "folded", "inlined")
OPERATORS = ("eq.Tensor", "logical_not.default", "_log_softmax.default", "clamp.default")

pytestmark = pytest.mark.slowest(60)


def conformance(*words: str | Path, status: int = 0) -> str:
    """Run a command in a process that has the transforms, and return what it prints."""
    done = shared().run("conformance", list(map(str, words)), ROOT, 300)
    assert done.returncode == status, output(done)
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of some operators with each transform, and without any."""
    directory = tmp_path_factory.mktemp("transforms") / "run"
    exports = ["dynamo", *(f"dynamo+{name}" for name in (*WRONG, *RIGHT))]
    done = run_harness(
        *(word for name in OPERATORS for word in ("--op", name)),
        *(word for export in exports for word in ("--converter", export)),
        *("--dtype", "float32", "--dtype", "float16", "--examples", "8", "--record-only", "--results-dir", directory),
    )
    assert done.returncode == 0, output(done)
    return directory


def blames(found: Sequence[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    """Return blame, component and place of the failures among some rows."""
    failing = [row for row in found if row["outcome"] in ("mismatch", "error", "unsupported", "crash")]
    return {(row["blame"], row["component"], row["place"]) for row in failing}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_transform_is_blamed_wherever_the_plain_export_is_right(name: str, run: Path) -> None:
    found = rows(run)
    right = {row["case_id"] for row in found if row["converter"] == "dynamo" and row["outcome"] == "pass"}
    broken = [row for row in found if row["converter"] == f"dynamo+{name}" and row["case_id"] in right]
    assert blames(broken) == {("transform", "transform", name)}
    ends = Counter((row["stage"], row["outcome"]) for row in broken if row["outcome"] != "pass")
    assert ends.most_common(1)[0][0] == WRONG[name]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_transform_is_never_blamed(name: str, run: Path) -> None:
    found = [row for row in rows(run) if row["converter"] == f"dynamo+{name}"]
    assert found
    assert "transform" not in {blame for blame, _, _ in blames(found)}


@pytest.mark.slow
def test_case_script_issue_and_replay_name_it_and_apply_it(run: Path, tmp_path: Path) -> None:
    row = next(r for r in rows(run) if r["converter"] == "dynamo+wrong_sign" and r["outcome"] == "mismatch")
    case, export = row["case_id"], ("--converter", "dynamo+wrong_sign")
    shown = json.loads(conformance("show", case, "--run", run, "--json", status=1))
    (verdict,) = (v for v in shown["verdicts"] if v["converter"] == "dynamo+wrong_sign")
    assert (verdict["component"], verdict["place"]) == ("transform", "wrong_sign")
    script = tmp_path / "script.py"
    conformance("repro", case, "--run", run, *export, "--out", script)
    done = subprocess.run([sys.executable, script], env=environment(), capture_output=True, text=True)
    assert done.returncode == 1, output(done)
    assert "from planted.transforms import wrong_sign" in script.read_text()
    issue = conformance("repro", case, "--run", run, *export, "--issue", "--out", "-")
    assert "wrong_sign" in issue
    replayed = tmp_path / "replayed"
    done = run_harness(*("--replay", run, "--case", case, *export, "--record-only", "--results-dir", replayed))
    assert done.returncode == 0, output(done)
    assert blames(rows(replayed)) == {("transform", "transform", "wrong_sign")}


@pytest.mark.slow
def test_programs_and_models_are_broken_by_it(tmp_path: Path) -> None:
    done = run_harness(
        *("--pattern", "conv-bn", "--examples", "8", "--shapes", "static", "--converter", "dynamo+wrong_sign"),
        *("--record-only", "--results-dir", tmp_path / "run"),
    )
    assert done.returncode == 0, output(done)
    assert ("transform", "transform", "wrong_sign") in blames(rows(tmp_path / "run"))
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), "
        "(torch.randn(2, 4),)\n"
    )
    converters = [word for name in ("wrong_sign", "through_ir") for word in ("--converter", f"dynamo+{name}")]
    answer = json.loads(conformance("check", f"{model}:make", *converters, "--json", status=1))
    wrong, right = answer["ways"]
    assert (wrong["owner"], right["survives"]) == ("transform", True)
    assert {"kind": "converter", "value": "dynamo", "helps": True} in wrong["remedies"]


def test_files_are_broken_by_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "file.onnx", "float[2,3] x", "float[2,3] y", "r = Relu (x) y = Add (r, x)")
    converters = [word for name in ("unsorted", "wrong_sign", "folded") for word in ("--converter", f"file+{name}")]
    unsorted, wrong, right = json.loads(conformance("check", path, *converters, "--json", status=1))["ways"]
    assert right["survives"]
    for way, place in ((unsorted, "unsorted"), (wrong, "wrong_sign")):
        assert (way["owner"], way["cause"]["component"], way["cause"]["place"]) == ("transform", "transform", place)


def test_what_a_quantiser_stores_wrongly_is_named_and_right_ones_are_not_blamed(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    spread = np.exp(random.normal(size=(1, 32)))
    weights = {name: (random.normal(size=(32, 32)) * spread).astype(np.float32) for name in "wv"}
    text = ("float[4,32] x", "float[4,32] z", "y = MatMul (x, w) q = Relu (y) z = MatMul (q, v)")
    path = saved(tmp_path / "two.onnx", *text, **weights)
    right = ("quantize-static", "quantize-static-qoperator-per-channel-reduce-range", "quantize-dynamic", "int4")
    transforms = [word for name in (*STORED, *right) for word in ("--transform", name)]
    ways = json.loads(conformance("check", path, *transforms, "--json", status=1))["ways"]
    causes = {way["converter"].partition("+")[2]: way["cause"] for way in ways}
    assert {name: causes[name] for name in right} == dict.fromkeys(right)
    found = {name: (causes[name]["place"], causes[name]["fault"], causes[name]["symptom"]) for name in STORED}
    assert found == {name: (name, "wrong-steps", change) for name, change in STORED.items()}
