"""A run takes its cases from the draws, a corpus, records, models, or use."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness_runs import output, record_of, rows, run_harness, unary

from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Invocation
from harness.generate.cases_home import cases_directory
from harness.generate.regressions.corpus_store import LOCAL, Corpus, CorpusEntry, read_contents

pytestmark = pytest.mark.slowest(10)

#: avg_pool2d ignores its divisor in both exporters.
FAILING = "aten.avg_pool2d.default"
FEW = ("--op", "avg_pool2d", "--dtype", "float32", "--examples", "24")
BOTH = ("--source", "corpus", "--source", "generated")
#: Run whatever else is kept.
COMMITTED = Corpus([cases_directory() / "corpus"])

#: Said to fail, and right.
HEALED = CorpusEntry(
    invocation=unary("aten.celu.default", [1.0, -1.0]),
    origin="failure",
    converter="dynamo",
    backend="ort-cpu",
    stage=Stage.COMPARE,
    outcome=Outcome.MISMATCH,
    signature="values",
)


class Place:
    """A directory in which sessions are started one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.corpus = Corpus([directory / LOCAL])
        self.runs = 0

    def run(
        self, *options: str | Path, status: int | None = None, start: bool = False
    ) -> subprocess.CompletedProcess[str]:
        self.runs += 1
        results = self.directory / f"run{self.runs}"
        done = run_harness("--results-dir", results, *options, cwd=self.directory, start=start)
        assert status is None or done.returncode == status, output(done)
        return done

    def rows(self, run: int | None = None) -> list[dict[str, Any]]:
        """Return the rows of a session by its number from 1, by default the last, without committed cases."""
        committed = {entry.invocation.case_id for entry in COMMITTED.read(FAILING).entries}
        found = [r for r in rows(self.directory / f"run{run or self.runs}") if r["case_id"] not in committed]
        return [row | {"case": (row["case_id"], row["exported_invocation"])} for row in found]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same run twice over: the second finds what the first left."""
    place = Place(tmp_path_factory.mktemp("twice"))
    for _ in range(2):
        place.run(*FEW, *BOTH, status=pytest.ExitCode.TESTS_FAILED)
    return place


@pytest.mark.thorough
def test_a_run_keeps_its_smallest_failures(twice: Place) -> None:
    first = twice.rows(1)
    assert {row["source"] for row in first} == {"generated"}
    failed = {row["case_id"] for row in first if row["outcome"] != "pass"}
    entries = twice.corpus.read(FAILING).entries
    assert 1 <= len(entries) <= 16
    assert {entry.invocation.case_id for entry in entries} <= failed
    kinds = Counter((entry.stage, entry.outcome, entry.backend, entry.signature) for entry in entries)
    assert set(kinds.values()) <= {1, 2, 3}
    assert {(e.origin, e.converter, e.backend) for e in entries} == {("failure", "dynamo", "ort-cpu")}


@pytest.mark.slow
def test_what_failed_is_run_first_next_time(twice: Place) -> None:
    kept = {entry.invocation.case_id for entry in twice.corpus.read(FAILING).entries}
    second = twice.rows(2)
    assert {row["case_id"] for row in second[: len(kept)]} == kept
    assert {row["case_id"] for row in second if row["source"] == "corpus"} == kept


def test_what_two_sources_have_is_run_once(twice: Place) -> None:
    first, second = twice.rows(1), twice.rows(2)
    assert len(second) == len({row["case"] for row in second})
    assert {row["case"] for row in first} == {row["case"] for row in second}


@pytest.mark.thorough
def test_a_failure_comes_back_with_another_seed(twice: Place) -> None:
    kept = twice.corpus.read(FAILING).entries
    twice.run("--op", "avg_pool2d", *BOTH, "--examples", "4", "--seed", "9", "-n", "1")
    back = [row for row in twice.rows() if row["source"] == "corpus"]
    assert {row["case_id"] for row in back} == {entry.invocation.case_id for entry in kept}
    assert "pass" not in {row["outcome"] for row in back}


def test_what_no_longer_fails_is_dropped_and_counted(place: Place) -> None:
    kept = [
        replace(HEALED, converter="torchscript"),
        replace(HEALED, backend="openvino"),
        replace(HEALED, origin="captured", converter="", backend="", stage=None, outcome=None, signature=""),
    ]
    for entry in (HEALED, *kept):
        place.corpus.add(entry)
    done = place.run("--op", "celu", "--source", "corpus", status=pytest.ExitCode.OK)
    assert "corpus: kept 0 failures to run first next time, dropped 1 that no longer fail" in done.stdout
    # What was not tried may fail as it did.
    assert place.corpus.read("aten.celu.default").entries == tuple(kept)
    # Four entries are one case.
    assert [(row["case_id"], row["source"]) for row in place.rows()] == [(HEALED.invocation.case_id, "corpus")]


@pytest.mark.thorough
def test_a_replay_leaves_the_corpus_alone(place: Place, tmp_path: Path) -> None:
    place.corpus.add(HEALED)
    record = record_of(tmp_path / "record", [HEALED.invocation])
    place.run("--replay", record, status=pytest.ExitCode.OK)
    assert {row["source"] for row in place.rows()} == {"replay"}
    assert place.corpus.read("aten.celu.default").entries == (HEALED,)


@pytest.mark.thorough
def test_dtypes_and_kinds_of_export_choose_among_the_entries(place: Place) -> None:
    double = replace(HEALED, invocation=unary("aten.celu.default", [1.0], "float64"))
    larger = replace(HEALED, invocation=unary("aten.celu.default", [2.0] * 3), exported=HEALED.invocation)
    for entry in (HEALED, double, larger):
        place.corpus.add(replace(entry, converter="", backend=""))
    chosen = ("--op", "celu", "--source", "corpus")
    place.run(*chosen, "--dtype", "float64", status=pytest.ExitCode.OK)
    assert [row["case_id"] for row in place.rows()] == [double.invocation.case_id]
    place.run(*chosen, "--shapes", "dynamic", status=pytest.ExitCode.OK)
    assert [row["case"] for row in place.rows()] == [(larger.invocation.case_id, HEALED.invocation.json)]


def test_a_file_is_run_as_it_is_and_a_damaged_line_is_named_once(place: Place) -> None:
    file = place.directory / "found.jsonl"
    # No operator case speaks of the second.
    uncovered = Invocation("aten.special_airy_ai.default", HEALED.invocation.arguments)
    lines = [HEALED.line, '{"origin":"failure"}', replace(HEALED, invocation=uncovered).line]
    file.write_text("\n".join(lines), encoding="utf-8")
    done = place.run("--source", f"corpus:{file.name}", "--converter", "dynamo", "--converter", "torchscript")
    assert {row["overload"] for row in place.rows()} == {"aten.celu.default", uncovered.overload}
    damaged = f"{file}:2 is not a corpus entry and was skipped (an invocation is an object"
    assert done.stdout.count(damaged) == 1, output(done)
    # Nothing is kept of a run that the corpus took no part in.
    assert not (place.directory / LOCAL).exists()
    contents = read_contents(file)
    assert len(contents.entries) == 2
    assert "found.jsonl:2 is not a corpus entry" in contents.damaged[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--source", "generatd"), ("--source generatd", "did you mean generated")),
        (("--source", "generated:x"), ("--source generated:x", "no such source")),
        (("--source", "corpus:none.jsonl"), ("cannot read the corpus file", "none.jsonl")),
        (("--source", "corpus:empty.jsonl"), ("nothing to run", "holds no invocation")),
    ],
)
def test_a_source_that_cannot_be_asked_is_refused_at_once(
    options: tuple[str, ...], words: tuple[str, ...], place: Place
) -> None:
    (place.directory / "empty.jsonl").touch()
    done = place.run(*options, status=pytest.ExitCode.USAGE_ERROR)
    assert all(word in done.stderr for word in words), output(done)
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_replay_is_no_source_among_others(place: Place, tmp_path: Path) -> None:
    record = record_of(tmp_path / "record", [HEALED.invocation])
    done = place.run("--replay", record, "--source", "corpus", status=pytest.ExitCode.USAGE_ERROR)
    assert "--replay and --source both say where cases come from" in done.stderr


def test_samples_of_pytorch_need_what_they_say(place: Place) -> None:
    without = ("-p", "planted.no_expecttest", "--op", "celu", "--source", "opinfo")
    done = place.run(*without, status=pytest.ExitCode.USAGE_ERROR)
    assert "--source opinfo: PyTorch's operator samples need expecttest" in done.stderr
    assert "pip install 'aten-onnx-conformance[opinfo]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """PyTorch's samples of operators of several kinds: gather takes indices, sub has an alias, linear is
    decomposed before a dispatch mode sees it, and no entry of `op_db` is named convolution."""
    pytest.importorskip("expecttest")
    place = Place(tmp_path_factory.mktemp("sampled"))
    names = ("celu", "gather", "subtract.Tensor", "linear", "convolution")
    operators = [word for name in names for word in ("--op", name)]
    place.run(*operators, "--source", "opinfo", "--examples", "12", "--record-only", status=0)
    return place


def test_samples_of_pytorch_are_valid_calls_of_the_operator(sampled: Place) -> None:
    found = sampled.rows()
    assert {row["source"] for row in found} == {"opinfo"}
    counts = Counter(row["overload"] for row in found)
    assert counts == {
        "aten.celu.default": 12,
        "aten.gather.default": 12,
        "aten.subtract.Tensor": 12,
        "aten.linear.default": 12,
        "aten.convolution.default": 12,
    }
    assert len(found) == len({row["case"] for row in found})
    assert "skip" not in {row["outcome"] for row in found}
    celu = [row for row in found if row["overload"] == "aten.celu.default"]
    assert {row["dtype"] for row in celu} == {"float32", "float64", "float16", "bfloat16"}
    assert {row["outcome"] for row in celu} == {"pass"}


def test_samples_are_the_same_in_every_process_and_follow_the_seed(sampled: Place) -> None:
    chosen = ("--op", "celu", "--op", "gather", "--source", "opinfo", "--examples", "12", "--record-only")
    sampled.run(*chosen, status=0, start=True)
    again = {row["case"] for row in sampled.rows()}
    assert again <= {row["case"] for row in sampled.rows(1)}
    assert len(again) == 24
    sampled.run(*chosen, "--seed", "1", status=0)
    assert {row["case"] for row in sampled.rows()} != again


def test_samples_have_other_sizes_in_a_dynamic_export(sampled: Place) -> None:
    chosen = ("--op", "celu", "--source", "opinfo", "--examples", "8", "--dtype", "float32")
    sampled.run(*chosen, "--shapes", "dynamic", status=0)
    found = sampled.rows()
    assert {row["source"] for row in found} == {"opinfo"}
    assert any(row["exported_invocation"] != row["invocation"] for row in found)
    assert {row["dtype"] for row in found} == {"float32"}


def test_sources_go_together(sampled: Place) -> None:
    chosen = ("--op", "celu", "--examples", "8", "--source", "opinfo", "--source", "generated")
    sampled.run(*chosen, status=0)
    assert Counter(row["source"] for row in sampled.rows()) == {"opinfo": 8, "generated": 8}
