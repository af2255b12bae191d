"""One number for one thing: the terminal, the job's page, the site and their JSON count a run alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import typed
from harness_runs import recorded, row_of, vector
from recorded_run import summary_text

from harness.compare.verdict import SPEC, Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.present.github_annotations import github_annotations

#: Outcome and blame → ordinary cases. Three pass, two fail; all else counts for neither.
ENDINGS = {
    (Outcome.PASS, ""): 3,
    (Outcome.MISMATCH, "backend"): 1,
    (Outcome.UNSUPPORTED, "converter"): 1,
    (Outcome.MISMATCH, SPEC): 2,
    (Outcome.INACCURATE, "backend"): 2,
    (Outcome.NARROWED, ""): 1,
    (Outcome.BUILT, ""): 1,
    (Outcome.SKIP, ""): 1,
}
PASSED, JUDGED = 3, 5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("counts") / "run", _rows())


def _rows() -> list[Verdict]:
    rows, number = [], 0
    for (outcome, blame), times in ENDINGS.items():
        for _ in range(times):
            number += 1
            call = Invocation("aten.celu.default", (("self", vector([float(number), 1.0])),))
            stage = Stage.CONVERT if outcome is Outcome.UNSUPPORTED else Stage.COMPARE
            failed: dict[str, Any] = {"signature": "wrong", "message": "wrong"} if outcome.is_failure else {}
            rows.append(row_of(call, outcome=outcome, stage=stage, blame=blame, ordinary=True, **failed))
    return rows


def _said(*words: str | Path) -> str:
    return typed(*words, status=(0, 1)).stdout


def test_all_views_count_alike(run: Path, tmp_path: Path) -> None:
    assert f" {PASSED}/{JUDGED} " in summary_text(run, width=160)
    assert f"{PASSED} of {JUDGED} (60.0%)" in _said("summary", run)
    (column,) = json.loads(_said("summary", run, "--json"))["columns"]
    assert (column["passed"], column["total"]) == (PASSED, JUDGED)
    assert column["ordinary"] == {"passed": PASSED, "total": JUDGED}
    site = json.loads(_said("dashboard", run, "--out", tmp_path / "site", "--json"))["summary"]
    (shown,) = site["columns"]
    assert shown["cases"] == {"passed": PASSED, "total": JUDGED}
    assert (shown["ordinary"]["passed"], shown["ordinary"]["total"]) == (PASSED, JUDGED)


def test_failures_are_what_all_views_list(run: Path) -> None:
    groups = json.loads(_said("failures", run, "--json"))
    counted = sum(group["cases"] for group in groups["failures"]["groups"] if group["blame"] != SPEC)
    assert counted == JUDGED - PASSED
    assert sum(one["cases"] for one in groups["inaccuracies"]) == ENDINGS[Outcome.INACCURATE, "backend"]


def test_distinct_failures_are_counted_alike(run: Path, tmp_path: Path) -> None:
    listed = json.loads(_said("failures", run, "--json"))["failures"]
    groups = [group for group in listed["groups"] if group["blame"] != SPEC]
    assert (listed["total"], listed["left_open"]) == (len(groups), len(listed["groups"]) - len(groups)) == (2, 1)
    numbers = [listed["total"], json.loads(_said("summary", run, "--json"))["failures"]]
    first = re.compile(r"(\d+) distinct failures")
    for text in (
        *(summary_text(run, width=160), _said("failures", run)),
        *(_said("failures", run, "--markdown"), _said("summary", run)),
    ):
        (number,) = set(first.findall(text))
        numbers.append(int(number))
    _said("dashboard", run, "--out", tmp_path / "site")
    overview = (tmp_path / "site" / "data" / "overview" / "0.js").read_text()
    numbers += [int(number) for number in re.findall(r'"failureCount\W+(\d+)', overview)]
    assert numbers == [2] * 7


def test_annotations_are_what_github_reads(run: Path) -> None:
    lines = list(github_annotations(run))
    assert len(lines) == JUDGED - PASSED
    for line in lines:
        command, title, text = re.fullmatch(r"::(\w+) title=([^:,]*)::([^\n]+)", line).groups()  # type: ignore[union-attr]
        assert command == "error"
        assert title
        assert "%0Aconformance show " in text
