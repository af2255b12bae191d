"""The survey of mutated conversion functions: `python -m mutants`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from harness_runs import ROOT, environment
from mutants.mutation import find_mutation
from mutants.reasons import reasons
from warm_starts import run


def test_survivors_have_reasons_and_are_mutations_of_the_installed_exporters() -> None:
    for name in reasons():
        assert find_mutation(name).id == name


@pytest.mark.thorough
def test_a_survey_notices_mutations_that_cases_reach(tmp_path: Path) -> None:
    _mutants("reach", tmp_path, "--count", "3")
    reached = [json.loads(line) for line in (tmp_path / "reach.jsonl").read_text().splitlines()]
    assert len(reached) == 3
    # Without a mutation cases end as they did.
    assert not _mutants("check", tmp_path, "--count", "3").strip()
    _mutants("try", tmp_path, "--count", "6")
    tried = [json.loads(line) for line in (tmp_path / "tried.jsonl").read_text().splitlines()]
    assert len(tried) == 6
    assert any(one["noticed"] for one in tried)
    assert "noticed" in _mutants("table", tmp_path)


def _mutants(*words: str | Path) -> str:
    paths = f"{ROOT}:{ROOT / 'tests/support'}"
    done = run([sys.executable, "-m", "mutants", *words], env=environment(PYTHONPATH=paths), cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
