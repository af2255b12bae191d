"""The corpus: what is kept is read back, by however many processes it is written."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from harness_runs import unary
from writers import add_to_corpus

from harness.compare.verdict import Outcome, Stage
from harness.generate.regressions.corpus_store import Corpus, CorpusEntry, read_contents
from harness.record.layout import ResultsError

FAILURE = CorpusEntry(
    invocation=unary("aten.celu.default", [float("inf"), -0.0, 1e30]),
    origin="failure",
    converter="dynamo",
    backend="ort-cpu",
    stage=Stage.COMPARE,
    outcome=Outcome.MISMATCH,
    signature="values differ",
)
CAPTURED = CorpusEntry(
    invocation=unary("aten.celu.default", [1.0, 2.0]),
    exported=unary("aten.celu.default", [1.0]),
    note="ResNet's first",
)


def test_entries_are_read_back_as_they_were_added(tmp_path: Path) -> None:
    corpus = Corpus([tmp_path / "committed", tmp_path / "local"])
    for entry in (FAILURE, CAPTURED):
        corpus.add(entry)
    assert corpus.read("aten.celu.default").entries == (FAILURE, CAPTURED)
    assert corpus.overloads() == ("aten.celu.default",)
    assert read_contents(tmp_path / "local" / "aten.celu.default.jsonl").entries == (FAILURE, CAPTURED)
    assert not (tmp_path / "committed").exists()


def test_an_entry_replaces_the_one_that_says_the_same_of_the_same_case(tmp_path: Path) -> None:
    corpus = Corpus([tmp_path])
    again = replace(FAILURE, stage=Stage.RUN, outcome=Outcome.ERROR, signature="not implemented")
    elsewhere = replace(FAILURE, backend="openvino")
    resized = replace(FAILURE, exported=CAPTURED.exported)
    for entry in (FAILURE, elsewhere, resized, again):
        corpus.add(entry)
    assert corpus.read("aten.celu.default").entries == (elsewhere, resized, again)


def test_what_is_local_counts_more_than_what_is_committed(tmp_path: Path) -> None:
    Corpus([tmp_path / "committed"]).add(replace(FAILURE, note="old"))
    corpus = Corpus([tmp_path / "committed", tmp_path / "local"])
    corpus.add(replace(FAILURE, note="new"))
    assert [entry.note for entry in corpus.read("aten.celu.default").entries] == ["new"]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("{", "not JSON"),
        ("[]", "Expected `object`, got `array`"),
        ('{"origin": "found"}', "Invalid enum value 'found' - at `$.origin`"),
        ('{"origin": "captured"}', "an invocation is an object"),
        (FAILURE.line.replace('"mismatch"', '"wrong"'), "Invalid enum value 'wrong' - at `$.outcome`"),
        (FAILURE.line.replace('"float32"', "32"), "aten.celu.default.self: not a tensor"),
        (
            '{"origin":"captured","invocation":{"overload":"aten.neg.default","arguments":{"self":[{}]}}}',
            "[0]",
        ),
    ],
)
def test_a_damaged_line_is_named_skipped_and_kept(line: str, wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "aten.celu.default.jsonl"
    file.write_text(f"\n{FAILURE.line}\n{line}\n", encoding="utf-8")
    corpus = Corpus([tmp_path])
    contents = corpus.read("aten.celu.default")
    assert contents.entries == (FAILURE,)
    (message,) = contents.damaged
    assert message.startswith(f"{file}:3 is not a corpus entry and was skipped")
    assert wrong in message
    assert "\n" not in message
    corpus.add(CAPTURED)
    assert corpus.read("aten.celu.default").entries == (FAILURE, CAPTURED)
    assert line in file.read_text(encoding="utf-8").splitlines()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"cannot read the corpus file .*none\.jsonl: No such file"):
        read_contents(tmp_path / "none.jsonl")
    assert Corpus([tmp_path / "none"]).read("aten.celu.default").entries == ()
    assert Corpus([tmp_path / "none"]).overloads() == ()


@pytest.mark.slow
def test_processes_add_at_once_without_loss(tmp_path: Path) -> None:
    # Not forked from this process: it has threads, whose locks a forked one would wait for.
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(4)
    shares = [
        [replace(FAILURE, invocation=unary("aten.celu.default", [worker, i])) for i in range(20)] for worker in range(4)
    ]
    processes = [context.Process(target=add_to_corpus, args=(tmp_path, share, ready)) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(Corpus([tmp_path]).read("aten.celu.default").entries) == 80
    assert not list(tmp_path.glob(".*.tmp"))


def test_an_operator_without_entries_has_no_file(tmp_path: Path) -> None:
    corpus = Corpus([tmp_path])
    corpus.add(FAILURE)
    corpus.update("aten.celu.default", lambda kept: ())
    assert corpus.overloads() == ()
