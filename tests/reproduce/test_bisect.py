"""`conformance bisect`: which release of a package changed a verdict."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from commands import answered, typed
from harness_runs import unary
from hypothesis import given, settings, strategies as st
from onnx_texts import saved

from harness.core.invocation import Invocation
from harness.reproduce.releases import (
    Rerun,
    Verdicts,
    confirmed_verdicts,
    control_words,
    install_release,
    search_releases,
    verdicts_of,
)

OLD, NEW = Verdicts("mismatch"), Verdicts("pass")
MISSING = Verdicts("", "no wheel")


@settings(max_examples=300, deadline=None)
@given(
    missing=st.lists(st.booleans(), min_size=1, max_size=25),
    at=st.integers(min_value=0, max_value=25),
)
def test_the_change_lies_between_the_last_old_and_the_first_new_verdict(missing: list[bool], at: int) -> None:
    releases = [f"1.{place}" for place in range(len(missing))]
    truth = [MISSING if m else OLD if i < at else NEW for i, m in enumerate(missing)]
    asked: list[str] = []

    def ask(release: str) -> Verdicts:
        asked.append(release)
        return truth[releases.index(release)]

    found = search_releases(releases, ask)
    olds = [r for r, one in zip(releases, truth, strict=True) if one is OLD]
    news = [r for r, one in zip(releases, truth, strict=True) if one is NEW]
    assert len(asked) == len(set(asked))
    assert list(found.tried) == [release for release in releases if release in asked]
    if olds and news:
        assert (found.before, found.after) == (olds[-1], news[0])
        # All between them were tried, or they could be the change.
        assert list(found.between) == releases[releases.index(olds[-1]) + 1 : releases.index(news[0])]
    else:
        assert (found.before, found.after, found.between) == ("", "", ())


def test_few_releases_are_asked() -> None:
    releases = [str(number) for number in range(64)]
    found = search_releases(releases, lambda release: OLD if int(release) < 41 else NEW)
    assert (found.before, found.after) == ("40", "41")
    assert len(found.tried) <= 2 + 6


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    call = unary("aten.celu.default", [0.5, -1.0], "float64")
    path = tmp_path_factory.mktemp("bisect") / "celu.json"
    path.write_text(Invocation(call.overload, (*call.arguments, ("alpha", 0.3))).json)
    return path


@pytest.mark.thorough
def test_a_case_is_rerun_with_each_release(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.parent)
    releases = ("--package", "onnxscript", "--from", "0.7.1", "--to", "0.7.2")
    way = ("--converter", "dynamo", "--backend", "onnx-reference")
    said = answered("bisect", case, *releases, *way, status=1)
    assert [one["release"] for one in said["tried"]] == ["0.7.1", "0.7.2"]
    for one in said["tried"]:
        assert one["verdict"].startswith("dynamo → onnx-reference: mismatch at compare: ")
    # Installed once: what is there is taken again.
    kept = case.parent / ".conformance" / "releases"
    assert len(list(kept.glob("onnxscript-0.7.*"))) == 2
    assert not install_release("onnxscript", "0.7.2", kept).problem


def test_a_release_that_does_not_go_with_the_others_has_no_verdict() -> None:
    verdict = {"converter": "dynamo", "backend": "ort-cpu", "stage": "convert", "outcome": "error"}
    lacking = "ModuleNotFoundError: No module named 'onnxscript._framework_apis.torch_2_11'"
    found = verdicts_of([verdict | {"signature": lacking, "message": lacking}], "onnxscript", "0.5.7")
    assert not found.outcome
    assert found.missing == f"onnxscript 0.5.7 does not go with the other packages: {lacking}"
    other = {"signature": "IndexError: <n>", "message": "IndexError: 7"}
    found = verdicts_of([verdict | other], "onnxscript", "0.6.0")
    assert found == Verdicts(
        "dynamo → ort-cpu: error at convert: IndexError: <n>",
        shown="dynamo → ort-cpu: error at convert: IndexError: 7",
        ways=(("dynamo", "ort-cpu"),),
    )


@pytest.mark.slow
def test_a_release_that_runs_not_even_the_control_has_no_verdict(tmp_path: Path) -> None:
    # Stands before the installed package, and cannot be imported.
    broken = tmp_path / "onnxruntime-0.0.1"
    (broken / "onnxruntime").mkdir(parents=True)
    (broken / "onnxruntime" / "__init__.py").write_text("import os\nos.abort()\n")
    case = tmp_path / "case.json"
    case.write_text(unary("aten.relu.default", [1.0]).json)
    rerun = Rerun(["replay", str(case), "--converter=dynamo", "--backend=ort-cpu"], tmp_path)
    found = confirmed_verdicts(rerun, str(case), "onnxruntime", "0.0.1", broken)
    assert not found.outcome
    assert found.missing


@pytest.mark.slow
def test_models_and_files_are_checked(tmp_path: Path) -> None:
    (tmp_path / "mods.py").write_text(
        "import torch\n\n\nclass Pooled(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.nn.functional.avg_pool2d(x, 2, divisor_override=3)\n\n\n"
        "def pooled():\n    return Pooled(), (torch.ones(1, 1, 4, 4),)\n"
    )
    saved(tmp_path / "relu.onnx", "float[2] x", "float[2] y", "y = Relu (x)", opset=17, ir=9)

    def asked(*words: str) -> Verdicts:
        return Rerun(["check", *words], tmp_path).verdicts("onnxscript", "of today", tmp_path / "none")

    passed = "file → ort-cpu: pass"
    assert asked("relu.onnx") == Verdicts(passed, shown=passed, passes=True, ways=(("file", "ort-cpu"),))
    found = asked("mods.py:pooled", "--converter=dynamo")
    assert found.outcome.startswith("dynamo → ort-cpu: mismatch at compare")
    assert found.ways == (("dynamo", "ort-cpu"),)


def test_the_control_of_a_file_has_its_versions(tmp_path: Path) -> None:
    saved(tmp_path / "abs.onnx", "float[2] x", "float[2] y", "y = Abs (x)", opset=17, ir=9)
    command, word, *options = control_words(str(tmp_path / "abs.onnx"), [("", "ort-cpu")], tmp_path)
    assert command == "check"
    control = onnx.load(word)
    assert (control.ir_version, control.opset_import[0].version) == (9, 17)
    assert [node.op_type for node in control.graph.node] == ["Relu"]
    assert options == ["--backend=ort-cpu"]


def test_a_release_without_a_wheel_is_explained(tmp_path: Path) -> None:
    found = install_release("onnxruntime", "1.2.0", tmp_path)
    assert found.problem.startswith("onnxruntime 1.2.0 has no wheel for Python 3.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "99"], "onnxscript has no release from 99 to"),
        (["--from", "soon"], "'soon' is not a version; write one as 1.20.0"),
    ],
)
def test_bad_ranges_get_one_line(case: Path, words: list[str], said: str) -> None:
    done = typed("bisect", case, "--package", "onnxscript", *words, status=2)
    assert said in done.stderr.splitlines()[-1]
