"""Wrong rewrites that are planted in optimisers are found by a run, under their names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from harness_runs import PLUGINS, ROOT, command, environment, rows

from harness.compare.diagnosis import COMPOSED, Diagnosis

pytestmark = pytest.mark.slowest(61)


@pytest.mark.slow
def test_planted_rewrites_are_found_and_named(tmp_path: Path) -> None:
    names = "planted-rewrites"
    planted = {"SwappedMatMulTranspose": "optimiser", "DroppedSoftmaxAxis": "graph optimisation"}
    words = command(
        *("--pattern", "attention", "--shapes", "static", "--examples", "48", "--converter", names, "--backend", names),
        *("--record-only", "--results-dir", tmp_path / "run"),
    )
    ours = environment(PLUGINS / "metadata_rewrites", PLANTED_REWRITES=",".join(planted))
    done = subprocess.run(words, cwd=ROOT, env=ours, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    composed = [row for row in rows(tmp_path / "run") if COMPOSED in getattr(Diagnosis.from_row(row), "facts", {})]
    places = {row["place"] for row in composed}
    assert places >= {f"{optimiser}, {name}" for name, optimiser in planted.items()}
