"""Verdicts of earlier runs are taken over, and never where running again could give another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from harness_runs import rows

from harness.app.session import Session
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.generate.cases_home import cases_directory
from harness.generate.operator_case import OPERATOR_CASES
from harness.plan.options import Options
from harness.plan.plan import make_plan
from harness.plan.reuse.earlier_runs import EarlierRuns
from harness.plan.reuse.fingerprint import VerdictScope, basis, differences
from harness.record import layout, store
from harness.record.json_lines import Minimal, append_line, read_minimal, write_flaky
from harness.record.layout import ResultsError
from harness.record.run_info import RunInfo, read_run_info
from harness.record.writer import RunWriter
from harness.run.backend import BACKENDS, runtime_distributions

pytestmark = pytest.mark.slowest(26)

#: erf lacks kernels for float64, so that some of its cases fail.
OPERATORS = ("aten::celu", "aten::erf")
OPTIONS = Options(ops=OPERATORS, examples=24, sources=("generated",))

RULE = """
from onnxscript import opset18 as op
from harness.convert.rules import dynamo

@dynamo("aten::celu")
def celu(self, alpha=1.0):
    return op.CastLike(op.Celu(op.Cast(self, to=1), alpha=alpha), self)
"""


def run(place: Path, options: Options = OPTIONS, reuse: Sequence[Path] = ()) -> Path:
    plan = make_plan(options)
    with Session(plan, place, library=EarlierRuns(reuse) if reuse else None) as session:
        for unit in plan.units:
            session.run(unit)
    return place


def found(place: Path) -> list[dict[str, Any]]:
    """What is the same however often it is run: all but times and where it was found, and messages, which
    name nodes by their place in a batch (signatures do not)."""
    left_out = {"run_id", "convert_ms", "load_ms", "run_ms", "reused_from", "message"}
    kept = [{name: value for name, value in row.items() if name not in left_out} for row in rows(place)]
    return sorted(kept, key=lambda row: (row["case_id"], row["exported_id"]))


def reused(place: Path) -> dict[str, int]:
    """Operator → how many of its verdicts were taken over."""
    counts = dict.fromkeys({row["overload"] for row in rows(place, "overload")}, 0)
    for row in rows(place, "overload", "reused_from"):
        counts[row["overload"]] += bool(row["reused_from"])
    return counts


def notes(place: Path) -> list[str]:
    report = read_run_info(place).reused
    assert report is not None
    assert report["verdicts"] == sum(reused(place).values())
    return list(report["notes"])


def altered(earlier: Path, place: Path, **changes: dict[str, str]) -> Path:
    """A copy of a run whose ``run.json`` says otherwise."""
    shutil.copytree(earlier, place)
    data = json.loads((place / layout.RUN_FILE).read_text())
    for field, values in changes.items():
        data[field].update(values)
    (place / layout.RUN_FILE).write_text(json.dumps(data))
    return place


def rewritten(earlier: Path, place: Path, verdicts: Sequence[Verdict], done: Sequence[str]) -> Path:
    """A run like `earlier` with other rows, of which only some operators came to their end."""
    info = replace(read_run_info(earlier), finished=None, operators=(), unfinished=())
    with RunWriter(place, info) as writer:
        writer.write(verdicts)
        for overload in done:
            writer.done(overload, "dynamo")
    return place


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("reuse") / "earlier")


def test_nothing_changed(earlier: Path, tmp_path: Path) -> None:
    failing = next(v for v in store.verdicts(earlier) if v.outcome.is_failure)
    minimal = Minimal(
        **{name: getattr(failing, name) for name in ("case_id", "overload", "converter", "backend", "blame")},
        stage=failing.stage,
        outcome=failing.outcome,
        signature=failing.signature,
        evidence="",
        message="",
        minimal_id="0",
        invocation=failing.invocation,
    )
    append_line(earlier, minimal)
    again = run(tmp_path / "again", reuse=[earlier])
    assert found(again) == found(earlier)
    assert reused(again) == {"aten.celu.default": 24, "aten.erf.default": 24}
    assert notes(again) == []
    assert read_minimal(again) == [minimal]
    # What was taken over can be taken over again, and still says where it was found.
    shutil.rmtree(tmp_path / "third", ignore_errors=True)
    third = run(tmp_path / "third", reuse=[tmp_path])
    assert {row["reused_from"] for row in rows(third, "reused_from")} == {read_run_info(earlier).run_id}


@pytest.mark.parametrize(
    ("changes", "operators", "said"),
    [
        ({"versions": {"onnxruntime": "0.1"}}, 0, "onnxruntime 0.1 → "),
        ({"basis": {"harness source": "0"}}, 0, "harness source changed: nothing reused"),
        (
            {"basis": {"case aten.celu.default": "0"}},
            1,
            "operator cases changed: nothing of aten.celu.default",
        ),
        ({"versions": {"openvino": "0.1"}}, 1, "openvino 0.1 → "),
    ],
)
def test_what_changed_is_run_again(
    earlier: Path, tmp_path: Path, changes: dict[str, dict[str, str]], operators: int, said: str
) -> None:
    other = altered(earlier, tmp_path / "other", **changes)
    again = run(tmp_path / "again", reuse=[other])
    counts = reused(again)
    assert any(said in note for note in notes(again)), notes(again)
    assert found(again) == found(earlier)
    if "openvino" in changes.get("versions", {}):
        # It is a witness: no passing verdict depends on it.
        failing = [row for row in rows(again) if row["outcome"] not in ("pass", "skip")]
        assert failing
        operators_failing = {row["overload"] for row in failing}
        assert counts == {o: 0 if o in operators_failing else 24 for o in ("aten.celu.default", "aten.erf.default")}
    else:
        assert counts == {"aten.celu.default": 0, "aten.erf.default": 24 * operators}


@pytest.mark.parametrize(
    ("changes", "backend", "holds"),
    [
        ({}, "ort-cpu", True),
        ({"versions": {"torch": "0.1"}}, "ort-cpu", False),
        ({"versions": {"converter dynamo": "0.1"}}, "ort-cpu", False),
        ({"versions": {"backend ort-cpu": "0.1"}}, "ort-cpu", False),
        ({"versions": {"onnxruntime": "0.1"}}, "onnx-reference", True),
        ({"versions": {"onnxruntime": "0.1"}}, "onnx-api:somebodys", False),
        ({"versions": {"openvino": "0.1"}}, "ort-cpu", True),
        ({"versions": {"pytest": "0.1", "hypothesis": "0.1"}}, "ort-cpu", True),
        ({"basis": {"processor": "0"}}, "ort-cpu", False),
        ({"basis": {"environment variables": "0"}}, "ort-cpu", False),
        ({"basis": {"opset": "17"}}, "ort-cpu", False),
        ({"basis": {"timeout": "1"}}, "ort-cpu", False),
        ({"basis": {"rules": "0"}}, "ort-cpu", False),
        ({"basis": {"source of dynamo": "0"}}, "ort-cpu", False),
        ({"basis": {"source of trt": "0"}}, "ort-cpu", True),
        ({"basis": {"case aten.erf.default": "0", "seed": "7"}}, "ort-cpu", True),
    ],
)
def test_what_a_verdict_hangs_on(earlier: Path, changes: dict[str, dict[str, str]], backend: str, holds: bool) -> None:
    info = read_run_info(earlier)
    others = {f"backend {name}": "1" for name in ("onnx-reference", "onnx-api:somebodys")}
    now = replace(info, versions={**others, **info.versions})
    then = replace(
        now,
        versions={**now.versions, **changes.get("versions", {})},
        basis={**now.basis, **changes.get("basis", {})},
    )
    assert (not differences(then, now, VerdictScope("aten.celu.default", "dynamo", backend))) is holds


def test_nothing_is_reused_where_other_cases_are_drawn(earlier: Path, tmp_path: Path) -> None:
    options = replace(OPTIONS, ops=("aten::erf",), seed=1)
    again = run(tmp_path / "again", options, reuse=[earlier])
    assert notes(again) == ["seed 0 → 1: other cases are drawn: nothing reused"]
    assert sum(reused(again).values()) == 0


def test_an_edited_case_is_run_again(earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = OPERATOR_CASES["aten.celu.default"]
    text = Path(case.declared[0]).read_text(encoding="utf-8")
    for name, more in (("same.py", ""), ("other.py", "\n_NEW = 1\n")):
        file = tmp_path / name
        file.write_text(text + more, encoding="utf-8")
        monkeypatch.setitem(OPERATOR_CASES, "aten.celu.default", replace(case, declared=(str(file), 1)))
        again = run(tmp_path / f"again-{name}", reuse=[earlier])
        assert reused(again) == {"aten.celu.default": 0 if more else 24, "aten.erf.default": 24}


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("sorting.py", {"aten.sort.default"}),
        ("rules/random_draws.py", {"aten.rand.default"}),
        # Matrix factors import it, too.
        ("rules/right_answers.py", {"aten.sort.default", "aten.linalg_qr.default"}),
    ],
)
def test_a_case_rests_on_the_output_rules_that_it_imports(
    edited: str, changed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overloads = ("aten.celu.default", "aten.sort.default", "aten.rand.default", "aten.linalg_qr.default")
    units = make_plan(replace(OPTIONS, ops=overloads)).units

    def digests(name: str, more: str) -> dict[str, str]:
        cases = tmp_path / name / "cases"
        shutil.copytree(cases_directory(), cases)
        file = cases / edited
        file.write_text(file.read_text(encoding="utf-8") + more, encoding="utf-8")
        for overload in overloads:
            case = OPERATOR_CASES[overload]
            declared = (str(cases / Path(case.declared[0]).name), 1)
            monkeypatch.setitem(OPERATOR_CASES, overload, replace(case, declared=declared))
        found = basis(units, ("generated",), 60.0, 0)
        return {overload: found[f"case {overload}"] for overload in overloads}

    before, after = digests("before", ""), digests("after", "\n_NEW = 1\n")
    assert {overload for overload in overloads if before[overload] != after[overload]} == changed


def test_an_edited_rule_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "rules" / "my_rules.py"
    file.parent.mkdir()
    file.write_text(RULE, encoding="utf-8")
    options = replace(OPTIONS, ops=("aten::celu",), examples=8, rules=(str(file),))
    first = run(tmp_path / "first", options)
    same = run(tmp_path / "same", options, reuse=[first])
    assert reused(same) == {"aten.celu.default": 8}
    assert {row["rule"] for row in rows(same, "rule")} == {"my_rules.py:celu"}
    other = tmp_path / "wrong" / "my_rules.py"
    other.parent.mkdir()
    other.write_text(RULE.replace(", alpha=alpha", ", alpha=3.0"), encoding="utf-8")
    again = run(tmp_path / "again", replace(options, rules=(str(other),)), reuse=[first])
    assert reused(again) == {"aten.celu.default": 0}
    assert "mismatch" in {row["outcome"] for row in rows(again, "outcome")}
    # Without rules nothing changed.
    assert reused(again / layout.WITHOUT_RULES_DIRECTORY) == {"aten.celu.default": 8}


def test_what_may_end_otherwise_is_run_again(earlier: Path, tmp_path: Path) -> None:
    verdicts = list(store.verdicts(earlier))
    celu = [v for v in verdicts if v.overload == "aten.celu.default" and v.outcome is Outcome.PASS]
    killed, hung = celu[0], next(v for v in celu if v.exported_id != celu[0].exported_id)
    lost = {
        killed.case_id: replace(killed, outcome=Outcome.CRASH, stage=Stage.RUN, blame="backend"),
        hung.case_id: replace(hung, outcome=Outcome.TIMEOUT, stage=Stage.RUN, blame="backend"),
    }
    other = rewritten(
        earlier,
        tmp_path / "other",
        [lost.get(v.case_id, v) for v in verdicts],
        ["aten.celu.default"],
    )
    flaky = next(v for v in celu if v.exported_id not in (killed.exported_id, hung.exported_id))
    write_flaky(other, {flaky.case_key})
    again = run(tmp_path / "again", reuse=[other])
    assert found(again) == found(earlier)
    # The other operator was under way when the run was killed.
    assert sum(reused(again).values()) == 0


def test_a_lost_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"--reuse .*nowhere: no such directory"):
        EarlierRuns([tmp_path / "nowhere"])
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    library = EarlierRuns([tmp_path])
    assert library.runs == ()
    assert [note.startswith("set aside: ") for note in library.notices] == [True]


def test_a_verdict_rests_on_what_its_backend_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new backend is one file: its entry names its packages, its variables and whether it is on the CPU."""
    entry = replace(
        BACKENDS.find("ort-cpu")[0], name="mine", distributions=("click",), variables=("MINE",), on_cpu=False
    )
    before = variables_digest()
    monkeypatch.setenv("MINE_THREADS", "2")
    assert variables_digest() == before
    monkeypatch.setitem(BACKENDS, "mine", entry)
    assert variables_digest() != before
    info = RunInfo.begin(seed=0, options={}, runtimes=runtime_distributions(), basis={"graphics card": "one"})
    assert info.versions["click"] == metadata.version("click")
    other = replace(info, versions={**info.versions, "click": "0"}, basis={"graphics card": "another"})
    scopes = {name: VerdictScope("aten.celu.default", "dynamo", name) for name in ("mine", "ort-cpu")}
    found = {name: set(differences(other, info, scope)) for name, scope in scopes.items()}
    assert {"click", "graphics card"} <= found["mine"]
    assert not {"click", "graphics card"} & found["ort-cpu"]


def variables_digest() -> str:
    return basis((), (), 60.0, 0)["environment variables"]
