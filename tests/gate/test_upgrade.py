"""`conformance upgrade`: what differs from the baseline, with the versions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness_runs import ROOT, output, run_harness
from recorded_run import conformance

from harness.gate.after_upgrade import attribute_to_machine, measure_upgrade
from harness.gate.baseline.gate import BaselineFinding
from harness.gate.diff_inputs import BaselineComparison, ReportedDifference, compare_sides, find_side

OTHER = ("-p", "no:cacheprovider")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a baseline of erf, said to be made with an older ONNX Runtime.

    It expects a mismatch of erf in float16 that there is none of any more, and passes in float64.
    """
    directory = tmp_path_factory.mktemp("project")
    base = directory / "golden" / "baseline"
    done = run_harness(
        *("--op", "erf", "--examples", "24", "--shrink", "0", "--baseline", base, "--update-baseline"),
        *("--results-dir", directory / "first"),
    )
    assert done.returncode == 0, output(done)
    info = base / "baseline.json"
    data = json.loads(info.read_text())
    data["versions"]["backend ort-cpu"] = "1.0"
    info.write_text(json.dumps(data))
    edited: list[str] = []
    for line in (base / "pointwise.txt").read_text().splitlines():
        parts = line.split()
        if parts[:1] == ["float16"]:
            cases = parts[3]
            edited += [
                f"  float16 dynamo ort-cpu {cases} {parts[4]} pass 0",
                f"    mismatch compare {cases} values",
            ]
        elif parts[:1] == ["float64"]:
            edited.append(line.replace("pass 0", f"pass {parts[3].partition('/')[0]}"))
        elif not (line.startswith("    ") and edited[-1].startswith("  float64")):
            edited.append(line)
    (base / "pointwise.txt").write_text("\n".join(edited) + "\n")
    return directory


def test_what_moved_is_listed_and_taken_over(project: Path) -> None:
    done = conformance("upgrade", "--json", "--results-dir", "run", *OTHER, cwd=project)
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    assert data["versions"]["backend ort-cpu"]["before"] == "1.0"
    assert {(d["finding"], d["dtype"]) for d in data["differences"]} == {
        ("regression", "float64"),
        ("expected failure that passes", "float16"),
    }
    assert {d["why"] for d in data["differences"]} == {"other versions: backend ort-cpu"}
    assert data["worse"] == 1
    taken = conformance("upgrade", "--accept", "--results-dir", "taken", *OTHER, cwd=project)
    assert taken.returncode == 0, taken.stderr
    assert "backend ort-cpu: 1.0 → " in taken.stdout
    assert "1 worse than expected" in taken.stdout
    assert "Could not find an implementation for Erf" in (project / "golden/baseline/pointwise.txt").read_text()
    assert '"1.0"' not in (project / "golden/baseline/baseline.json").read_text()
    compared = conformance("diff", "golden/baseline", "taken", "--fail-on", "change", cwd=project)
    assert compared.returncode == 0, compared.stdout


def test_a_missing_or_unknown_name_is_one_line(tmp_path: Path) -> None:
    done = conformance("upgrade", cwd=tmp_path)
    assert done.returncode == 2
    assert "golden/baseline holds no baseline" in done.stderr
    done = conformance("upgrade", "--op", "erff", cwd=ROOT)
    assert done.returncode == 2
    assert "near: aten.erf.default" in done.stderr


def difference(**changes: Any) -> ReportedDifference:
    fields: dict[str, Any] = {
        "finding": BaselineFinding.DRIFT,
        "overload": "aten.erf.default",
        "dtype": "float32",
        "converter": "dynamo",
        "backend": "ort-cpu",
        "shape_mode": "static",
        "what": "errors have grown",
    }
    return ReportedDifference(**{**fields, **changes})


def test_what_differs_without_an_upgrade_is_the_machines(tmp_path: Path) -> None:
    improved = difference(finding=BaselineFinding.IMPROVEMENT)
    found = BaselineComparison(differences=(difference(), improved), same=2)
    told = attribute_to_machine(found, tmp_path / "baseline", tmp_path / "run", tmp_path / "releases")
    assert [one.finding for one in told.differences] == [BaselineFinding.MACHINE, BaselineFinding.IMPROVEMENT]
    assert told.worse == 0
    # Without a release to ask nothing is attribute_to_machine.
    versions = {"onnxruntime": ("0.0.1", "1.0")}
    unknown = replace(found, versions=versions)
    assert attribute_to_machine(unknown, tmp_path / "baseline", tmp_path / "run", tmp_path / "releases").worse == 1


@pytest.mark.slow
def test_what_the_earlier_release_does_here_too_is_the_machines(tmp_path: Path) -> None:
    """A baseline that expects passes of float64, for which ONNX Runtime has no kernel."""
    base = tmp_path / "baseline"
    words = ("--op", "erf", "--examples", "24", "--shrink", "0", "--converter", "dynamo", "--backend", "ort-cpu")
    done = run_harness(*words, "--baseline", base, "--update-baseline", "--results-dir", tmp_path / "first")
    assert done.returncode == 0, output(done)
    lines = (base / "pointwise.txt").read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("  float64"))
    cases = lines[place].split()[3].partition("/")[0]
    lines[place] = lines[place].replace("pass 0", f"pass {cases}")
    (base / "pointwise.txt").write_text("\n".join([*lines[: place + 1], *lines[place + 2 :]]) + "\n")
    now = done_versions(base)["onnxruntime"]
    found = compare_sides(find_side(str(base)), find_side(str(tmp_path / "first")))
    assert [one.finding for one in found.differences] == [BaselineFinding.REGRESSION]
    upgraded = replace(found, versions={"onnxruntime": (now, "999.0")})
    told = attribute_to_machine(upgraded, base, tmp_path / "earlier", tmp_path / "releases", OTHER)
    assert [one.finding for one in told.differences] == [BaselineFinding.MACHINE]
    assert f"onnxruntime {now} does the same on this machine" in told.differences[0].why


def done_versions(base: Path) -> dict[str, str]:
    versions: dict[str, str] = json.loads((base / "baseline.json").read_text())["versions"]
    return versions


@pytest.mark.thorough
def test_the_cost_of_a_call_is_compared_with_the_earlier_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("import torch\ndef make(): return torch.nn.Linear(4, 3), (torch.ones(2, 4),)\n")
    versions = {"onnxruntime": ("1.30.0", "1.32.0")}
    (figures,) = measure_upgrade(["model.py:make"], versions, tmp_path / "releases")
    assert not figures.problem
    assert {str(change.figure) for change in figures.changes} >= {"ms", "memory"}
    (same,) = measure_upgrade(["model.py:make"], {}, tmp_path / "releases")
    assert same.problem
