"""The lines of a converter that emit nodes, and those that cause a failure, are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import answered, typed
from harness_runs import record_of, unary
from located_mutants import drawn_calls, locate_mutation, place_of, runner
from mutants.mutation import Mutation, mutations

from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides
from harness.locate.locate import locate
from harness.locate.source_code import SourceCode
from harness.locate.suspect import Suspect
from harness.pipeline.intermediate_values import to_torch
from harness.reproduce.failure import find_failure
from harness.reproduce.issue import CallReport, write_issue

IMAGE = TensorSpec((1, 1, 2, 2), "float32", contiguous_strides((1, 1, 2, 2)), 0, Literal((1.0, 2.0, 3.0, 6.0)))
POOL = (("self", IMAGE), ("kernel_size", (2, 2)), ("stride", (2, 2)), ("padding", (0, 0)))
NO_DIVISOR = Invocation("aten.avg_pool2d.default", POOL)
DIVISOR = Invocation(
    "aten.avg_pool2d.default",
    (*POOL, ("ceil_mode", False), ("count_include_pad", True), ("divisor_override", 3)),
)
WRONG = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH, "blame": "converter", "signature": "values"}
OR = "op.BitwiseOr(self, other)"


def emitting(call: Invocation, converter: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """ONNX operator → functions and files that emitted it, the innermost first."""
    graph = runner(converter).observe(call).graph
    assert graph is not None
    return [
        (node.op_type, [(line.function, Path(line.file).name) for line in lines])
        for node, lines in zip(graph.model.graph.node, graph.lines, strict=True)
    ]


def test_a_node_has_the_conversion_function_that_emitted_it() -> None:
    celu = unary("aten.celu.default", [1.0, -1.0])
    assert emitting(celu, "dynamo") == [("Celu", [("aten_celu", "nn.py")])]
    assert emitting(celu, "torchscript") == [("Celu", [("celu", "symbolic_opset12.py")])]


def test_a_node_of_a_function_that_is_built_beforehand_has_it_too() -> None:
    assert emitting(unary("aten.hardswish.default", [1.0]), "dynamo") == [("HardSwish", [("aten_hardswish", "nn.py")])]


def test_a_node_has_the_decomposition_that_it_comes_of() -> None:
    call = Invocation("aten.smooth_l1_loss.default", (("self", IMAGE), ("target", IMAGE)))
    lines = dict(emitting(call, "dynamo"))["Sub"]
    assert lines[0] == ("aten_sub", "core.py")
    assert ("smooth_l1_loss", "decompositions.py") in lines


def test_an_argument_that_no_line_reads_is_named() -> None:
    for converter, function in (("dynamo", "aten_avg_pool2d"), ("torchscript", "_avg_pool")):
        found = locate(runner(converter), [DIVISOR], [NO_DIVISOR], SourceCode())[:3]
        (suspect,) = [s for _, s in found if "reads the argument divisor_override" in s.reason]
        assert suspect.function == function


def test_a_number_without_dimensions_stays_one_on_the_way_to_pytorch() -> None:
    # What is compared node by node must have the rank that PyTorch gives it.
    assert to_torch(np.array(1.5), ()).shape == ()


def mutation(converter: str, text: str) -> Mutation:
    return next(m for m in mutations(converter) if f"{m.function}: {m.was} → {m.becomes}" == text)


@pytest.mark.parametrize(
    ("converter", "operator", "text"),
    [
        ("dynamo", "aten.__or__.Scalar", f"aten_bitwise_or: {OR} → {OR.replace('Or', 'And')}"),
        ("dynamo", "aten.permute.default", "aten_permute: axis < 0 → axis <= 0"),
        ("torchscript", "aten.one_hot.default", "one_hot: 1 → 2"),
    ],
)
def test_a_mutated_line_is_found(converter: str, operator: str, text: str) -> None:
    wrong = mutation(converter, text)
    found = locate_mutation(wrong, drawn_calls(operator, converter, seed=0))
    assert found is not None
    place, is_first = place_of(wrong, *found)
    assert is_first
    assert place <= 3


def test_a_function_that_emits_nothing_wrong_itself_is_found() -> None:
    # It returns the numbers with which another function emits Pad.
    wrong = mutation("dynamo", "_process_padding: 1 → 2")
    found = locate_mutation(wrong, drawn_calls("aten.pad.default", "dynamo", seed=2))
    assert found is not None
    place, is_first = place_of(wrong, *found)
    assert is_first
    assert place <= 3
    assert "in 2 of 2 failing cases of other operators" in found[0][0][1].reason


def test_decompositions_that_only_gave_shapes_are_not_suspected() -> None:
    wrong = mutation("dynamo", "aten_neg: op.Neg(self) → self")
    found = locate_mutation(wrong, drawn_calls("aten.neg.default", "dynamo", seed=0))
    assert found is not None
    assert place_of(wrong, *found) == (1, True)


def test_lines_are_shown_and_reported(tmp_path: Path) -> None:
    run = record_of(tmp_path, [DIVISOR], **WRONG)
    words = ("show", DIVISOR.case_id, "--run", run)
    bare = answered(*words, status=1)
    assert "lines" not in bare["verdicts"][0]
    shown = answered(*words, "--lines", status=1)
    lines = [Suspect(**line) for line in shown["verdicts"][0]["lines"]]
    (line,) = [line for line in lines if "divisor_override" in line.reason]
    assert line.function == "aten_avg_pool2d"
    assert line.file == "onnxscript/function_libs/torch_lib/ops/nn.py"
    assert line.text.startswith("return _aten_avg_pool_onnx(")
    report = write_issue(CallReport(find_failure(run, DIVISOR.case_id), "print()", None, "", tuple(lines)))
    assert f"in `aten_avg_pool2d`, {line.file}:{line.line}. {line.reason}" in report


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"blame": "backend"}, "not-converter"),
        ({"rule": "my_rules.py:avg_pool2d"}, "rule"),
        ({"shape_mode": "dynamic"}, "dynamic"),
    ],
)
def test_a_failure_without_lines_has_a_reason(changes: dict[str, str], why: str, tmp_path: Path) -> None:
    run = record_of(tmp_path, [DIVISOR], **{**WRONG, **changes})
    words = ("show", DIVISOR.case_id, "--run", run, "--lines")
    (verdict,) = answered(*words, status=1)["verdicts"]
    assert (verdict["lines"], verdict["no_lines_because"]) == ([], why)
    assert "no lines of the converter: " in typed(*words, status=1).output
