"""A run with other private parts of PyTorch is slower, notes it, and has the verdicts of the public call."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from harness_runs import METADATA, PLUGINS, ROOT, command, environment, output, rows, shared
from harness_sessions import Sessions

from harness.convert.converter import ExportRequest
from harness.convert.converters.dynamo import DynamoConverter
from harness.convert.fast.exporter_check import exporter_check
from harness.convert.operator_calls import OperatorCall, OperatorCalls
from harness.core.isolation import IsolatedCalls
from harness.core.tensors import TENSOR_PLACE, BoundCall
from harness.record.run_info import read_run_info

pytestmark = [pytest.mark.slowest(9), pytest.mark.slow]

CHANGED = PLUGINS / "changed_pytorch"
#: One operator that is converted as it is, one that is decomposed, and one that has no conversion.
OPERATORS = ("aten.relu.default", "aten.hardshrink.default", "aten.special_zeta.default")


def run(process: Sessions, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A small run."""
    operators = [word for name in OPERATORS for word in ("--op", name)]
    few = ("--examples", "3", "--values", "2", "--shrink", "0", "--results-dir", str(directory))
    return process.run("pytest", command(*operators, *few, *options)[3:], ROOT, 600)


def verdicts(directory: Path) -> list[dict[str, Any]]:
    columns = ("overload", "case_id", "backend", "opset", "stage", "outcome", "blame", "max_ulp_error")
    return sorted(rows(directory, *columns), key=str)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the rows of the plain public call with the installed PyTorch."""
    directory = tmp_path_factory.mktemp("public") / "run"
    done = run(shared(), directory, "--public-api")
    assert "differs from what the harness knows" not in done.stdout, output(done)
    assert read_run_info(directory).notes == ()
    found = verdicts(directory)
    assert {row["outcome"] for row in found} == {"pass", "unsupported"}, output(done)
    return found


#: Change → what is said of it.
SAID = {
    "missing name": "_decomp.create_onnx_friendly_decomposition_table is missing",
    "other signature": ("decompose_with_registry takes (registry, exported_program), not (exported_program, registry)"),
    "renamed error": "_errors.DispatchError is missing; NoConversionError is raised in place of",
    "other graph": "aten.relu.default, converted as it is, gets another graph alone",
}


@pytest.fixture(scope="module", params=SAID)
def change(request: pytest.FixtureRequest) -> str:
    """Return the name of a change of `sitecustomize.CHANGES` to PyTorch."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def changed(change: str) -> Iterator[Sessions]:
    """A process with a PyTorch that is changed in this way."""
    variables = environment(METADATA, CHANGED_PYTORCH=change)
    variables["PYTHONPATH"] = f"{CHANGED}:{variables['PYTHONPATH']}"
    process = Sessions(variables)
    yield process
    process.close()


def test_a_changed_exporter_is_noted_once_and_changes_no_verdict(
    change: str, changed: Sessions, public: list[dict[str, Any]], tmp_path: Path
) -> None:
    done = run(changed, tmp_path / "run")
    # It is about how the run was made: `run.json` has it, and `-v` prints it.
    assert "differs from what the harness knows" not in done.stdout, output(done)
    (note,) = read_run_info(tmp_path / "run").notes
    assert SAID[change] in note
    assert verdicts(tmp_path / "run") == public, output(done)


@pytest.mark.parametrize("change", ["missing name"], indirect=True)
def test_explain_says_what_it_cannot_find_out(changed: Sessions) -> None:
    words = ["explain", "hardshrink", "--examples", "1", "--converter", "dynamo", "--backend", "ort-cpu"]
    done = changed.run("conformance", words, ROOT, 600)
    assert done.returncode == 0, output(done)
    said = " ".join(done.stdout.split())
    assert "could not be decomposed: torch.onnx._internal.exporter._decomp" in said
    assert "1 pass" in said


def is_fast() -> bool:
    calls = OperatorCalls([OperatorCall(BoundCall(torch.ops.aten.relu.default, (TENSOR_PLACE,), ()), 1, 1)])
    request = ExportRequest(program=calls, inputs=(torch.ones(2),), input_names=("x",), output_names=("y",))
    fast = DynamoConverter(False)._fast
    return fast is not None and fast.covers(request)


def test_the_fast_lane_is_used_where_nothing_is_changed() -> None:
    with IsolatedCalls(fork=True) as calls:
        assert calls.call(exporter_check).differences == ()
        assert calls.call(is_fast)
