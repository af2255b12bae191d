"""What the specification settles, and what a graph assumes instead."""

from __future__ import annotations

from harness_runs import vector
from trials import trial_of

from harness.blame.examine import examine
from harness.core.invocation import Invocation


def test_an_infinite_bound_asks_what_the_bound_that_is_left_out_is() -> None:
    call = Invocation("aten.clamp_min.default", (("self", vector([1.0, -2.0, 0.5])), ("min", float("inf"))))
    decision = examine(trial_of(call, converter="torchscript"), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "They default to numeric_limits::lowest() and numeric_limits::max()" in decision.evidence
