"""The number of root causes is estimated from those that several runs found."""

from __future__ import annotations

import random
from pathlib import Path

from commands import answered
from harness_runs import row_of, unary

from harness.causes.cause import RootCause
from harness.causes.richness import estimate_causes
from harness.compare.verdict import Outcome
from harness.generate.regressions.corpus_store import read_contents
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter


def causes(*places: int) -> set[RootCause]:
    return {RootCause("converter", "torchlib", f"place {place}", "wrong") for place in places}


def make_run(directory: Path, **sources: str) -> Path:
    """Return a run in which each operator fails for a reason of its own, in a case from its source."""
    with RunWriter(directory, RunInfo.begin(seed=0, options={})) as writer:
        for operator, source in sources.items():
            call = unary(f"aten.{operator}.default", [1.0])
            failure = {"outcome": Outcome.MISMATCH, "signature": "values", "blame": "converter", "place": operator}
            writer.write([row_of(call, source=source, component="torchlib", fault="wrong", **failure)])
    store.finish(directory, 0)
    return directory


def test_a_case_kept_from_an_earlier_run_is_not_found_again(tmp_path: Path) -> None:
    earlier = make_run(tmp_path / "earlier", celu="generated", erf="generated")
    run = make_run(tmp_path / "run", celu="generated", erf="corpus", exp="redrawn")
    causes = answered("summary", run, "--earlier", earlier)["causes"]
    assert causes == {"each": [2, 2], "together": 3, "new": 1, "kept": 1, "estimated": 3}


def test_a_case_of_each_cause_is_kept_in_a_file_that_a_run_takes(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "one", celu="generated", erf="corpus"), make_run(tmp_path / "two", celu="generated")]
    file = tmp_path / "known.jsonl"
    expected = {"schema": "corpus/1", "out": str(file), "runs": 2, "cases": 2, "operators": 2}
    assert answered("corpus", *runs, "--out", file) == expected
    kept = [entry.invocation for entry in read_contents(file).entries]
    assert kept == [unary("aten.celu.default", [1.0]), unary("aten.erf.default", [1.0])]


def test_one_run_tells_nothing_of_what_it_missed() -> None:
    assert estimate_causes([causes(1, 2, 3)]) is None


def test_runs_that_find_the_same_have_found_all() -> None:
    assert estimate_causes([causes(*range(9))] * 3) == 9


def test_the_estimate_follows_from_causes_of_one_and_of_two_runs() -> None:
    # Five causes; three of one run only, and one of two runs: 5 + 2/3 · 3·2 / (2·2).
    assert estimate_causes([causes(0, 1, 2), causes(0, 1, 3), causes(0, 4)]) == 6


def test_the_estimate_is_near_the_truth_where_runs_find_at_random() -> None:
    chance = random.Random(7)
    found = [causes(*(place for place in range(400) if chance.random() < 0.6)) for _ in range(4)]
    assert 380 < (estimate_causes(found) or 0) < 420
    assert len(set().union(*found)) < 400
