"""Goldens: recorded twice alike, checked without PyTorch and in it, damaged."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_runs import golden, hide_torch
from harness_runs import environment, output
from planted._guilty import VALUE

from harness.compare.comparison import compare
from harness.compare.verdict import Outcome, Stage
from harness.core import overloads as schema
from harness.core.invocation import PROGRAM, Invocation, Recipe, TensorSpec
from harness.gate.golden.check import GoldenChange, check, run_in_pytorch
from harness.gate.golden.record import known_memory, record
from harness.gate.golden.store import MANIFEST_FILE, PASSED, DamagedGolden, Golden, read_set, write_set
from harness.generate.case_library import load_cases
from harness.pipeline.case_run import CaseRun
from harness.pipeline.reference import run_reference
from harness.record.layout import ResultsError

pytestmark = pytest.mark.slowest(12)

OPERATORS = (
    "celu",
    "add.Tensor",
    "addmm",
    "sort.stable",
    "empty.memory_format",
    "_to_copy",
    "median.dim",
    "relu",
    "cat",
    "logaddexp",
)
PATTERN = "conv-bn"
BACKENDS = ("ort-cpu", "onnx-reference")
CONVERTERS = ("dynamo", "torchscript")


def recorded(directory: Path, names: Sequence[str] = OPERATORS) -> Path:
    operators = [word for name in names for word in ("--op", name)]
    backends = [word for name in BACKENDS for word in ("--backend", name)]
    converters = [word for name in CONVERTERS for word in ("--converter", name)]
    done = golden("record", "--out", directory, *operators, "--pattern", PATTERN, *backends, *converters)
    assert done.returncode == 0, output(done)
    return directory


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("golden") / "set")


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "set")


@pytest.fixture
def no_torch(tmp_path: Path) -> Path:
    return hide_torch(tmp_path)


def contents(directory: Path) -> Mapping[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def rewritten(directory: Path, change: Callable[[Golden], Golden]) -> None:
    """Write the set again with other goldens, and hashes to match."""
    manifest, goldens, endings = read_set(directory)
    by_overload: dict[str, list[Golden]] = {}
    for held in goldens:
        by_overload.setdefault(held.overload, []).append(change(held))
    families = {name: load_cases()[name].family if name in load_cases() else "programs" for name in by_overload}
    write_set(directory, by_overload, endings, families, manifest)


def again(directory: Path, names: Sequence[str], *, backends: Sequence[str] = BACKENDS) -> None:
    """Record in this process, which has imported PyTorch already."""
    known = list(load_cases())
    overloads = sorted({found for name in names for found in schema.match(name, known)})
    overloads = [PROGRAM + PATTERN, *overloads] if len(names) > 1 else overloads
    record(directory, overloads, backends=backends, converter_names=CONVERTERS, complete=False)


@pytest.mark.thorough
def test_recording_again_gives_the_same_bytes(original: Path, tmp_path: Path) -> None:
    again(tmp_path / "again", OPERATORS)
    assert contents(tmp_path / "again") == contents(original)


@pytest.mark.thorough
def test_calls_that_kill_pytorch_are_passed_over(tmp_path: Path) -> None:
    """Some of those that are drawn for it divide by zero."""
    done = golden("record", "--out", tmp_path, "--op", "lcm", "--backend", "onnx-reference")
    assert done.returncode == 0, output(done)
    _, goldens, endings = read_set(tmp_path)
    assert len(goldens) == 3
    # Nor is an exporter taken for dead.
    assert Outcome.CRASH not in {ending.outcome for ending in endings.values()}


@pytest.mark.slow
def test_no_golden_is_made_of_memory_that_pytorch_has_not_written(original: Path) -> None:
    def nothing(dtype: str) -> TensorSpec:
        return TensorSpec((0, 3), dtype, (3, 1), 0, Recipe(("any",), "plain", 0))

    # The sum over no rows is left as it was allocated.
    call = Invocation(
        "aten.multilabel_margin_loss_forward.default",
        (("self", nothing("float64")), ("target", nothing("int64")), ("reduction", 2)),
    )
    reference = run_reference(call)
    unwritten = Golden(invocation=call, feeds=reference.feeds, expected=reference.expected, truth=reference.truth)
    with known_memory():
        assert run_in_pytorch(unwritten).outcome is Outcome.MISMATCH
        _, goldens, _ = read_set(original)
        assert {run_in_pytorch(held).outcome for held in goldens} == {Outcome.PASS}


@pytest.mark.slow
def test_recording_one_operator_again_keeps_the_others(copy: Path, original: Path) -> None:
    recorded(copy, ["celu"])
    assert contents(copy) == contents(original)


def test_recording_one_operator_otherwise_is_refused(copy: Path) -> None:
    with pytest.raises(ResultsError, match=r"was recorded with backends ort-cpu .*, this is onnx-reference"):
        again(copy, ["celu"], backends=["onnx-reference"])


def test_a_golden_holds_what_pytorch_says_today(original: Path) -> None:
    _, goldens, _ = read_set(original)
    assert {g.overload.split(".")[1] for g in goldens} == {*(name.split(".")[0] for name in OPERATORS), PATTERN}
    for held in goldens:
        assert run_in_pytorch(held) == PASSED, held.name
        reference = run_reference(held.invocation)
        for stored, fed in zip(held.feeds, reference.feeds, strict=True):
            assert stored.dtype == fed.dtype
            assert stored.shape == fed.shape
            assert stored.tobytes() == fed.tobytes()


def test_goldens_judge_as_pytorch_beside_them_does(original: Path) -> None:
    """Outputs that are wrong by little or much get one verdict from both oracles."""
    load_cases()
    _, goldens, _ = read_set(original)
    verdicts = set()
    for held in goldens:
        if held.overload == "aten.empty.memory_format":
            continue
        reference = run_reference(held.invocation)
        for factor in (1.0, 1.0 + 2**-22, 1.001, 2.0):
            with np.errstate(all="ignore"):
                got = [(a.astype(np.float64) * factor).astype(a.dtype) for a in held.expected]
            stored, fresh = compare(held.judge, held, got), compare(held.judge, reference, got)
            assert stored == fresh, held.name
            verdicts.add(stored.problem)
    assert {None, "values"} <= verdicts


def test_check_needs_no_pytorch(original: Path, no_torch: Path) -> None:
    blocked = subprocess.run(
        [sys.executable, "-c", "import torch"],
        env={**environment(), "PYTHONPATH": str(no_torch)},
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert b"PyTorch is blocked" in blocked.stderr
    done = golden("check", "--golden", original, path=no_torch)
    assert done.returncode == 0, output(done)
    _, goldens, endings = read_set(original)
    runs = sum(len(g.models) for g in goldens)
    for backend in BACKENDS:
        failing = sum(1 for _, _, b in endings if b == backend)
        assert failing, "a set without failures shows nothing of how they are kept"
        assert f"{runs - failing} pass, {failing} fail as recorded" in done.stdout, backend
    unmade = sum(not g.models for g in goldens)
    assert f"{len(goldens)} goldens, {unmade} of them without a model" in done.stdout


def changes(directory: Path, backend: str, **more: Any) -> dict[tuple[str, str], GoldenChange]:
    manifest, goldens, endings = read_set(directory, more.pop("only", None))
    found = check(manifest, goldens, more.pop("endings", endings), backends=[backend], **more)
    return {(c.golden.case_id, c.converter): c.change for c in found}


def test_a_wrong_number_is_a_new_failure(copy: Path, no_torch: Path) -> None:
    def doubled(held: Golden) -> Golden:
        if held.overload != "aten.celu.default":
            return held
        twice = tuple((a * 2 + 1).astype(a.dtype) for a in held.expected)
        truth = tuple(None if a is None else a * 2 + 1 for a in held.truth or ())
        return dataclasses.replace(held, expected=twice, truth=truth)

    rewritten(copy, doubled)
    done = golden("check", "--golden", copy, "--op", "celu", "--backend", "ort-cpu", path=no_torch)
    assert done.returncode == 1, output(done)
    assert "newly failing" in done.stdout
    assert "now: compare mismatch: " in done.stdout
    assert "recorded: compare pass" in done.stdout


def test_each_change_is_called_what_it_is(original: Path) -> None:
    _, goldens, endings = read_set(original, ["aten.celu.default"])
    held = next(g for g in goldens if "dynamo" in g.models)
    key = held.case_id, "dynamo", "onnx-reference"
    before = endings.get(key, PASSED)
    other = CaseRun(stage=Stage.RUN, outcome=Outcome.ERROR, message="something else")

    def now(recorded_ending: CaseRun) -> GoldenChange:
        planted = {**endings, key: recorded_ending}
        only = changes(original, "onnx-reference", only=["aten.celu.default"], endings=planted)
        return only[held.case_id, "dynamo"]

    if before.ending == PASSED.ending:
        assert now(before) is GoldenChange.PASS
        assert now(other) is GoldenChange.FIXED
    else:
        assert now(before) is GoldenChange.KNOWN
        assert now(other) is GoldenChange.OTHER
        assert now(PASSED) is GoldenChange.NEW


@pytest.mark.parametrize(
    ("module", "word"),
    [("segfault", "crash"), ("raises", "error"), pytest.param("hang", "timeout", marks=pytest.mark.thorough)],
)
def test_a_backend_that_dies_costs_the_guilty_golden_alone(original: Path, module: str, word: str) -> None:
    manifest, goldens, endings = read_set(original)
    # With a number in it that can be the guilty one.
    innocent = next(
        g
        for g in goldens
        if "dynamo" in g.models
        and endings.get((g.case_id, "dynamo", "onnx-reference"), PASSED) == PASSED
        and g.feeds
        and all(a.size and a.dtype.kind == "f" for a in g.feeds)
    )
    feeds = tuple(np.full_like(a, VALUE) for a in innocent.feeds)
    guilty = dataclasses.replace(innocent, feeds=feeds)
    found = list(
        check(
            manifest,
            [innocent, guilty, innocent],
            endings,
            backends=[f"onnx-api:planted.{module}"],
            converters=["dynamo"],
            timeout=5.0,
        )
    )
    assert [str(c.now.outcome) for c in found] == ["pass", word, "pass"]
    # Nothing is recorded of that backend.
    assert [c.change for c in found] == [GoldenChange.PASS, GoldenChange.NEW, GoldenChange.PASS]


def test_pytorch_is_checked_like_a_backend(copy: Path) -> None:
    def nudged(held: Golden) -> Golden:
        if held.overload == "aten.celu.default":
            return dataclasses.replace(held, expected=tuple(np.nextafter(a, a.dtype.type(9)) for a in held.expected))
        if held.overload == "aten.addmm.default":
            # Infinite results are wrong as well.
            tripled = (np.where(np.isfinite(a), a * 3 + 1, 1).astype(a.dtype) for a in held.expected)
            return dataclasses.replace(held, expected=tuple(tripled), truth=None, magnitude=None)
        return held

    rewritten(copy, nudged)
    done = golden("check", "--golden", copy, "--backend", "pytorch", "--all")
    assert done.returncode == 1, output(done)
    assert "aten.addmm.default" in done.stdout
    # A last place is within what is right.
    assert "aten.celu.default" not in done.stdout


def test_pytorch_runs_the_recorded_numbers_whatever_recipes_stand_for(original: Path) -> None:
    _, goldens, _ = read_set(original)
    checked = 0
    for held in goldens:
        specs = [spec for spec in held.invocation.tensors() if spec.numel]
        if not specs or not all(isinstance(spec.values, Recipe) for spec in specs):
            continue
        reseeded = held.invocation.with_values(lambda spec: Recipe(("any",), "plain", 1))
        assert run_in_pytorch(dataclasses.replace(held, invocation=reseeded)) == PASSED, held.name
        checked += any(not spec.is_contiguous for spec in specs)
    assert checked, "no golden has a layout of its own"


def test_a_flipped_bit_is_found_and_its_file_named(copy: Path) -> None:
    path = copy / "data" / "activation.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    done = golden("check", "--golden", copy)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "activation.parquet" in line
    assert "restore it from version control" in line


def test_a_set_of_an_earlier_format_says_what_to_run(copy: Path) -> None:
    manifest = json.loads((copy / MANIFEST_FILE).read_text())
    (copy / MANIFEST_FILE).write_text(json.dumps({**manifest, "format": 1}))
    with pytest.raises(ResultsError, match=r"format 1.*conformance golden record"):
        read_set(copy)


def test_a_missing_file_and_an_empty_directory_are_named(copy: Path, tmp_path: Path) -> None:
    (copy / "data" / "activation.parquet").unlink()
    with pytest.raises(DamagedGolden, match=r"activation\.parquet is missing"):
        read_set(copy)
    done = golden("check", "--golden", tmp_path / "none")
    assert done.returncode == 2
    assert "holds no goldens" in done.stderr


def test_an_unknown_operator_is_met_with_near_ones(original: Path) -> None:
    done = golden("check", "--golden", original, "--op", "cellu")
    assert done.returncode == 2
    assert "near: aten.celu.default" in done.stderr


def test_complex_arguments_are_complex_numbers() -> None:
    """The terms of a transform are sums of magnitudes, which pairs of reals do not have."""
    load_cases()
    spec = TensorSpec((6, 9), "complex64", (9, 1), 0, Recipe(("range", -4.0, 4.0), "plain", 3))
    call = Invocation(
        "aten._fft_c2r.default", (("self", spec), ("dim", (1,)), ("normalization", 0), ("last_dim_size", 16))
    )
    reference = run_reference(call)
    held = Golden(invocation=call, feeds=reference.feeds, expected=reference.expected, truth=reference.truth, models={})
    # Further from the truth than PyTorch, and within what the sum of the terms' magnitudes allows (rule 4).
    (truth,) = reference.truth or (None,)
    assert truth is not None
    got = [(truth + 4e-6 * np.where(np.arange(16) % 2, 1, -1)).astype(np.float32)]
    assert compare(held.judge, reference, got).problem is None
    assert compare(held.judge, held, got) == compare(held.judge, reference, got)
