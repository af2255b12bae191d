"""A run is compared with an earlier run of the same kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.gate.run_request import last_of_kind, requested, shown_first
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

OPERATORS = ("aten.celu.default", "aten.erf.default", "aten.relu.default")


def run(directory: Path, day: int, *, op: str = "", finished: bool = True, **options: Any) -> Path:
    """A run without rows that began on a day of January; all operators for ""."""
    given: dict[str, Any] = {
        "op": [op] if op else [],
        "examples": 128,
        "converter": ["dynamo"],
        "backend": ["ort-cpu"],
    }
    info = RunInfo(
        run_id=directory.name,
        started=f"2026-01-{day:02}T00:00:00+00:00",
        seed=0,
        options={**given, **options},
        planned=(dict.fromkeys([op] if op else OPERATORS, "dynamo"),),
    )
    writer = RunWriter(directory, info)
    for name in info.planned[0]:
        writer.done(name, "dynamo")
    writer.close()
    if finished:
        store.finish(directory, 0)
    return directory


def test_a_small_run_is_neither_shown_first_nor_compared_with(tmp_path: Path) -> None:
    before, between = run(tmp_path / "a", 1), run(tmp_path / "b", 2, op=OPERATORS[0])
    full, small = run(tmp_path / "c", 3, finished=False), run(tmp_path / "d", 4, op=OPERATORS[0])
    requests = [requested(directory) for directory in (before, between, full, small)]
    first = shown_first(requests)
    assert first is not None
    assert first.directory == full
    compared = last_of_kind(first, requests)
    assert compared is not None
    assert compared.directory == before
    of_small = last_of_kind(requests[-1], requests)
    assert of_small is not None
    assert of_small.directory == between
    assert last_of_kind(requests[0], requests) is None
    assert shown_first([]) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"op": OPERATORS[0]}, {"operators": ("all 3", OPERATORS[0])}),
        ({"converter": ["torchscript"]}, {"converters": ("dynamo", "torchscript")}),
        ({"backend": ["ort-cpu", "trt"]}, {"backends": ("ort-cpu", "ort-cpu, trt")}),
        ({"examples": 40}, {"examples": ("128", "40")}),
        ({"dtype": ["float16"]}, {"dtype": ("all", "float16")}),
        ({"shapes": "both"}, {"shapes": ("static", "both")}),
    ],
)
def test_runs_with_different_options_are_not_of_one_kind(
    tmp_path: Path, options: dict[str, Any], said: dict[str, tuple[str, str]]
) -> None:
    one, other = requested(run(tmp_path / "a", 1)), requested(run(tmp_path / "b", 2, **options))
    assert one.differences(other) == said
    assert not one.is_same_kind(other)
    assert last_of_kind(other, [one]) is None


def test_what_a_run_does_not_ask_for_is_known_by_the_row(tmp_path: Path) -> None:
    small = requested(run(tmp_path / "a", 1, op=OPERATORS[0], dtype=["float32"]))
    columns = {
        "overload": [OPERATORS[0], OPERATORS[1], *[OPERATORS[0]] * 4],
        "converter": [*["dynamo"] * 2, "torchscript", *["dynamo"] * 3],
        "backend": [*["ort-cpu"] * 3, "trt", *["ort-cpu"] * 2],
        "dtype": [*["float32"] * 4, "float64", "float32"],
        "source": ["generated"] * 6,
        "shape_mode": [*["static"] * 5, "dynamic"],
    }
    assert small.asks(pa.table(columns)).tolist() == [True, *[False] * 5]
