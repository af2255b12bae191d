"""Goldens in the layout of ONNX's backend tests, which other projects' runners read.

DIR/aten/test_<operator>_<overload>_<case id>/model.onnx
                                              data.json                         rtol, atol
                                              test_data_set_0/input_<J>.pb      in the order of graph.input
                                              test_data_set_0/output_<J>.pb     PyTorch's
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from harness.compare.nearness import allowances, tolerance_of
from harness.core.dtypes import Array, is_float
from harness.gate.golden.store import PASSED, Golden, GoldenKey, Manifest
from harness.pipeline.case import CaseOracle
from harness.pipeline.case_run import CaseRun
from harness.record.layout import ResultsError, reason

#: The directory name by which ONNX's test loader finds them.
KIND = "aten"
#: Why an answer is left out whose error is far larger in one element than in most.
TOO_WIDE = "a single tolerance for all elements would accept almost anything for most of them"


@dataclass(frozen=True)
class Exported:
    """The written tests.

    Attributes:
        tests: Their directories.
        left_out: Reason → number of goldens that are not tests because of it.
    """

    tests: tuple[Path, ...]
    left_out: Mapping[str, int]


def export(
    directory: Path, manifest: Manifest, goldens: Sequence[Golden], endings: Mapping[GoldenKey, CaseRun]
) -> Exported:
    """Write the goldens that are suitable as tests of a runtime.

    Runners of this layout compare by closeness alone and blame the runtime. So a golden is written only if PyTorch's
    answer is the only right one, with a model that some backend was seen to compute correctly: that of the first such
    converter in the manifest's order.

    Args:
        directory: Created if missing; files other than these tests are left alone.
        manifest: The manifest of the set.
        goldens: The goldens.
        endings: Their recorded endings.

    Raises:
        ResultsError: The directory cannot be written.
    """
    tests: list[Path] = []
    left_out: dict[str, int] = {}
    with np.errstate(all="ignore"):
        tolerances = [single_tolerance(golden) for golden in goldens]
    for golden, (rtol, atol) in zip(goldens, tolerances, strict=True):
        problem = find_other_answers(golden)
        converter = next((c for c in manifest.converters if _is_right(golden, c, manifest, endings)), None)
        if not problem and converter is None:
            problem = "no recorded backend gets PyTorch's answer from its model"
        if not problem and accepts_zeros(golden, atol):
            problem = TOO_WIDE
        if problem or converter is None:
            left_out[problem] = left_out.get(problem, 0) + 1
            continue
        name = f"test_{golden.overload.removeprefix('aten.').replace('.', '_')}_{golden.case_id}"
        test = directory / KIND / name
        try:
            model = onnx.load_model_from_string(golden.models[converter])
            feeds = [golden.feeds[int(value.name.removeprefix("input_"))] for value in model.graph.input]
            write_test(test, model, golden.models[converter], feeds, golden.expected, (rtol, atol))
        except OSError as error:
            raise ResultsError(f"cannot write {test}: {reason(error)}") from None
        tests.append(test)
    return Exported(tuple(tests), left_out)


def find_other_answers(case: CaseOracle) -> str:
    """Return why other answers than the expected one are right, too; "" if none are."""
    judge = case.judge
    if judge.rules:
        return "several answers are right"
    if judge.unused_outputs and judge.unused_outputs(case.arguments):
        return "an output was not asked for"
    marks = judge.undefined(case.arguments, case.expected) if judge.undefined else ()
    if any(mark is not None and mark.any() for mark in marks):
        return "PyTorch leaves an element undefined"
    return ""


def _is_right(golden: Golden, converter: str, manifest: Manifest, endings: Mapping[GoldenKey, CaseRun]) -> bool:
    if converter not in golden.models:
        return False
    ends = (endings.get((golden.case_id, converter, backend), PASSED) for backend in manifest.backends)
    return any(ending.ending == PASSED.ending for ending in ends)


def write_test(
    test: Path,
    model: onnx.ModelProto,
    serialised: bytes,
    feeds: Sequence[Array],
    expected: Sequence[Array],
    tolerance: tuple[float, float],
) -> None:
    """Write one test.

    Args:
        test: Its directory.
        model: The model.
        serialised: The same as it is written.
        feeds: Inputs in the order of the graph's.
        expected: Outputs in the order of the graph's.
        tolerance: rtol and atol of all outputs.

    Raises:
        OSError: the directory cannot be written.
    """
    data = test / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    (test / "model.onnx").write_bytes(serialised)
    (test / "data.json").write_text(
        json.dumps(dict(zip(("rtol", "atol"), tolerance, strict=True))) + "\n", encoding="utf-8"
    )
    for kind, values, arrays in (("input", model.graph.input, feeds), ("output", model.graph.output, expected)):
        for place, (value, array) in enumerate(zip(values, arrays, strict=True)):
            _write_tensor(data / f"{kind}_{place}.pb", array, value.name)


def _write_tensor(path: Path, array: Array, name: str) -> None:
    path.write_bytes(numpy_helper.from_array(array, name).SerializeToString(deterministic=True))


def single_tolerance(case: CaseOracle) -> tuple[float, float]:
    """Return one (rtol, atol) for all outputs that accepts whatever `harness.compare.nearness` accepts."""
    rtol = atol = 0.0
    judged = []
    for i, expected in enumerate(case.expected):
        dtype = str(expected.dtype)
        own = case.judge.tolerances.get(dtype)
        if own is None and (case.judge.exact or not is_float(dtype)):
            continue
        tolerance = own or tolerance_of(case.judge, dtype)
        rtol, atol = max(rtol, tolerance.rtol), max(atol, tolerance.atol)
        if own is None:
            judged.append(i)
    for i in judged:
        relative = rtol * np.abs(case.expected[i].astype(np.float64))
        for allowed in allowances(case.judge, case, i):
            beyond = allowed - relative
            atol = max(atol, float(beyond[np.isfinite(beyond)].max(initial=0.0)))
    return rtol, atol


def accepts_zeros(case: CaseOracle, atol: float) -> bool:
    """Whether zero would pass for most numbers, since the element with the largest error determines `atol`."""
    numbers = [np.abs(a.astype(np.float64)).ravel() for a in case.expected if is_float(str(a.dtype))]
    held = np.concatenate(numbers) if numbers else np.zeros(0)
    held = held[np.isfinite(held) & (held > 0)]
    return bool(held.size) and float(np.median(held)) <= atol
