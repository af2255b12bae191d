"""Goldens in the layout of ONNX's backend tests, which other projects' runners read.

DIR/aten/test_<operator>_<overload>_<case id>/model.onnx
                                              data.json                         rtol, atol
                                              test_data_set_0/input_<J>.pb      in the order of graph.input
                                              test_data_set_0/output_<J>.pb     PyTorch's
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from harness.dtypes import PRECISION, is_float
from harness.golden.ending import PASSED, Ending, Key
from harness.golden.golden import Golden
from harness.golden.manifest import Manifest
from harness.record.errors import ResultsError, reason
from harness.verdict.judge import Array
from harness.verdict.nearness import tolerance_of
from harness.verdict.tolerances import ROUNDINGS

#: The directory that ONNX's loader is asked for by name.
KIND = "aten"


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        tests: Their directories.
        left_out: Why → how many goldens are no tests therefore.
    """

    tests: tuple[Path, ...]
    left_out: Mapping[str, int]


def export(
    directory: Path, manifest: Manifest, goldens: Iterable[Golden], endings: Mapping[Key, Ending]
) -> Exported:
    """Write the goldens that are tests of a runtime.

    A runner of that layout compares by closeness alone and blames the runtime. So a golden is written where
    PyTorch's answer is the only right one, with a model that at least one backend has been seen to compute
    it with: the first such converter's, by the manifest's order.

    Args:
        directory: Made if need be; what is in it and not a test of these goldens is left alone.
        manifest: Of the set.
        goldens: Which.
        endings: As they were recorded.

    Raises:
        ResultsError: the directory cannot be written.
    """
    tests: list[Path] = []
    left_out: dict[str, int] = {}
    for golden in goldens:
        problem = _several_answers(golden)
        converter = next((c for c in manifest.converters if _is_right(golden, c, manifest, endings)), None)
        if problem or converter is None:
            words = problem or "no recorded backend gets PyTorch's answer from a model of it"
            left_out[words] = left_out.get(words, 0) + 1
            continue
        name = f"test_{golden.overload.removeprefix('aten.').replace('.', '_')}_{golden.case_id}"
        test = directory / KIND / name
        try:
            _write(test, golden, golden.models[converter])
        except OSError as error:
            raise ResultsError(f"cannot write {test}: {reason(error)}") from None
        tests.append(test)
    return Exported(tuple(tests), left_out)


def _several_answers(golden: Golden) -> str:
    judge = golden.judge
    if judge.rules:
        return "several answers are right"
    if judge.unasked and judge.unasked(golden.arguments):
        return "an output was not asked for"
    marks = judge.undefined(golden.arguments, golden.expected) if judge.undefined else ()
    if any(mark is not None and mark.any() for mark in marks):
        return "PyTorch leaves an element undefined"
    return ""


def _is_right(golden: Golden, converter: str, manifest: Manifest, endings: Mapping[Key, Ending]) -> bool:
    if converter not in golden.models:
        return False
    ends = (endings.get((golden.case_id, converter, backend), PASSED) for backend in manifest.backends)
    return any(ending.words == PASSED.words for ending in ends)


def _write(test: Path, golden: Golden, serialised: bytes) -> None:
    data = test / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    (test / "model.onnx").write_bytes(serialised)
    rtol, atol = _tolerance(golden)
    (test / "data.json").write_text(json.dumps({"rtol": rtol, "atol": atol}) + "\n", encoding="utf-8")
    model = onnx.load_model_from_string(serialised)
    for place, value in enumerate(model.graph.input):
        array = golden.inputs[int(value.name.removeprefix("input_"))]
        _write_tensor(data / f"input_{place}.pb", array, value.name)
    for place, value in enumerate(model.graph.output):
        _write_tensor(data / f"output_{place}.pb", golden.expected[place], value.name)


def _write_tensor(path: Path, array: Array, name: str) -> None:
    path.write_bytes(numpy_helper.from_array(array, name).SerializeToString(deterministic=True))


def _tolerance(golden: Golden) -> tuple[float, float]:
    """One (rtol, atol) for all outputs, so that what `harness.verdict.nearness` takes for right passes.

    A runner has one number for all elements: what the rules allow the element that they allow most is
    allowed to all.
    """
    rtol = atol = 0.0
    for i, expected in enumerate(golden.expected):
        dtype = str(expected.dtype)
        own = golden.judge.tolerances.get(dtype)
        if own is None and (golden.judge.exact or not is_float(dtype)):
            continue
        tolerance = own or tolerance_of(golden.judge, dtype)
        rtol, atol = max(rtol, tolerance.rtol), max(atol, tolerance.atol)
        if own is None:
            allowed = [float(a[np.isfinite(a)].max(initial=0.0)) for a in _allowances(golden, i)]
            atol = max(atol, *allowed, 0.0)
    return rtol, atol


def _allowances(golden: Golden, output: int) -> Iterator[Array]:
    """What rules 3, 4 and 6 allow each element, where they apply."""
    expected = golden.expected[output]
    dtype = str(expected.dtype)
    truth = golden.truth[output] if golden.truth else None
    if truth is None or truth.shape != expected.shape:
        return
    with np.errstate(all="ignore"):
        yield np.abs(expected.astype(np.float64) - truth)
        unit = 2.0 ** -PRECISION[dtype]
        count = max((a.size for a in golden.inputs), default=1)
        for answers, terms in (
            (golden.own_error, None),
            (golden.condition, count / max(truth.size, 1)),
            (golden.magnitude, count),
        ):
            answer = answers[output] if answers else None
            if answer is None or answer.shape != expected.shape:
                continue
            if terms is None:
                yield 2.0 * answer
                continue
            roundings = max(ROUNDINGS[dtype], 2.0 * math.sqrt(terms))
            yield roundings * np.abs(answer) * (unit if answers is golden.magnitude else 1.0)
