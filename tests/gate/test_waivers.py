"""Waivers: failures that a file expects close no gate; what the file expects too much is said."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import answered, typed
from harness_runs import output, recorded, row_of, rows, run_harness, unary

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.gate.waivers import Waivers
from harness.record.layout import ResultsError

CASES = [unary("aten.celu.default", [float(n)]) for n in range(4)]
TODAY = datetime.date(2026, 11, 30)


def passing(place: int) -> Verdict:
    return row_of(CASES[place], stage=Stage.COMPARE, outcome=Outcome.PASS)


def failing(place: int, signature: str = "values", blame: str = "backend") -> Verdict:
    return row_of(CASES[place], stage=Stage.COMPARE, outcome=Outcome.MISMATCH, signature=signature, blame=blame)


def waivers(place: Path, *entries: str) -> Path:
    place.write_text("\n".join(f"[[waiver]]\nreason = 'Known.'\n{entry}\n" for entry in entries))
    return place


@pytest.mark.parametrize(
    ("entry", "is_met"),
    [
        pytest.param("overload = 'aten::celu'", True, id="an operator"),
        pytest.param("overload = 'aten.c*'", True, id="a glob"),
        pytest.param("overload = 'aten.celu'\ndtype = ['float16', 'float32']", True, id="a dtype"),
        pytest.param("overload = 'aten.celu'\ndtype = 'float16'", False, id="another dtype"),
        pytest.param("overload = 'aten.celu'\noutcome = 'error'", False, id="another outcome"),
        pytest.param("overload = 'aten.celu'\ncall = 'celu.default'", True, id="a call"),
        pytest.param("signature = 'value'", True, id="a signature"),
        pytest.param("overload = 'aten.celu'\nuntil = 2026-11-30", True, id="its last day"),
        pytest.param("overload = 'aten.celu'\nuntil = 2026-11-29", False, id="expired"),
    ],
)
def test_a_waiver_excuses_what_it_describes(tmp_path: Path, entry: str, is_met: bool) -> None:
    read = Waivers.read(waivers(tmp_path / "waivers.toml", entry), TODAY)
    assert read.excuses(failing(0)) is is_met
    assert not read.excuses(passing(0))
    assert read.meeting(failing(0, blame="spec")) is None


@pytest.mark.parametrize(
    "text",
    [
        "[[waiver]]\noverload = 'aten.celu'\n",
        "[[waiver]]\nreason = 'Everything.'\n",
        "[[waiver]]\nreason = 'x'\noverload = 'aten.celu'\nuntill = 2026-01-01\n",
        "[[waiver]]\nreason = 'x'\noverload = 'aten.celu'\nuntil = '2026-01-01'\n",
        "[[waiver]]\nreason = 'x'\nmessage = '('\n",
        "[[waiver]]\nreason = 'x'\noverload = 'aten.celu'\noutcome = 'wrong'\n",
        "[[waiver]]\nreason = 'x'\noverload = 'aten.celu'\nlink = 'see below'\n",
        "[[issue]]\n",
        "no toml",
    ],
    ids=["no reason", "everything", "a slip", "a text", "no expression", "no outcome", "no link", "issues", "no TOML"],
)
def test_an_invalid_file_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "waivers.toml").write_text(text)
    with pytest.raises(ResultsError) as error:
        Waivers.read(tmp_path / "waivers.toml")
    assert "waivers.toml" in str(error.value)
    assert "\n" not in str(error.value)


def run(place: Path, verdicts: Sequence[Verdict]) -> Path:
    return recorded(place, verdicts)


@pytest.mark.parametrize("kind", ["run", "baseline"])
def test_a_gate_honours_waivers_and_says_which_had_no_use(tmp_path: Path, kind: str) -> None:
    before = run(tmp_path / "before", [passing(n) for n in range(4)])
    if kind == "baseline":
        typed("baseline", before, "--out", tmp_path / "expected")
        before = tmp_path / "expected"
    after = run(tmp_path / "after", [failing(0), *(passing(n) for n in (1, 2, 3))])
    gate = ("diff", before, after)
    assert typed(*gate, "--fail-on", "regression", status=1).exit_code == 1
    file = waivers(
        tmp_path / "waivers.toml",
        "overload = 'aten.celu'\noutcome = 'mismatch'",
        "overload = 'aten.celu'\noutcome = 'crash'",
        "overload = 'aten.selu'",
    )
    assert typed(*gate, "--fail-on", "regression", "--waivers", file).exit_code == 0
    if kind == "baseline":
        (worse,) = answered(*gate)["differences"]
        assert worse["case_id"] == CASES[0].case_id
    data = answered(*gate, "--waivers", file)
    assert data["counts"]["waived"] == 1
    assert [(use["cases"], use["unused"]) for use in data["waivers"]] == [(1, False), (0, True), (0, False)]
    # An expired one excuses nothing, and is said.
    waivers(file, "overload = 'aten.celu'\nuntil = 2020-01-01")
    typed(*gate, "--fail-on", "regression", "--waivers", file, status=1)
    (use,) = answered(*gate, "--waivers", file)["waivers"]
    assert use["expired"]
    assert use["cases"] == 1


def test_a_waiver_excuses_only_its_share_of_a_regression(tmp_path: Path) -> None:
    before = run(tmp_path / "before", [passing(n) for n in range(4)])
    typed("baseline", before, "--out", tmp_path / "expected")
    after = run(tmp_path / "after", [failing(0), failing(1, signature="shape"), passing(2), passing(3)])
    file = waivers(tmp_path / "waivers.toml", "overload = 'aten.celu'\nsignature = 'shape'")
    data = answered("diff", tmp_path / "expected", after, "--waivers", file)
    assert data["worse"] == 1
    assert {d["finding"]: d["failure"][2] for d in data["differences"]} == {"regression": "values", "waived": "shape"}


def test_a_failure_that_the_baseline_expects_is_no_improvement_when_it_is_waived(tmp_path: Path) -> None:
    same = run(tmp_path / "same", [failing(0), *(passing(n) for n in (1, 2, 3))])
    typed("baseline", same, "--out", tmp_path / "expected")
    file = waivers(tmp_path / "waivers.toml", "overload = 'aten.celu'")
    data = answered("diff", tmp_path / "expected", same, "--waivers", file)
    assert data["differences"] == []


RULES = """\
from onnxscript import opset18 as op

from harness.convert.rules import dynamo


@dynamo("aten::celu")
def celu(self, alpha: float = 1.0):
    return op.Celu(self)
"""


@pytest.mark.slow
def test_a_session_counts_no_waived_failure(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    file = waivers(tmp_path / "waivers.toml", "overload = 'aten.celu'\ncall = 'alpha='", "overload = 'aten.selu'")
    words = ("--op", "aten::celu", "--rules", "rules.py", "--dtype", "float32", "--examples", "32", "--shrink", "0")
    done = run_harness(*words, "--waivers", file, "--results-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, output(done)
    assert any(row["outcome"] == "mismatch" for row in rows(tmp_path / "run", "outcome"))
    assert "by 1 waiver" in done.stdout
    # Against a baseline of a right rule.
    (tmp_path / "right.py").write_text(RULES.replace("op.Celu(self)", "op.Celu(self, alpha=alpha)"))
    right = tuple("right.py" if word == "rules.py" else word for word in words)
    done = run_harness(*right, "--results-dir", "right", cwd=tmp_path)
    assert done.returncode == 0, output(done)
    typed("baseline", tmp_path / "right", "--out", tmp_path / "expected")
    gate = (*words, "--baseline", "expected")
    assert run_harness(*gate, "--results-dir", "red", cwd=tmp_path).returncode == 1
    done = run_harness(*gate, "--waivers", file, "--results-dir", "green", cwd=tmp_path)
    assert done.returncode == 0, output(done)
    assert "waived: 1" in done.stdout
