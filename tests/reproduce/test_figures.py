"""What a release changed of the cost of a call: planted leaks and slowdowns are found, quiet releases are silent."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import answered, typed

from harness.reproduce.figures import Figure, FigureChange, MeasureCommand, NotMeasured, compare_figures

MODEL = """\
import torch


def make_model():
    layers = torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
    return torch.nn.Sequential(*layers), (torch.ones(64, 256),)
"""
#: A runtime whose releases differ in what `{extra}` does on each call.
RUNTIME = """\
import time
import types

from harness.run.backend import BackendEntry, register

KEPT = []


def load(model, shapes):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def run(feeds):
        began = time.perf_counter()
        outputs = session.run(None, feeds)
        {extra}
        return outputs

    return types.SimpleNamespace(runnable=True, run=run)


register(
    BackendEntry(
        name="releases",
        probe=lambda argument: None,
        create=lambda argument: types.SimpleNamespace(
            name="releases", device="cpu", version="1", narrows=lambda dtype: None, load=load
        ),
        version=lambda argument: "1",
    )
)
"""
QUIET = "pass"
LEAKS = "KEPT.append(bytearray(2**20))"
#: A fifth more than the call itself took, whatever else the machine does.
SLOW = "end = time.perf_counter() + 0.2 * (time.perf_counter() - began)\n        while time.perf_counter() < end: pass"


def released(place: Path, extra: str) -> Path:
    """A folder with a release of the runtime, as pip would make it."""
    information = place / "releases_runtime-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: releases-runtime\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[harness.backends]\nreleases = releases_runtime\n")
    (place / "releases_runtime.py").write_text(RUNTIME.replace("{extra}", extra))
    return place


def compared(place: Path, extra: str, pairs: int) -> dict[Figure, FigureChange]:
    """Measure a release against a quiet one."""
    (place / "model.py").write_text(MODEL)
    words = ["model.py:make_model", "--backend", "releases"]
    sides = [released(place / name, text) for name, text in (("before", QUIET), ("after", extra))]
    before, after = (MeasureCommand(words, [side], place) for side in sides)
    changes = compare_figures(before, after, pairs)
    return {change.figure: change for change in changes}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "figure"),
    [
        pytest.param(LEAKS, Figure.MEMORY, id="a leak of 1 MB a call"),
        pytest.param(SLOW, Figure.MILLISECONDS, id="a slowdown of a fifth"),
    ],
)
def test_a_planted_regression_is_found(tmp_path: Path, extra: str, figure: Figure) -> None:
    changes = compared(tmp_path, extra, pairs=4)
    assert changes[figure].is_worse, changes
    # A call that keeps memory also takes longer.
    assert not any(changes[name].is_worse for name in (Figure.SQNR, Figure.FLIPS))


@pytest.mark.thorough
def test_a_quiet_release_is_silent(tmp_path: Path) -> None:
    changes = compared(tmp_path, QUIET, pairs=7)
    assert not any(change.is_worse or change.is_better for change in changes.values()), changes


def measuring(values: Iterator[float], key: str = "milliseconds") -> Any:
    rest = {"milliseconds": 1.0, "memory": 0.0, "sqnr": 60.0, "flips": 0}
    return lambda: {**rest, key: next(values)}


@pytest.mark.parametrize(
    ("key", "before", "after", "figure", "worse", "better"),
    [
        pytest.param("milliseconds", 1.0, 1.2, Figure.MILLISECONDS, True, False, id="slower"),
        pytest.param("milliseconds", 1.2, 1.0, Figure.MILLISECONDS, False, True, id="faster"),
        pytest.param("milliseconds", 1.0, 1.05, Figure.MILLISECONDS, False, False, id="a little slower"),
        pytest.param("memory", 0.0, 2.0**20, Figure.MEMORY, True, False, id="a leak"),
        pytest.param("sqnr", 60.0, 50.0, Figure.SQNR, True, False, id="less exact"),
        pytest.param("sqnr", 60.0, 70.0, Figure.SQNR, False, True, id="more exact"),
        pytest.param("flips", 0, 3, Figure.FLIPS, True, False, id="rows flip"),
    ],
)
def test_a_change_counts_if_every_pair_shows_it(
    key: str, before: float, after: float, figure: Figure, worse: bool, better: bool
) -> None:
    first, second = (measuring(itertools.repeat(value), key) for value in (before, after))
    (change,) = [change for change in compare_figures(first, second) if change.figure is figure]
    assert (change.is_worse, change.is_better) == (worse, better)


def test_a_machine_that_is_slow_for_a_while_is_no_regression() -> None:
    times = iter([1.0, 1.0, 1.4, 1.4, 1.6, 1.6, 1.0, 1.0, 1.2, 1.2, 1.0, 1.0, 1.0, 1.0])
    both = measuring(times)
    changes = {change.figure: change for change in compare_figures(both, both)}
    assert not changes[Figure.MILLISECONDS].is_worse


def test_noise_alone_is_silent() -> None:
    noise = random.Random(7)
    false = 0
    for _ in range(500):
        first, second = (measuring(iter([noise.lognormvariate(0, 0.1) for _ in range(7)])) for _ in range(2))
        changes = {change.figure: change for change in compare_figures(first, second)}
        false += changes[Figure.MILLISECONDS].is_worse or changes[Figure.MILLISECONDS].is_better
    # Both signs of seven pairs: at most 1 in 64 by chance.
    assert false <= 500 / 64 + 8


@pytest.mark.slow
def test_a_model_without_figures_says_why(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured):
        MeasureCommand(["nowhere.py:make"], [], tmp_path)()
    assert typed("measure", "nowhere.py:make", status=2).exit_code == 2
    (tmp_path / "bad.py").write_text("def make(): return 3\n")
    assert typed("measure", f"{tmp_path / 'bad.py'}:make", status=(1, 2)).exit_code


def test_a_call_is_measured(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    data = answered("measure", f"{tmp_path / 'model.py'}:make_model")
    assert 0 < data["milliseconds"] < 1000
    assert abs(data["memory"]) < 2**20
    assert data["rows"] == 64
    assert data["flips"] == 0
    assert data["route"] == "dynamo → ort-cpu"
