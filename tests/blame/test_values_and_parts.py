"""Blame knows an operator's text on values, and the part of PyTorch that fails in an export."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from failure_contexts import graph_of_nodes, trial_of, words_of
from harness_runs import vector
from onnx import helper

from harness.blame.decide import decide
from harness.blame.examine import examine
from harness.blame.request import request_blame
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome, Stage
from harness.core.case_group import CaseGroup
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.route import Route
from harness.pipeline.definition import raising_part
from harness.pipeline.nodes.preconditions import VALUE_LIMITS, operator_text
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Task


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("operator", VALUE_LIMITS)
def test_a_limit_is_in_the_text_of_its_operator(operator: str, opset: int) -> None:
    schema = onnx.defs.get_schema(operator, opset)
    assert VALUE_LIMITS[operator].quote in operator_text(schema)
    assert VALUE_LIMITS[operator].place < len(schema.inputs)


def test_a_node_whose_values_its_text_does_not_allow_is_not_valid() -> None:
    call = Invocation("aten.dropout.default", (("input", vector([1.0, 2.0, 3.0])), ("p", 1.0), ("train", True)))
    decision = examine(trial_of(call, outcome=Outcome.ERROR), frozenset(), lambda name: None)
    assert (decision.blame, decision.rule) == ("converter", "invalid-node")
    assert "ratio has the values 1.0" in words_of(decision)
    assert "with value in [0, 1)" in words_of(decision)


@pytest.mark.parametrize(
    ("indices", "invalid"),
    [([0, 2, 1], False), ([-3, -1, 0], False), ([0, 3, 1], True), ([-4, 0, 1], True)],
)
def test_indices_are_looked_at(indices: list[int], invalid: bool) -> None:
    call = Invocation("aten.relu.default", (("self", vector([1.0, 2.0, 3.0])),))
    numbers: dict[str, Array] = {"indices": np.array(indices, np.int64)}
    model = graph_of_nodes(call, [helper.make_node("Gather", ["c0_i0", "indices"], ["c0_o0"])], numbers)
    context = trial_of(call, model=model, outcome=Outcome.ERROR)
    decision = examine(context, frozenset(), lambda name: None)
    # Shape inference finds what is a constant, too.
    assert (decision.rule in ("invalid-node", "invalid-model")) is invalid


def test_a_wrong_result_of_an_invalid_node_is_the_converters() -> None:
    said = [Testimony(Role.NODES, Finding.INVALID, "invalid-node"), Testimony(Role.RUNTIME, Finding.RIGHT, "model")]
    assert decide(Outcome.MISMATCH, said).rule == "invalid-node"


WIDE = TensorSpec((3,), "float64", (1,), 0, Literal((2.0, -1.0, 0.5)))
LARGE = TensorSpec((2,), "complex64", (1,), 0, Literal((3.4e38 + 3.4e38j, 3.4e38 + 3.4e38j)))


def reduced(axis: int) -> Invocation:
    """A call whose meta kernel does not normalise a negative axis."""
    data = TensorSpec((5, 1, 2), "float32", (2, 2, 1), 0, Literal(tuple(map(float, range(10)))))
    offsets = TensorSpec((4,), "int64", (1,), 0, Literal((0, 2, 3, 5)))
    return Invocation(
        "aten.segment_reduce.default", (("data", data), ("reduce", "sum"), ("offsets", offsets), ("axis", axis))
    )


def test_the_part_of_pytorch_that_raises_is_found() -> None:
    raised = IndexError("tuple index out of range")
    wrapped = RuntimeError("torch.export fails")
    wrapped.__cause__ = raised
    assert raising_part(reduced(-3), wrapped) == "meta kernel"
    # Another error is not its.
    assert raising_part(reduced(-3), RuntimeError("no conversion")) == ""
    assert raising_part(reduced(0), raised) == ""


@pytest.mark.parametrize(
    ("converter", "backend", "stage"),
    [("dynamo", "ort-cpu", Stage.CONVERT), ("torch-compile", "aot-eager", Stage.LOAD)],
)
def test_a_meta_kernel_that_raises_is_pytorchs(converter: str, backend: str, stage: Stage) -> None:
    task = Task((CaseGroup.of(reduced(-3)),), Route(converter=converter), (backend,))
    with Supervisor() as supervisor:
        results = [result for part in supervisor.run(task) for result in part]
        (blamed,) = request_blame(results, task, supervisor)
    assert (blamed.stage, blamed.outcome, blamed.blame) == (stage, Outcome.ERROR, "pytorch")
    assert blamed.diagnosis is not None
    assert blamed.diagnosis.rule == "raises-without-values"
    assert (blamed.diagnosis.component, blamed.diagnosis.place) == ("PyTorch", "meta kernel of aten.segment_reduce")


def test_pytorch_is_asked_with_the_number_as_a_tensor() -> None:
    # -inf to the power of a half is NaN with a number, and inf with a tensor.
    call = Invocation("aten.pow.Tensor_Scalar", (("self", vector([float("-inf"), 4.0])), ("exponent", 0.5)))
    decision = examine(trial_of(call), frozenset(), lambda name: None)
    assert (decision.blame, decision.rule) == ("pytorch", "pytorch-contradicts-itself")
    assert "With the number given as a tensor (aten.pow.Tensor_Tensor), PyTorch itself gives" in words_of(decision)


def test_a_number_that_a_tensor_would_round_is_not_given_as_one() -> None:
    # 0.001 as a float32 is another number: what dynamo made of it is not what PyTorch was asked.
    condition = TensorSpec((3,), "bool", (1,), 0, Literal((True, False, False)))
    call = Invocation("aten.where.ScalarOther", (("condition", condition), ("self", WIDE), ("other", 0.001)))
    decision = examine(trial_of(call), frozenset(), lambda name: None)
    assert (decision.blame, decision.rule) == ("converter", "fewer-bits")


def test_pytorch_leaves_the_range_only_where_the_backend_has_the_truth() -> None:
    # PyTorch's real part leaves the range; dynamo multiplies it by the real part of the factor alone.
    call = Invocation("aten.rsub.Tensor", (("self", LARGE), ("other", LARGE), ("alpha", 0.1 + 2049j)))
    context = trial_of(call)
    assert np.isinf(context.reference.expected[0]).all()
    decision = examine(context, frozenset(), lambda name: None)
    assert (decision.blame, decision.rule) == ("converter", "graph-asks-otherwise")


def test_two_independent_agreements_outvote_a_definition() -> None:
    wrong = Testimony(Role.NODES, Finding.WRONG, "wrong-node")
    same = Testimony(Role.RUNTIME, Finding.SAME, "other-backend", independent=True)
    defined = Testimony(Role.DECOMPOSITION, Finding.CONTRADICTS, "decomposition")
    assert (
        decide(Outcome.MISMATCH, [wrong, same]).blame == decide(Outcome.MISMATCH, [wrong, defined]).blame == "backend"
    )
    assert decide(Outcome.MISMATCH, [wrong, same, defined]).blame == "pytorch"
