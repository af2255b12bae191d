"""Drawn ONNX operators of a run in the layout of ONNX's backend tests, with the outputs that their definitions give.

DIR/onnx/test_<operator>_<version>_<case id>/    as in `harness.gate.golden.backend_tests`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np

from harness.compare.verdict import Outcome
from harness.core.invocation import Invocation
from harness.core.onnx_operators import is_onnx_operator
from harness.gate.golden.backend_tests import (
    TOO_WIDE,
    Exported,
    accepts_zeros,
    find_other_answers,
    single_tolerance,
    write_test,
)
from harness.pipeline.drawn_oracle import build_node, expect_by_definition
from harness.pipeline.start import start_backend
from harness.record import store
from harness.record.layout import ResultsError, reason
from harness.run.backend import REFERENCE

#: The directory name by which ONNX's test loader finds them.
KIND = "onnx"


def export_drawn(directory: Path, run: Path, operators: Collection[str]) -> Exported:
    """Write the drawn nodes of a run that are suitable as tests of a runtime.

    A node is written if some backend of the run is right, if no other answer is, and if one tolerance tells right from
    wrong.

    Args:
        directory: Created if missing; files other than these tests are left alone.
        run: The record of ``pytest harness --onnx``.
        operators: The overloads to write; empty for all.

    Raises:
        ResultsError: The run cannot be read, the directory cannot be written, or the run has no drawn nodes.
    """
    drawn, right = dict[str, str](), set[str]()
    for verdict in store.verdicts(run):
        is_wanted = not operators or verdict.overload in operators
        if is_onnx_operator(verdict.overload) and verdict.shape_mode == "static" and is_wanted:
            drawn[verdict.case_id] = verdict.invocation
            # What is excused is right by more than closeness.
            if verdict.outcome is Outcome.PASS and not verdict.excused:
                right.add(verdict.case_id)
    if not drawn:
        raise ResultsError(f"{run} has no drawn ONNX operators: run pytest harness --onnx")
    tests: list[Path] = []
    left_out: Counter[str] = Counter()
    for case, text in drawn.items():
        if case not in right:
            left_out["no backend of the run comes close to what the definition gives"] += 1
            continue
        found = _write(directory / KIND, Invocation.from_json(text))
        if isinstance(found, Path):
            tests.append(found)
        else:
            left_out[found] += 1
    return Exported(tuple(tests), left_out)


def _write(directory: Path, invocation: Invocation) -> Path | str:
    """Write a node as a test, and return its directory; or why it is none."""
    evaluator = start_backend(REFERENCE)
    drawn = build_node(invocation, evaluator)
    model, oracle = drawn.graph, expect_by_definition(drawn, invocation, evaluator)
    with np.errstate(all="ignore"):
        problem = (oracle.unknown and "the definition is not known") or find_other_answers(oracle)
        if problem:
            return problem
        rtol, atol = single_tolerance(oracle)
        if accepts_zeros(oracle, atol):
            return TOO_WIDE
    name = invocation.overload.removeprefix("ai.onnx.").replace(".", "_")
    test = directory / f"test_{name}_{invocation.case_id}"
    try:
        serialised = model.SerializeToString(deterministic=True)
        write_test(test, model, serialised, oracle.feeds, oracle.expected, (rtol, atol))
    except OSError as error:
        raise ResultsError(f"cannot write {test}: {reason(error)}") from None
    return test
