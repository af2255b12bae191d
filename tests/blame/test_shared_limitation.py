"""Two runtimes that refuse a model may share a limitation: the specification says whether it is valid."""

from __future__ import annotations

import pytest
from failure_contexts import trial_of, words_of

from harness.blame.examine import examine
from harness.compare.verdict import Outcome
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides


@pytest.mark.parametrize("converter", ["dynamo", "torchscript"])
def test_padding_of_an_output_below_the_dilation_is_the_backends_to_take(converter: str) -> None:
    data, weight = (
        TensorSpec((1, 1, size), "float32", contiguous_strides((1, 1, size)), 0, Literal(tuple(range(size))))
        for size in (4, 2)
    )
    call = Invocation(
        "aten.conv_transpose1d.default",
        (("input", data), ("weight", weight), ("bias", None), ("output_padding", (1,)), ("dilation", (3,))),
    )
    context = trial_of(call, converter=converter, outcome=Outcome.ERROR)
    decision = examine(context, frozenset(), lambda name: None)
    assert decision.blame == "backend"
    assert "ConvTranspose" in words_of(decision)
    assert "onnx-reference also fails on the same model" in words_of(decision)
