"""The goldens of this repository: whole, and right today in ONNX's runtimes and in PyTorch on any CPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from golden_runs import COMMITTED, golden, hide_torch
from harness_runs import output

from harness.gate.golden.store import read_manifest, read_set
from harness.generate.case_library import load_cases
from harness.run.backend import BACKENDS

pytestmark = pytest.mark.slowest(27)

RUNTIMES = ("ort-cpu", "onnx-reference")


@pytest.fixture(scope="module")
def sample() -> list[str]:
    """`--op` for one in so many overloads of the committed set."""
    overloads = list(read_manifest(COMMITTED).goldens)
    return [word for name in overloads[:: len(overloads) // 40] for word in ("--op", name)]


def test_the_committed_set_is_whole() -> None:
    manifest, goldens, _ = read_set(COMMITTED)
    assert set(load_cases()) <= set(manifest.goldens)
    assert len(goldens) >= 2.5 * len(manifest.goldens)
    files = list((COMMITTED / "data").iterdir())
    assert {path.relative_to(COMMITTED).as_posix() for path in files} == set(manifest.files)
    assert sum(path.stat().st_size for path in files) < 6 * 2**20


def test_runtimes_end_on_the_committed_set_as_recorded(sample: Sequence[str], tmp_path: Path) -> None:
    recorded_with = read_manifest(COMMITTED).backends
    for name in RUNTIMES:
        entry, argument = BACKENDS.find(name)
        if entry.version(argument) != recorded_with[name]:
            pytest.skip(f"recorded with {name} {recorded_with[name]}")
    chosen = [word for name in RUNTIMES for word in ("--backend", name)]
    done = golden("check", "--golden", COMMITTED, *sample, *chosen, path=hide_torch(tmp_path))
    assert done.returncode == 0, output(done)
    assert done.stdout.count(" 0 pass now, 0 newly fail, 0 end in another way") == len(RUNTIMES), output(done)


@pytest.mark.parametrize("vectors", [True, False])
def test_the_committed_set_is_right_on_any_cpu(sample: Sequence[str], vectors: bool) -> None:
    recorded_with = read_manifest(COMMITTED).versions["torch"]
    if metadata.version("torch") != recorded_with:
        pytest.skip(f"recorded with PyTorch {recorded_with}")
    # PyTorch's kernels for a CPU without vector instructions: other last places.
    words = ("check", "--golden", str(COMMITTED), "--backend", "pytorch", *sample, "--all")
    done = golden(*words) if vectors else golden(*words, ATEN_CPU_CAPABILITY="default")
    assert done.returncode == 0, output(done)
