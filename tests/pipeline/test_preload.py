"""The modules that a worker needs are imported before it is forked."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from harness_runs import environment, output

from harness.plan.basis import VIEWS

PROGRAM = """
import json, sys, torch
from collections import Counter

asked = Counter()
kept = torch.cuda.is_available

def available():
    asked["asked"] += 1
    return kept()

torch.cuda.is_available = available
import harness.pipeline.preload
said = {"asked": asked.total(), "put back": torch.cuda.is_available is available}
import harness.pipeline.worker, harness.blame, harness.plan
print(json.dumps({**said, "modules": [name for name in sys.modules if name.startswith("harness.")]}))
"""


@pytest.fixture(scope="module")
def preloaded() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, output(done)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.slow
def test_no_gpu_is_asked_for_before_processes_are_forked(preloaded: dict[str, Any]) -> None:
    # CUDA's driver, once started, is of no use to the processes that are forked.
    assert preloaded["asked"] == 0
    assert preloaded["put back"]


@pytest.mark.slow
def test_what_a_worker_imports_counts_as_source(preloaded: dict[str, Any]) -> None:
    """Shards are only merged where none of it differs."""
    assert len(preloaded["modules"]) > 60
    assert {name.split(".")[1] for name in preloaded["modules"]}.isdisjoint(VIEWS)
