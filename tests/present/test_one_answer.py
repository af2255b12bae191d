"""Every view gives the same component, place, fault, case and command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import typed
from harness_runs import recorded, unary, verdict_of
from recorded_run import summary_text
from sampling import sampled
from test_dashboard import site_data

from harness.causes.cause import root_cause
from harness.compare.verdict import Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.present.evidence import fault_text, place_text
from harness.record.run_info import RunInfo

RULES = """
from onnxscript import opset18 as op
from harness.convert.rules import dynamo

@dynamo("aten::celu")
def celu(self, alpha=1.0):
    return op.Celu(self, alpha=1.0)
"""

POOL = TensorSpec((1, 1, 2, 2), "float32", (4, 4, 2, 1), 0, Literal((1.0, 2.0, 3.0, 4.0)))
#: A failure of the user's rule, of the converter's function, and of a runtime's kernel.
CALLS = {
    "rule": Invocation("aten.celu.default", (*unary("aten.celu.default", [-6.0, 2.0]).arguments, ("alpha", 2.0))),
    "converter": Invocation(
        "aten.avg_pool2d.default", (("self", POOL), ("kernel_size", (2, 2)), ("divisor_override", 3))
    ),
    "backend": unary("aten.sigmoid.default", [-39.0, -40.0]),
}


@pytest.fixture(scope="module", params=sampled(CALLS, named={"backend"}))
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Verdict]:
    """A run of one failing call, and its verdict."""
    directory = tmp_path_factory.mktemp(request.param)
    (directory / "mine.py").write_text(RULES)
    rules = (str(directory / "mine.py"),) if request.param == "rule" else ()
    verdict = verdict_of(CALLS[request.param], rules=rules)
    info = RunInfo.begin(seed=0, options={"rules": list(rules)})
    return recorded(directory / "run", [verdict], info), verdict


def printed(*words: str | Path) -> str:
    return " ".join(typed(*words, status=(0, 1)).stdout.split())


def test_every_view_names_the_same_owner_place_fault_and_case(
    found: tuple[Path, Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, verdict = found
    cause = root_cause(vars(verdict))
    answer = (f"blame: {cause.owner}", place_text(cause), fault_text(cause), verdict.case_id)

    (group,) = json.loads(printed("failures", "--run", run, "--json"))["failures"]["groups"]
    facts = (cause.owner, cause.component, cause.place, cause.fault, verdict.case_id)
    assert (*(group[n] for n in ("owner", "component", "place", "fault")), group["smallest"]["case_id"]) == facts
    (shown,) = json.loads(printed("show", verdict.case_id, "--run", run, "--json"))["verdicts"]
    assert (shown["owner"], shown["component"], shown["place"], shown["fault"]) == facts[:4]

    for text in (printed("failures", "--run", run), printed("show", verdict.case_id, "--run", run)):
        assert all(part in text for part in answer), text
    assert verdict.case_id in summary_text(run, width=200)

    printed("dashboard", run, "--out", tmp_path / "site")
    (line,) = site_data(tmp_path / "site", "failures/0")
    assert (line["owner"], line["case"]) == (cause.owner, verdict.case_id)
    assert cause.place in line["place"]

    monkeypatch.chdir(tmp_path)
    printed("repro", verdict.case_id, "--run", run, "--issue")
    (report,) = tmp_path.glob("repro_*.md")
    text = report.read_text()
    assert cause.place.rpartition(":")[2] in text.partition("Diagnosis: the defect is in ")[2].splitlines()[0]
