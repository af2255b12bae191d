"""`pytest harness` as a user starts it, and what the tests of the harness share."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness_sessions import Sessions, sessions
from recorded_rows import (
    record_of as record_of,
    recorded as recorded,
    row_of as row_of,
    unary as unary,
    vector as vector,
)

from harness.compare.verdict import Verdict
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.generate.sources.recorded import FromRecord
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit
from harness.record import store

ROOT = Path(__file__).parents[2]
#: Where the package `planted` is.
PLUGINS = Path(__file__).parents[1] / "plugins"
#: Its metadata, as an installed package has them: they announce its converters and backends. They have a folder of
#: their own, so that a process has the planted ones only if it asks for them.
METADATA = PLUGINS / "metadata"

if str(PLUGINS) not in sys.path:
    # For `onnx-api:planted.*` in this process; a worker process is given this path.
    sys.path.append(str(PLUGINS))


#: The metadata of its replacements for PyTorch's kernels.
KERNELS_METADATA = PLUGINS / "metadata_kernels"
#: The metadata of defects that need two conditions at once.
PAIRS_METADATA = PLUGINS / "metadata_pairs"


@cache
def _pandas_hider() -> tempfile.TemporaryDirectory[str]:
    """A folder that hides pandas, as most users have none.

    Arrow imports it where it is installed, which takes a small process a tenth of its time.
    """
    directory = tempfile.TemporaryDirectory(prefix="without-pandas-")
    (Path(directory.name) / "pandas.py").write_text("raise ImportError('pandas is hidden')\n")
    return directory


def environment(metadata: Path = METADATA, **more: str) -> dict[str, str]:
    """Return the variables of a process that finds the harness and the plug-ins that `metadata` announces."""
    places = (_pandas_hider().name, ROOT, PLUGINS, metadata, os.environ.get("PYTHONPATH", ""))
    path = os.pathsep.join(map(str, places))
    ours = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    # Compiled modules are kept between processes, as they are for users.
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **ours, **more}


def command(*options: str | Path) -> list[str]:
    """`pytest harness` with `options`, leaving nothing in the project."""
    # The cache is where `--lf` remembers; tests that use it say where it is to be.
    cache = () if any("cache_dir" in str(o) for o in options) else ("-p", "no:cacheprovider")
    # Nor the corpus, which would make one test's failures another's cases.
    drawn = not {"--source", "--replay", "--model", "--models", "--programs", "--pattern"} & set(options)
    source = ("--source", "generated") if drawn else ()
    return [sys.executable, "-m", "pytest", str(ROOT / "harness"), *cache, *source, *map(str, options)]


def run_harness(
    *options: str | Path,
    cwd: Path = ROOT,
    timeout: float = 300,
    metadata: Path = METADATA,
    start: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `pytest harness` to its end, in a process that other sessions ran in before.

    Args:
        start: Run it in a process that Python starts, as it starts all below: sets differ in their order.
    """
    if start:
        ours = environment(metadata)
        words = command(*options)
        return subprocess.run(words, cwd=cwd, env=ours, timeout=timeout, capture_output=True, text=True)
    return shared(metadata).run("pytest", command(*options)[3:], cwd, timeout)


def shared(metadata: Path = METADATA) -> Sessions:
    """The process that runs sessions and commands with the plug-ins that `metadata` announces."""
    return sessions(environment(metadata))


def output(done: subprocess.CompletedProcess[str]) -> str:
    """Describe how a process ended, for the message of an assertion."""
    return f"exit status {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


def rows(results_dir: Path, *columns: str) -> list[dict[str, Any]]:
    """The record of a run."""
    found: list[dict[str, Any]] = store.read(results_dir, columns or None).to_pylist()
    return found


def literal_unit(
    invocations: Sequence[Invocation],
    *,
    converter: str = "dynamo",
    backends: Sequence[str],
    opset: int | None = None,
    rules: Sequence[str] = (),
    **more: Any,
) -> Unit:
    """A unit that runs `invocations`."""
    return Unit(
        overload=invocations[0].overload,
        route=Route(converter=converter, opset=opset, rules=tuple(rules)),
        backends=tuple(backends),
        sources=(FromRecord.of_calls(invocations),),
        **more,
    )


def verdict_of(call: Invocation, *, opset: int | None = None, rules: Sequence[str] = ()) -> Verdict:
    """Run a call through dynamo and ONNX Runtime, and return its verdict with the blame."""
    load_cases()
    unit = literal_unit([call], backends=("ort-cpu",), opset=opset, rules=rules)
    with Supervisor(timeout=60) as supervisor:
        ((verdict,),) = run_unit(unit, supervisor)
    return verdict
