"""Commands that read a run: they say the same of its parts, merged or not, and of the one file at its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from commands import entered
from harness_runs import recorded, row_of, unary
from sampling import sampled

from harness.causes.groups import COLUMNS, FAILED, failure_groups
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.record import layout, store
from harness.record.run_info import RunInfo, read_run_info
from harness.record.writer import RunWriter

OPERATORS = ("aten.celu.default", "aten.elu.default", "aten.avg_pool2d.default")
#: More than are merged into one file.
PARTS = 40


def verdicts() -> Iterator[Verdict]:
    for number in range(PARTS * 6):
        call = unary(OPERATORS[number % 3], [float(n) for n in range(number % 5 + 1)] + [float(number)])
        outcome = (Outcome.PASS, Outcome.MISMATCH, Outcome.ERROR, Outcome.PASS, Outcome.UNSUPPORTED)[number % 5]
        fails = outcome.is_failure
        for backend in ("ort-cpu", "onnx-reference"):
            yield row_of(
                call,
                backend=backend,
                converter=("dynamo", "torchscript")[number // 7 % 2],
                outcome=outcome,
                stage=Stage.CONVERT if outcome is Outcome.UNSUPPORTED else Stage.COMPARE,
                signature=f"kind {number % 4} of failure" if fails else "",
                message=f"case {number}" if fails else "",
                blame=("converter", "backend", "spec")[number % 3] if fails else "",
                evidence=f"{backend}'s graph optimisation changes it" if number % 2 else "two agree",
                structure_id=f"{number % 11}",
                max_ulp_error=None if fails else number / 8,
            )


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    run, rows = tmp_path / "results" / "run", list(verdicts())
    info = RunInfo.begin(seed=1, options={}, planned=[dict.fromkeys(OPERATORS, "dynamo torchscript")])
    with RunWriter(run, info) as writer:
        for start in range(0, len(rows), len(rows) // PARTS):
            writer.write(rows[start : start + len(rows) // PARTS])
            writer.flush()
        for overload in OPERATORS:
            for unit in ("dynamo", "torchscript"):
                writer.done(overload, unit)
    return run


def asked(run: Path, words: tuple[str, ...]) -> Result:
    other, place = str(run.parent / "other"), str(run.parent / "out")
    meant = {"RUN": str(run), "OTHER": other, "OUT": place, "CASE": next(verdicts()).case_id}
    return entered(*(meant.get(word, word) for word in words))


ASKED = (
    ("failures", "RUN", "--limit", "0"),
    ("failures", "RUN", "--json"),
    ("failures", "RUN", "--op", "*elu", "--blame", "converter"),
    ("show", "CASE", "--run", "RUN"),
    ("diff", "RUN", "OTHER"),
    ("diff", "OTHER", "RUN", "--fail-on", "change", "--json"),
    ("summary", "RUN", "--against", "OTHER"),
    ("tolerance", "RUN", "--out", "OUT", "--json"),
    ("baseline", "RUN", "--out", "OUT"),
)


@pytest.mark.parametrize("words", sampled(ASKED, every=2), ids=" ".join)
def test_a_run_in_parts_says_what_the_finished_one_says(whole: Path, words: tuple[str, ...]) -> None:
    other = whole.parent / "other"
    passing = [replace(v, outcome=Outcome.PASS) for v in verdicts() if v.overload != OPERATORS[1]]
    recorded(other, passing, replace(read_run_info(whole), run_id="other"))
    assert len(layout.part_files(whole)) < PARTS
    merged = asked(whole, words)
    shutil.rmtree(whole / "parts" / "merged")
    assert len(layout.part_files(whole)) == PARTS
    apart = asked(whole, words)
    store.finish(whole, 0)
    finished = asked(whole, words)
    assert finished.exit_code in (0, 1), finished.output
    assert merged.stdout == apart.stdout
    assert (merged.stdout, merged.exit_code) == (finished.stdout, finished.exit_code)


def test_failures_are_a_table_that_words_of_a_runtime_cannot_break(tmp_path: Path) -> None:
    words = "bad | cell <img src=x>\nsecond line"
    calls = [unary(f"aten.{name}.default", [1.0]) for name in ("neg", "abs", "cos")]
    failed = {"stage": Stage.RUN, "outcome": Outcome.ERROR, "blame": "backend", "signature": words, "message": words}
    run = tmp_path / "run"
    with RunWriter(run, RunInfo.begin(seed=1, options={})) as writer:
        writer.write([row_of(call, fault="fails", component=words, place=call.overload, **failed) for call in calls])
    store.finish(run, 1)
    done = asked(run, ("failures", "RUN", "--markdown"))
    assert done.exit_code == 1, done.output
    title, _, heads, _, *lines = done.stdout.splitlines()
    assert title.startswith("3 distinct failures")
    assert len(lines) == 3
    assert all(line.replace(r"\|", "").count("|") == heads.count("|") for line in lines)
    assert "<img" not in done.stdout


def test_an_interrupted_run_without_failures_is_not_called_free_of_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    info = RunInfo.begin(seed=1, options={}, planned=[dict.fromkeys(OPERATORS, "dynamo")])
    with RunWriter(run, info) as writer:
        nothing = asked(run, ("failures", "RUN"))
        writer.write([row_of(unary(OPERATORS[0], [1.0]))])
        writer.flush()
        writer.done(OPERATORS[0], "dynamo")
        some = asked(run, ("failures", "RUN"))
        of_kind = asked(run, ("failures", "RUN", "--outcome", "crash", "--json"))
        for overload in OPERATORS[1:]:
            writer.done(overload, "dynamo")
    assert nothing.exit_code == some.exit_code == of_kind.exit_code == 1
    assert (
        "No failures; the run is incomplete: it has no verdict; it did not finish; 3 of 3 operators lack results "
        in " ".join(nothing.stdout.split())
    )
    assert "No failures; the run is incomplete: it did not finish; 2 of 3 operators lack results" in " ".join(
        some.stdout.split()
    )
    assert json.loads(of_kind.stdout)["missing"].startswith("it did not finish; 2 of 3 operators")
    store.finish(run, 0)
    done = asked(run, ("failures", "RUN"))
    assert (done.exit_code, done.output) == (0, "No failures.\n")


def test_groups_have_their_smallest_case_however_its_document_is_written(whole: Path) -> None:
    rows = store.read(whole, COLUMNS, FAILED)
    expected = {group.cause: group.case_id for group in failure_groups(rows)}
    texts = rows["invocation"].to_pylist()
    # The same documents as other tools write JSON, and one that cannot be read.
    spaced = [json.dumps(json.loads(text), indent=0) for text in texts]
    place = rows.schema.get_field_index("invocation")
    field = rows.schema.field(place)
    found = {g.cause: g.case_id for g in failure_groups(rows.set_column(place, field, [spaced]))}
    assert found == expected
    smallest = next(iter(expected.values()))
    ids = rows["case_id"].to_pylist()
    broken = ["{" if case == smallest else text for case, text in zip(ids, texts, strict=True)]
    assert len(failure_groups(rows.set_column(place, field, [broken]))) == len(expected)
