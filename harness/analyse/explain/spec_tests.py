"""Which backends run an ONNX operator: tried with the tests that the ONNX specification itself has for it.

They hold one node each, with inputs and outputs, and are made for the newest opset. A runtime that does not
have that yet is asked in the opset of an earlier version of the operator, too. Each backend is tried in a
process of its own, which may die.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

from harness.analyse.explain import onnx_operator
from harness.core import IsolatedCalls, ProcessDied, plain
from harness.run import BACKENDS

#: As ONNX's own test runner compares.
_RTOL, _ATOL = 1e-3, 1e-7
#: Seconds for all tests of an operator in one backend.
_TIMEOUT = 120.0
#: That every runtime here reads.
_IR_VERSION = 10


@dataclass(frozen=True, kw_only=True)
class SpecResult:
    """How a backend does in the tests of one ONNX operator.

    Attributes:
        tests: How many there are.
        built: How many it could load.
        agreed: How many it ran with the outputs that the specification states.
        opsets: In which opsets it loaded them.
        problem: What it said of the first that did not agree.
    """

    backend: str
    tests: int
    built: int = 0
    agreed: int = 0
    opsets: tuple[int, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class _Test:
    """A test that travels between processes."""

    name: str
    model: bytes
    data_sets: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]


def run_spec_tests(operator: str, names: Sequence[str]) -> list[SpecResult]:
    """Try the specification's tests of `operator` in some backends; none where it has no test."""
    with IsolatedCalls(timeout=_TIMEOUT, fork=True) as process:
        try:
            tests = process.call(_collect, operator)
        except Exception:
            return []
        results = []
        for name in names if tests else ():
            process.stop()
            try:
                results.append(process.call(_run, name, operator, tests))
            except Exception as error:
                # The message about a process that died says all.
                said = str(error) if isinstance(error, ProcessDied) else f"{type(error).__name__}: {error}"
                results.append(SpecResult(backend=name, tests=len(tests), problem=plain(said, 240)))
    return results


def _collect(operator: str) -> list[_Test]:
    found = []
    with warnings.catch_warnings():
        # ONNX computes what it expects with NumPy, which warns of every overflow that is meant.
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node as suite

        def import_those_about(package: ModuleType) -> None:
            for name in _modules_about(operator, package):
                importlib.import_module(name)

        # A module of the suite computes all its tests while it is imported: some seconds for all of them.
        with patch.object(suite, "import_recursive", import_those_about):
            collected = suite.collect_testcases(operator)
    for case in collected:
        if case.model is None or not case.data_sets:
            continue
        if [node.op_type for node in case.model.graph.node] == [operator]:
            sets = tuple((tuple(inputs), tuple(outputs)) for inputs, outputs in case.data_sets)
            found.append(_Test(case.name, case.model.SerializeToString(), sets))
    return found


def _modules_about(operator: str, package: ModuleType) -> list[str]:
    """Names of the package's modules that have the operator's name in them: no other makes a node of it."""
    word = re.compile(rf"\b{re.escape(operator)}\b")
    found = []
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        spec = find_spec(module.name)
        file = spec.origin if spec else None
        if file is not None and word.search(Path(file).read_text(encoding="utf-8")):
            found.append(module.name)
    return found


def _run(name: str, operator: str, tests: Sequence[_Test]) -> SpecResult:
    entry, argument = BACKENDS.find(name)
    backend = entry.create(argument)
    built = agreed = 0
    opsets: set[int] = set()
    problem = ""
    for test in tests:
        session, opset, said = _load(backend, operator, onnx.load_model_from_string(test.model))
        if session is None:
            problem = problem or f"{test.name}: {said}"
            continue
        built += 1
        opsets.add(opset)
        if not session.runnable:
            continue
        said = _disagreement(session, onnx.load_model_from_string(test.model), test)
        agreed += not said
        problem = problem or (f"{test.name}: {said}" if said else "")
    return SpecResult(
        backend=name,
        tests=len(tests),
        built=built,
        agreed=agreed,
        opsets=tuple(sorted(opsets)),
        problem=plain(problem, 240),
    )


def _load(backend: Any, operator: str, model: onnx.ModelProto) -> tuple[Any, int, str]:
    """A session, the opset that it was loaded in, and what was said of the newest opset if not."""
    newest = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    versions = [v.opset for v in onnx_operator.find(operator).versions]
    ends = [version - 1 for version in versions[1:]]
    said = ""
    for opset in sorted({newest, *(v for v in (*versions, *ends) if v <= newest)}, reverse=True):
        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = opset
        model.ir_version = min(model.ir_version, _IR_VERSION)
        try:
            onnx.checker.check_model(model, full_check=True)
        except Exception:
            # An earlier version of the operator has no such type or attribute.
            if opset != newest:
                continue
        try:
            return backend.load(model, None), opset, ""
        except Exception as error:
            said = said or f"{type(error).__name__}: {error}"
    return None, 0, said


def _disagreement(session: Any, model: onnx.ModelProto, test: _Test) -> str:
    for inputs, expected in test.data_sets:
        names = [value.name for value in model.graph.input]
        try:
            outputs = session.run(dict(zip(names, map(np.ascontiguousarray, inputs), strict=False)))
            for output, wanted in zip(outputs, expected, strict=False):
                narrow = 1e-2 if np.asarray(wanted).dtype.itemsize < 4 else 0
                np.testing.assert_allclose(
                    _wide(output), _wide(wanted), rtol=max(_RTOL, narrow), atol=max(_ATOL, narrow)
                )
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _wide(value: Any) -> Any:
    return np.asarray(value, dtype=np.float64) if np.asarray(value).dtype.kind in "fV" else value
