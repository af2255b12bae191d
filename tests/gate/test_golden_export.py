"""Goldens in the layout of ONNX's backend tests, run by ONNX's own code, ONNX Runtime and OpenVINO."""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import subprocess
import sys
import unittest
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import typed
from golden_runs import COMMITTED, golden
from harness_runs import output
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

from harness.gate.golden.store import read_manifest


class _Rep(BackendRep):
    def __init__(self, run: Callable[[dict[str, Any]], Sequence[Any]], names: Sequence[str]) -> None:
        self._run, self._names = run, names

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> Sequence[Any]:  # type: ignore[override]
        return self._run(dict(zip(self._names, inputs, strict=True)))


class _Reference(Backend):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> _Rep:
        evaluator = ReferenceEvaluator(model)
        return _Rep(lambda feeds: evaluator.run(None, feeds), [i.name for i in model.graph.input])  # type: ignore[arg-type, return-value]

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class _Ort(_Reference):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> _Rep:
        import onnxruntime

        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return _Rep(lambda feeds: session.run(None, feeds), [i.name for i in model.graph.input])


class _Runner(Runner):
    """ONNX's own, for one directory in place of its own tests."""

    def __init__(self, backend: type[Backend], tests: Sequence[Any]) -> None:
        self.backend = backend
        self._parent_module = __name__
        self._include_patterns, self._exclude_patterns, self._xfail_patterns = set(), set(), set()
        self._test_kwargs: dict[str, Any] = {}
        self._test_items = {"AtenModel": {}}
        for test in tests:
            self._add_model_test(test, "Aten")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("export")
    overloads = list(read_manifest(COMMITTED).goldens)
    chosen = [word for name in ("celu", *overloads[::30]) for word in ("--op", name)]
    done = golden("export", directory, "--layout", "onnx-backend-test", "--golden", COMMITTED, *chosen)
    assert done.returncode == 0, output(done)
    assert "goldens left out: several answers are right" in done.stdout
    return directory


@pytest.mark.parametrize("backend", [_Reference, _Ort])
def test_onnx_runs_the_exported_tests(exported: Path, backend: type[Backend]) -> None:
    tests = load_model_tests(data_dir=str(exported), kind="aten")
    plain = [t for t in tests if "BFLOAT16" not in _types(Path(t.model_dir))]  # type: ignore[arg-type]
    assert len(plain) >= 8
    suite = _Runner(backend, plain).test_suite
    result = unittest.TestResult()
    with contextlib.redirect_stdout(None):
        suite.run(result)
    ran = result.testsRun - len(result.skipped)
    wrong = [f"{case}: {trace[-300:]}" for case, trace in (*result.failures, *result.errors)]
    assert ran >= len(plain)
    # A test was seen to pass in one backend at least, not in each.
    assert len(wrong) <= ran // 4, wrong


@pytest.mark.slow
def test_onnx_runs_the_drawn_operators_of_a_run(tmp_path: Path) -> None:
    run, suite = tmp_path / "run", tmp_path / "suite"
    drawn = [sys.executable, "-m", "pytest", "harness", "--onnx", "--op", "Relu", "--op", "Resize", "--op", "TopK"]
    subprocess.run(
        [*drawn, "--examples", "12", "--results-dir", str(run), "-p", "no:cacheprovider"],
        capture_output=True,
        check=False,
    )
    typed("golden", "export", str(suite), "--run", str(run), "--op", "Resize", "--op", "TopK")
    tests = load_model_tests(data_dir=str(suite), kind="onnx")
    assert {t.name.split("_")[1] for t in tests} == {"Resize", "TopK"}
    plain = [t for t in tests if _types(Path(t.model_dir)) <= {"FLOAT", "INT64"}]  # type: ignore[arg-type]
    result = unittest.TestResult()
    with contextlib.redirect_stdout(None):
        _Runner(_Ort, plain).test_suite.run(result)
    assert result.testsRun > 20
    assert not result.failures
    assert not result.errors
    typed("golden", "export", str(suite), "--run", str(tmp_path), status=2)


def test_an_exported_test_can_fail(exported: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(exported, tmp_path / "tests")
    test = next(t for t in sorted((directory / "aten").glob("test_celu_*")) if _types(t) == {"FLOAT"})
    path = test / "test_data_set_0" / "output_0.pb"
    tensor = onnx.TensorProto.FromString(path.read_bytes())
    wrong = onnx.numpy_helper.to_array(tensor) + 1
    path.write_bytes(onnx.numpy_helper.from_array(wrong, tensor.name).SerializeToString())
    tests = [t for t in load_model_tests(data_dir=str(directory), kind="aten") if t.name == test.name]
    result = unittest.TestResult()
    _Runner(_Ort, tests).test_suite.run(result)
    assert result.failures


@pytest.mark.slow
def test_openvino_runs_the_exported_tests(exported: Path) -> None:
    pytest.importorskip("openvino")
    passed, wrong = 0, []
    # On a processor with AVX2 and no more it dies of one of them, which must not take the other tests along.
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(1, context)
    for test in load_model_tests(data_dir=str(exported), kind="aten"):
        directory = Path(test.model_dir)  # type: ignore[arg-type]
        if {"DOUBLE", "BFLOAT16", "FLOAT16", "INT16", "INT8", "UINT8", "BOOL"} & _types(directory):
            continue
        try:
            problem = pool.submit(_problem_in_openvino, directory, test.rtol, test.atol).result()
        except BrokenProcessPool:
            problem = "crash"
            pool = ProcessPoolExecutor(1, context)
        if problem:
            wrong.append(f"{test.name}: {problem}")
        else:
            passed += 1
    pool.shutdown()
    # It has gaps and defects of its own, which are fewer.
    assert passed >= 3
    assert passed >= 2 * len(wrong), wrong


def _problem_in_openvino(test: Path, rtol: float, atol: float) -> str:
    """Return what is wrong with OpenVINO's answer to a test; "" if nothing is."""
    import openvino

    data = test / "test_data_set_0"
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    try:
        compiled = openvino.Core().compile_model(str(test / "model.onnx"), "CPU", options)
        results = compiled([_load(p) for p in sorted(data.glob("input_*.pb"))])
    except RuntimeError as error:
        # What it does not implement it says in its own words, many of them.
        return str(error).splitlines()[-1]
    answers = [_load(path) for path in sorted(data.glob("output_*.pb"))]
    pairs = zip((results[i] for i in range(len(answers))), answers, strict=True)
    return "" if all(np.allclose(*pair, rtol=rtol, atol=atol, equal_nan=True) for pair in pairs) else "values"


def _load(path: Path) -> Any:
    # OpenVINO takes over memory, and wants to be able to write to it.
    return np.array(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())))


def _types(test: Path) -> set[str]:
    graph = onnx.load(test / "model.onnx").graph
    return {onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in (*graph.input, *graph.output)}
