"""Escape sequences are not recorded, and those of old records are not shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness_runs import record_of, unary

from harness.causes.groups import COLUMNS, failure_groups
from harness.compare.signatures import normalise
from harness.compare.verdict import Outcome, Stage
from harness.core.text import describe_error, strip_escapes
from harness.record import store
from harness.record.json_lines import Minimal, append_line, read_minimal

COLOURED = "Failed. \x1b[96mThis is step 1/3\x1b[0m of exporting."
SAID = "Failed. This is step 1/3 of exporting."
FAILED = {"stage": Stage.CONVERT, "outcome": Outcome.ERROR, "blame": "converter", "signature": COLOURED}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    words = {"message": COLOURED, "evidence": COLOURED}
    return record_of(tmp_path / "run", [unary("aten.neg.default", [1.0])], **FAILED, **words)


def test_nothing_is_recorded_that_a_terminal_obeys(run: Path) -> None:
    [row] = store.read(run, ["message", "evidence", "signature"]).to_pylist()
    assert row == {"message": SAID, "evidence": SAID, "signature": SAID}
    assert describe_error(ValueError(COLOURED)) == f"ValueError: {SAID}"
    # One that the end of a message would cut is gone before it is cut.
    assert "\x1b" not in describe_error(ValueError("x" * 1985 + COLOURED))
    assert "\x1b" not in normalise(COLOURED)


def test_nothing_of_an_old_record_is_shown_that_a_terminal_obeys(run: Path) -> None:
    file = run / "verdicts.parquet"
    table = pq.read_table(file)
    place = table.column_names.index("message")
    pq.write_table(table.set_column(place, "message", pa.array([COLOURED])), file)
    [verdict] = store.verdicts(run)
    assert verdict.message == SAID
    names = Minimal.__dataclass_fields__.keys() & vars(verdict).keys()
    minimal = Minimal(**{name: getattr(verdict, name) for name in names}, minimal_id=verdict.case_id)
    append_line(run, replace(minimal, message=COLOURED))
    [group] = failure_groups(store.read(run, COLUMNS), read_minimal(run))
    assert group.message == SAID
    assert group.minimal is not None
    assert group.minimal.message == SAID


@pytest.mark.parametrize(
    "words",
    ["a\x1b[1;31mb", "a\x1b]0;title\x07b", "a\x1b]8;;https://x\x1b\\b", "a\x1b(Bb", "a\x1bMb", "ab\x1b"],
)
def test_sequences_of_every_kind_go(words: str) -> None:
    assert strip_escapes(words) == "ab"
