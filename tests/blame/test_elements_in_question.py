"""Witnesses speak of the elements that are wrong, and an answer is another's only where it is the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from failure_contexts import graph_of_nodes, trial_of, words_of
from harness_runs import vector
from onnx import helper

from harness.blame.examine import examine
from harness.blame.failure_context import FailureContext
from harness.blame.witnesses.pytorch import ask_row_major
from harness.compare.diagnosis import Diagnosis
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec


def blamed(context: FailureContext) -> Diagnosis:
    return examine(context, frozenset(), lambda name: None)


def strided(values: tuple[float, ...]) -> Invocation:
    """A call of `neg` whose numbers lie apart in memory."""
    spread = tuple(v for value in values for v in (value, 0.0))
    return Invocation("aten.neg.default", (("self", TensorSpec((len(values),), "float32", (2,), 0, Literal(spread))),))


OVERFLOWS = [helper.make_node("Exp", ["c0_i0"], ["c0_o0"])]
SUBTRACTS = [helper.make_node("Sub", ["zero", "c0_i0"], ["c0_o0"])]


@pytest.mark.parametrize(
    ("values", "nodes", "problem"),
    [((1000.0, 2000.0), OVERFLOWS, "infinities"), ((0.0, 0.0), SUBTRACTS, "sign of zero")],
    ids=["infinity", "zero"],
)
def test_pytorchs_number_is_not_the_backends_infinity_nor_its_other_zero(
    values: tuple[float, ...], nodes: list[onnx.NodeProto], problem: str
) -> None:
    # PyTorch gives for row-major copies what it gives for the inputs as they are.
    call = strided(values)
    context = trial_of(call, model=graph_of_nodes(call, nodes, {"zero": np.zeros((), np.float32)}))
    assert context.comparison is not None
    assert context.comparison.problem == problem
    decision = blamed(context)
    assert decision.blame == "converter"
    assert "row-major" not in words_of(decision)


def test_what_is_excused_has_no_voice() -> None:
    # dynamo gives 1 for the sum of the weights; the mean of the losses is right but for a rounding.
    recipe = Recipe(("any",), "plain", 4058078348)
    losses = TensorSpec((31, 1), "float16", (1, 0), 0, recipe)
    call = Invocation(
        "aten.nll_loss_forward.default",
        (
            ("self", losses),
            ("target", vector([0] * 31, "int64")),
            ("weight", None),
            ("reduction", 1),
            ("ignore_index", -100),
        ),
    )
    context = trial_of(call)
    mean, weights = context.wrong
    assert (bool(mean.any()), bool(weights.all())) == (False, True)
    decision = blamed(context)
    assert decision.blame == "converter"
    assert "onnx-reference gives ort-cpu's result" in words_of(decision)


def test_only_elements_that_show_the_kind_of_failure_count() -> None:
    # A cast to float32 overflows; ONNX Runtime has 0 for exp(x) - 1 in addition, which is not what is reported.
    call = Invocation(
        "aten.celu.default", (("self", vector([-1e-16, 1.7976931348623157e308], "float64")), ("alpha", 0.5))
    )
    context = trial_of(call, converter="torchscript")
    assert context.comparison is not None
    assert context.comparison.problem == "overflow to infinity"
    (wrong,) = context.wrong
    assert wrong.tolist() == [False, True]
    assert blamed(context).blame == "converter"


def test_two_draws_that_are_equal_are_no_evidence() -> None:
    # Of two elements drawn without replacement PyTorch gives one order or the other, each as often.
    weights = TensorSpec((2,), "float32", (0,), 0, Literal((0.5,)))
    call = Invocation("aten.multinomial.default", (("self", weights), ("num_samples", 2)))
    both_zero = [helper.make_node("Identity", ["zeros"], ["c0_o0"])]
    model = graph_of_nodes(call, both_zero, {"zeros": np.zeros(2, np.int64)})
    assert not any(list(ask_row_major.testify(trial_of(call, model=model))) for _ in range(12))
