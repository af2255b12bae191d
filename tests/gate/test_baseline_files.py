"""A baseline on disk: damage is said in a line, and nothing is mixed that does not belong together."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from commands import entered
from harness_runs import output, row_of, run_harness, unary

from harness.app import baseline_option
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.gate.baseline.cell_text import decode, encode
from harness.gate.baseline.cells import BaselineCell
from harness.gate.baseline.count_cells import cells_of
from harness.gate.baseline.file import Baseline, read_baseline, update, write_baseline
from harness.plan.options import UsageProblem
from harness.record.layout import ResultsError

VERSIONS = {"torch": "2.13", "backend ort-cpu": "1.31", "converter dynamo": "a"}
OPTIONS = {"seed": 0, "examples": 64, "values": 4}


def verdicts(overload: str = "aten.relu.default", dtype: str = "float32") -> list[Verdict]:
    """Twelve structures that pass, four that do not."""
    found = []
    for size in range(1, 17):
        invocation = unary(overload, [float(size)] * size, dtype)
        more: dict[str, Any] = {"max_ulp_error": size / 4}
        if size > 12:
            signature = "values" if size > 13 else "TypeError: no # such  kernel"
            more = {"outcome": Outcome.MISMATCH, "stage": Stage.COMPARE, "signature": signature}
        row = row_of(invocation, structure_id=invocation.structure_id, family="activation", **more)
        found.append(row)
    return found


def baseline(*rows: Verdict, **more: Any) -> Baseline:
    return Baseline({cell.key: cell for cell in cells_of(rows)}, VERSIONS, OPTIONS, **more)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Two families."""
    other = [replace(v, family="pointwise") for v in verdicts("aten.neg.default")]
    write_baseline(tmp_path / "base", baseline(*verdicts(), *verdicts(dtype="float64"), *other))
    return tmp_path / "base"


def diff(*words: str | Path) -> Result:
    return entered("diff", *words)


def every_kind_of_cell() -> list[BaselineCell]:
    """Cells that use every part of the format."""
    rows = verdicts()
    dynamic = [replace(v, shape_mode="dynamic", exported_invocation=v.invocation) for v in rows]
    ruled = [replace(v, backend="onnx-api:mod.a", rule="my rules.py:relu, b.py:f") for v in rows]
    narrowed = [replace(v, dtype="float64", outcome=Outcome.NARROWED, stage=Stage.LOAD) for v in rows]
    all_fail = [replace(v, dtype="int8", outcome=Outcome.UNSUPPORTED, stage=Stage.CONVERT, signature="") for v in rows]
    return cells_of([*rows, *dynamic, *ruled, *narrowed, *all_fail], flaky={rows[0].case_key})


def test_what_is_written_is_read() -> None:
    cells = every_kind_of_cell()
    assert len({(cell.dtype, cell.backend, cell.shape_mode) for cell in cells}) == 5
    assert {cell.key: cell for cell in decode(encode(cells), "activation")} == {cell.key: cell for cell in cells}


def test_the_order_is_stable_and_a_change_is_a_line(tmp_path: Path) -> None:
    rows = [*verdicts(), *verdicts(dtype="float64")]
    write_baseline(tmp_path / "a", baseline(*rows))
    write_baseline(tmp_path / "b", baseline(*reversed(rows)))
    first, second = ((tmp_path / name / "activation.txt").read_text() for name in "ab")
    assert first == second
    worse = replace(rows[0], outcome=Outcome.CRASH, stage=Stage.RUN, signature="killed")
    write_baseline(tmp_path / "b", baseline(worse, *rows[1:]))
    changed = set((tmp_path / "b" / "activation.txt").read_text().splitlines()) ^ set(first.splitlines())
    assert len(changed) == 3, changed


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("baseline.json", "{", "base/baseline.json is damaged"),
        ("baseline.json", '{"format": 99}', "format 99, this harness reads 1"),
        ("baseline.json", '{"format": 1}', "baseline.json is damaged (no `options`)"),
        ("activation.txt", None, "base/activation.txt is missing; restore it from version control"),
        ("activation.txt", "<<<<<<< HEAD\n", "activation.txt:1: not a line of a baseline"),
        ("activation.txt", "=======\n", "activation.txt:1: not a line of a baseline"),
        ("activation.txt", "aten.relu.default\n  float32 dynamo\n", "activation.txt:2: not a line"),
        ("activation.txt", "    mismatch compare 1/1 values\n", "activation.txt:1: not a line"),
        (
            "activation.txt",
            "aten.relu.default\n  float32 dynamo ort-cpu 1/1 #a pass 0\n    wrong compare 1/1 x\n",
            "'wrong' is not a valid Outcome",
        ),
        ("activation.txt", "aten.relu.default\n  float32 dynamo ort-cpu 1/1 #a pass 1", "ends within a line"),
    ],
)
def test_damage_is_named_in_one_line(base: Path, name: str, damage: str | None, said: str) -> None:
    if damage is None:
        (base / name).unlink()
    else:
        (base / name).write_text(damage)
    done = diff(base, base)
    assert done.exit_code == 2
    (line,) = done.output.splitlines()
    assert said in line


def test_a_run_against_a_damaged_or_missing_baseline_ends_at_once(base: Path, tmp_path: Path) -> None:
    (base / "activation.txt").write_text("nonsense\n")
    done = run_harness("--op", "relu", "--baseline", base)
    assert done.returncode == 4, output(done)
    assert f"{base}/activation.txt:1: not a line of a baseline" in done.stderr
    with pytest.raises(ResultsError, match=r"holds no baseline .*conformance baseline RUN --out"):
        read_baseline(tmp_path / "nowhere")


def given(**more: Any) -> SimpleNamespace:
    """pytest's options where nothing was said."""
    options = dict.fromkeys(("seed", "examples", "values", "opset", "replay"))
    return SimpleNamespace(
        **{
            **options,
            "baseline": None,
            "update_baseline": False,
            "no_blame": False,
            "source": [],
            "dtype": [],
            "programs": False,
            "pattern": [],
        }
        | more
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"baseline": None, "update_baseline": True}, "--update-baseline needs --baseline DIR"),
        ({"replay": "results/RUN"}, "use `conformance diff`"),
        ({"no_blame": True}, "leave out --no-blame"),
        ({"source": ["corpus"]}, "add --source generated"),
    ],
)
def test_options_that_would_compare_something_else_are_refused(base: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        baseline_option.prepare(given(**{"baseline": str(base), **options}))


def test_a_run_draws_as_the_baseline_did_unless_told_otherwise(base: Path) -> None:
    info = base / "baseline.json"
    info.write_text(info.read_text().replace('"seed": 0', '"seed": 7'))
    options = given(baseline=str(base), values=4)
    baseline_option.prepare(options)
    assert (options.seed, options.examples, options.values) == (7, 64, 4)
    assert options.source == ["generated"]
    # The corpus would take failing cases out of those that are compared.
    options = given(baseline=str(base), source=["corpus", "programs", "generated"])
    baseline_option.prepare(options)
    assert options.source == ["programs", "generated", "corpus"]
    options = given(baseline=str(base), seed=0)
    baseline_option.prepare(options)
    assert options.seed == 0
    options = given()
    baseline_option.prepare(options)
    assert options.seed == 0
    assert options.source == []
    options = given(baseline=str(base), programs=True)
    baseline_option.prepare(options)
    assert options.source == []


def test_a_part_is_replaced_and_the_rest_kept() -> None:
    old = baseline(*verdicts(), *verdicts("aten.neg.default"), *verdicts("aten.neg.default", "float64"))
    new = baseline(*verdicts("aten.neg.default", "int8"))
    # The operator is run no more in float32 and float64: what was expected of it there goes.
    assert {(key[0], key[1]) for key in update(old, new).cells} == {
        ("aten.relu.default", "float32"),
        ("aten.neg.default", "int8"),
    }
    for changes, said in (
        (
            {"options": {**OPTIONS, "examples": 8}},
            "drawn with examples 64, this run with 8.*leave out --examples",
        ),
        ({"options": {**OPTIONS, "dtype": ["int8"]}}, "drawn with dtype none given"),
        ({"versions": {**VERSIONS, "torch": "2.14"}}, "made with torch 2.13, this run with 2.14"),
    ):
        with pytest.raises(ResultsError, match=said):
            update(old, replace(new, **changes))
    # What the kept cells do not depend on may differ, and so may everything where nothing is kept.
    merged = update(old, replace(new, versions={**VERSIONS, "backend openvino": "1"}))
    assert merged.versions["backend openvino"] == "1"
    whole = replace(old, versions={"torch": "2.14"}, options={"seed": 1})
    assert update(old, whole) == whole


def test_a_revision_is_a_side(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, timeout=600)

    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    kept = tmp_path / "golden" / "baseline"
    write_baseline(kept, read_baseline(base))
    git("add", "golden")
    git("commit", "-qm", "first")
    rows = verdicts()
    worse = replace(rows[0], outcome=Outcome.CRASH, stage=Stage.RUN, signature="killed")
    write_baseline(kept, update(read_baseline(kept), baseline(worse, *rows[1:])))
    git("commit", "-qam", "second")
    for before, after in (("HEAD~1", "golden/baseline"), ("HEAD~1:golden/baseline", "HEAD"), (base, "HEAD")):
        done = diff(before, after, "--json", "--fail-on", "regression")
        assert done.exit_code == 1, done.output
        data = json.loads(done.stdout)
        assert {(d["finding"], d["overload"], d["dtype"]) for d in data["differences"]} == {
            ("regression", "aten.relu.default", "float32"),
            # The second baseline was made without it.
            ("no longer run", "aten.relu.default", "float64"),
        }
    assert diff("HEAD", "golden/baseline", "--fail-on", "change").exit_code == 0
    for words, said in (
        ("nowhere", "nowhere is neither a run, a baseline nor a git revision"),
        ("nowhere:golden", "git knows no revision nowhere here"),
        ("HEAD:nowhere", "revision HEAD has no baseline at nowhere"),
        (str(tmp_path / "golden"), "holds neither a run (no run.json) nor a baseline"),
    ):
        done = diff(words, "HEAD")
        assert done.exit_code == 2
        assert said in " ".join(done.output.split())
