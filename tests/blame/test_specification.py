"""What the specification settles, and what a graph assumes instead."""

from __future__ import annotations

import pytest
from harness_runs import vector
from trials import trial_of

from harness.blame.examine import examine
from harness.compare.verdict import Outcome
from harness.core.invocation import Invocation, Literal, TensorSpec


def test_an_infinite_bound_asks_what_the_bound_that_is_left_out_is() -> None:
    call = Invocation("aten.clamp_min.default", (("self", vector([1.0, -2.0, 0.5])), ("min", float("inf"))))
    decision = examine(trial_of(call, converter="torchscript"), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "They default to numeric_limits::lowest() and numeric_limits::max()" in decision.evidence


PAIRS = TensorSpec((3, 2), "complex64", (2, 1), 0, Literal((1j, 2.0, 3j, 4.0, 5j, 6.0)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            # The graph is an identity of real numbers.
            Invocation("aten.fft_ifft2.default", (("self", PAIRS), ("s", None), ("dim", ()), ("norm", None))),
            "The graph declares c0_i0 with the shape [3, 2]; it has [3, 2, 2].",
        ),
        (
            Invocation(
                "aten.scatter_add.default",
                (
                    ("self", vector([1.0, 2.0, 3.0])),
                    ("dim", 0),
                    ("index", vector([0], "int64")),
                    ("src", vector([5.0, 7.0])),
                ),
            ),
            "ONNX ScatterElements: “same rank and shape as indices” are the updates",
        ),
    ],
    ids=["the rank of an input", "the shape of updates"],
)
def test_a_model_that_only_the_reference_evaluator_takes_is_not_valid(call: Invocation, words: str) -> None:
    decision = examine(trial_of(call, outcome=Outcome.ERROR), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert words in decision.evidence
