"""`pytest harness --rules FILE`: conversion functions tried in place of a converter's own."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest
from commands import answered
from harness_runs import output, rows, run_harness

from harness.gate.case_changes import ChangeKind
from harness.gate.run_diff import compare_runs
from harness.plan import reexecute
from harness.record import layout

pytestmark = pytest.mark.slowest(18)

RIGHT = """
from onnxscript import opset18 as op
from harness.convert.rules import dynamo, torchscript

@dynamo("aten::fmax")
def fmax(self, other):
    larger = op.Where(op.Less(self, other), other, self)
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, larger))

@torchscript("aten::celu")
def celu(g, input, alpha):
    return g.op("Celu", input, alpha_f=1.0)
"""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a good rule for dynamo and a bad one, whose alpha is dropped, for TorchScript."""
    directory = tmp_path_factory.mktemp("rules")
    file = directory / "my_rules.py"
    file.write_text(RIGHT)
    one = ("--dtype", "float32", "--examples", "64")
    done = run_harness("--rules", file, "--results-dir", directory / "run", *one)
    assert done.returncode == 1, output(done)
    (directory / "said").write_text(done.stdout)
    return directory


def test_only_the_operators_of_the_rules_are_run(tried: Path) -> None:
    found = {(row["overload"], row["converter"]) for row in rows(tried / "run")}
    assert {overload for overload, _ in found} == {"aten.celu.default", "aten.fmax.default"}
    assert {converter for _, converter in found} == {"dynamo", "torchscript"}


def test_the_record_proves_which_rule_was_used(tried: Path) -> None:
    used: dict[tuple[str, str], set[str]] = {}
    for row in rows(tried / "run"):
        # A bool where a number belongs ends the tracer before any conversion.
        if (row["stage"], row["outcome"]) != ("convert", "error"):
            used.setdefault((row["overload"], row["converter"]), set()).add(row["rule"])
    assert used == {
        ("aten.celu.default", "dynamo"): {""},
        ("aten.celu.default", "torchscript"): {"my_rules.py:celu"},
        ("aten.fmax.default", "dynamo"): {"my_rules.py:fmax"},
        ("aten.fmax.default", "torchscript"): {""},
    }
    assert {row["rule"] for row in rows(tried / "run" / layout.WITHOUT_RULES_DIRECTORY)} == {""}


def test_the_effect_of_each_rule_is_found_and_shown(tried: Path) -> None:
    found = compare_runs(tried / "run" / layout.WITHOUT_RULES_DIRECTORY, tried / "run")
    changed = {(line.overload, line.converter): line.counts for line in found.overloads}
    assert changed["aten.celu.default", "torchscript"][ChangeKind.REGRESSED] > 0
    assert changed["aten.fmax.default", "dynamo"][ChangeKind.IMPROVED] > 0
    assert changed["aten.fmax.default", "dynamo"].get(ChangeKind.REGRESSED, 0) == 0
    assert set(changed) == {("aten.celu.default", "torchscript"), ("aten.fmax.default", "dynamo")}
    said = (tried / "said").read_text()
    assert "With the rules, compared with the converter's own conversions" in said
    assert "regressed" in said


def test_a_regressed_case_is_named_and_rerun_with_its_rule(tried: Path) -> None:
    said = (tried / "said").read_text()
    [again] = re.findall(r"Run it again: (.+)", said)
    words = shlex.split(again)
    regressed = words[words.index("--case") + 1]
    [row] = [r for r in rows(tried / "run") if r["case_id"] == regressed and r["converter"] == "torchscript"]
    assert (row["rule"], row["outcome"]) == ("my_rules.py:celu", "mismatch")
    assert words[-6:-1] == ["--converter", "torchscript", "--backend", "ort-cpu", "--rules"]
    assert Path(words[-1]).resolve() == (tried / "my_rules.py").resolve()
    again_recorded = reexecute.recorded(tried / "run", regressed)
    found = list(reexecute.verdicts(dataclasses.replace(again_recorded, converters=("torchscript",))))
    assert [(verdict.rule, verdict.outcome) for verdict in found] == [("my_rules.py:celu", "mismatch")]


def test_the_numbers_beside_a_replayed_verdict_are_those_of_the_rule(tried: Path) -> None:
    wrong = [r for r in rows(tried / "run") if r["rule"] == "my_rules.py:celu" and r["outcome"] == "mismatch"]
    smallest = min(wrong, key=lambda row: int(row["total_elements"]))
    options = ("--run", tried / "run", "--converter", "torchscript")
    (case,) = answered("replay", smallest["case_id"], *options, status=1)["cases"]
    (got,), (expected,) = case["got"], case["expected"]
    assert len(got) == len(expected) == smallest["total_elements"]
    assert got != expected


def test_an_attribute_that_a_rule_drops_fails_only_where_it_matters(tried: Path) -> None:
    without = {r["case_id"]: r["outcome"] for r in rows(tried / "run" / layout.WITHOUT_RULES_DIRECTORY)
               if r["converter"] == "torchscript"}  # fmt: skip
    dropped = [r for r in rows(tried / "run") if r["rule"] == "my_rules.py:celu"]
    for row in dropped:
        if '"alpha":' not in row["invocation"]:
            assert row["outcome"] == without[row["case_id"]]


def test_a_rule_that_is_never_called_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "idle.py"
    file.write_text(
        "from onnxscript import opset18 as op\nfrom harness.convert.rules import dynamo\n\n"
        "@dynamo('aten::celu')\ndef celu(self, alpha=1.0):\n    return op.Celu(self)\n"
    )
    options = ("--rules", file, "--op", "aten.relu.default", "--record-only", "--examples", "8")
    done = run_harness(*options, "--results-dir", tmp_path / "run")
    assert done.returncode == 1, output(done)
    assert "no case of the run called the rule idle.py:celu" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "no such file", marks=pytest.mark.thorough),
        ("x = 1\n", "registers no rule"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        (
            "from harness.convert.rules import dynamo\n\n@dynamo('aten::cellu')\ndef f(self): ...\n",
            "PyTorch does not have; near: aten.celu.default",
        ),
        (
            "from harness.convert.rules import rule\n\n@rule('dinamo', 'aten::celu')\ndef f(self): ...\n",
            "did you mean dynamo?",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "bad.py"
    if text is not None:
        file.write_text(text)
    done = run_harness("--rules", file, "--op", "celu")
    assert done.returncode == 4, output(done)
    assert said in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("ERROR")]) == 1


@pytest.mark.thorough
def test_rules_run_under_xdist(tmp_path: Path) -> None:
    file = tmp_path / "my_rules.py"
    file.write_text(RIGHT)
    options = ("--rules", file, "-n", "2", "--examples", "8", "--record-only")
    done = run_harness(*options, "--results-dir", tmp_path / "run")
    assert done.returncode == 0, output(done)
    assert "never called" not in done.stdout
    assert {row["rule"] for row in rows(tmp_path / "run")} == {
        "",
        "my_rules.py:celu",
        "my_rules.py:fmax",
    }
