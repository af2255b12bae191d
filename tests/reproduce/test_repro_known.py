"""A bug report says what is already reported."""

from __future__ import annotations

from pathlib import Path

from harness_runs import record_of, unary, vector

from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Invocation
from harness.reproduce.failure import find_failure
from harness.reproduce.issue import CallReport, write_issue

POOL = Invocation(
    "aten.avg_pool2d.default",
    (("self", vector([1.0, 2.0])), ("kernel_size", (1, 1)), ("divisor_override", 3)),
)
WRONG = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH, "blame": "converter", "signature": "values"}


def issue_of(run: Path, call: Invocation) -> str:
    return write_issue(CallReport(find_failure(run, call.case_id), "print()", None, ""))


def test_a_report_names_the_known_defect_upstream(tmp_path: Path) -> None:
    other = unary("aten.neg.default", [1.0])
    run = record_of(tmp_path / "run", [POOL, other], **WRONG)
    link = "https://github.com/pytorch/pytorch/issues/105349"
    [known] = find_failure(run, POOL.case_id).known
    assert known.link == link
    text = issue_of(run, POOL)
    assert f"\nPossibly a duplicate of {link}: {known.note}\n" in text
    assert text.index("# ") < text.index(link) < text.index("###")
    assert "Possibly a duplicate" not in issue_of(run, other)
