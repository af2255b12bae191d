"""`pytest harness` as a user starts it, and what the tests of the harness share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness_sessions import Sessions, sessions

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides
from harness.generate.sources.recorded import Replayed
from harness.plan.unit import Unit
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

ROOT = Path(__file__).parents[2]
#: Where the package `planted` is.
PLUGINS = Path(__file__).parents[1] / "plugins"
#: Its metadata, as an installed package has them beside it: they announce its converters. Kept apart, so
#: that a process has the planted converters only if it asks for them.
METADATA = PLUGINS / "metadata"

if str(PLUGINS) not in sys.path:
    # For `onnx-api:planted.*` in this process; a worker process is given this path.
    sys.path.append(str(PLUGINS))


#: The same of its backends, and of its replacements for PyTorch's kernels.
BACKENDS_METADATA, KERNELS_METADATA = PLUGINS / "metadata_backends", PLUGINS / "metadata_kernels"


def environment(metadata: Path = METADATA, **more: str) -> dict[str, str]:
    """Of a process that finds the harness and the plug-ins that `metadata` announces."""
    path = os.pathsep.join([*map(str, (ROOT, PLUGINS, metadata)), os.environ.get("PYTHONPATH", "")])
    ours = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    # Compiled modules are kept between processes, as they are for users.
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **ours, **more}


def command(*options: str | Path) -> list[str]:
    """`pytest harness` with `options`, leaving nothing in the project."""
    # The cache is where `--lf` remembers; tests that use it say where it is to be.
    cache = () if any("cache_dir" in str(o) for o in options) else ("-p", "no:cacheprovider")
    # Nor the corpus, which would make one test's failures another's cases.
    drawn = not {"--source", "--replay", "--model", "--models"} & set(options)
    source = ("--source", "generated") if drawn else ()
    return [sys.executable, "-m", "pytest", str(ROOT / "harness"), *cache, *source, *map(str, options)]


def run_harness(
    *options: str | Path,
    cwd: Path = ROOT,
    timeout: float = 300,
    metadata: Path = METADATA,
) -> subprocess.CompletedProcess[str]:
    """Run `pytest harness` to its end, in a process that other sessions ran in before."""
    return shared(metadata).run("pytest", command(*options)[3:], cwd, timeout)


def shared(metadata: Path = METADATA) -> Sessions:
    """The process that runs sessions and commands with the plug-ins that `metadata` announces."""
    return sessions(environment(metadata))


def output(done: subprocess.CompletedProcess[str]) -> str:
    """For the message of an assertion."""
    return f"exit status {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


def rows(results_dir: Path, *columns: str) -> list[dict[str, Any]]:
    """The record of a run."""
    found: list[dict[str, Any]] = store.read(results_dir, columns or None).to_pylist()
    return found


def vector(values: Sequence[complex], dtype: str = "float32") -> TensorSpec:
    """A tensor with one dimension and literal values."""
    shape = (len(values),)
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(values)))


def unary(overload: str, values: Sequence[float], dtype: str = "float32") -> Invocation:
    """A call with one tensor."""
    return Invocation(overload, (("self", vector(values, dtype)),))


def literal_unit(
    invocations: Sequence[Invocation], *, converter: str = "dynamo", backends: Sequence[str], **more: Any
) -> Unit:
    """A unit that runs `invocations`."""
    return Unit(
        overload=invocations[0].overload,
        converter=converter,
        backends=tuple(backends),
        replay=tuple(Replayed(invocation, None) for invocation in invocations),
        **more,
    )


def record_of(directory: Path, invocations: Sequence[Invocation], **changes: Any) -> Path:
    """A recorded run with one row per invocation, for `--replay`."""
    info = RunInfo.begin(seed=0, options={})
    with RunWriter(directory, info) as writer:
        writer.write(row_of(invocation, **changes) for invocation in invocations)
    store.finish(directory, 0)
    return directory


def row_of(invocation: Invocation, /, **changes: Any) -> Verdict:
    """A row of a record; a pass but for `changes`."""
    fields: dict[str, Any] = {
        "case_id": invocation.case_id,
        "overload": invocation.overload,
        "family": "",
        "dtype": invocation.dtype,
        "shape_mode": "static",
        "source": "generated",
        "converter": "dynamo",
        "converter_version": "",
        "opset": None,
        "backend": "ort-cpu",
        "backend_version": "",
        "device": "cpu",
        "stage": Stage.COMPARE,
        "outcome": Outcome.PASS,
        "invocation": invocation.json,
    }
    return Verdict(**{**fields, **changes})
