"""Operators that take functions: they reach ONNX's own, and a call is what its source says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness_runs import literal_unit, vector
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from harness.compare.verdict import Outcome
from harness.core.control_flow import BRANCHES, FLOW_OPERATORS, ROUNDS, STEPS
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.tensors import bind, build_tensors, output_tensors
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import run_unit
from harness.reproduce.call_source import CallSource

X, Y = vector([1.0, -2.0, 4.0]), vector([3.0, 0.5, -1.0])
ROWS = TensorSpec((2, 3), "float32", (3, 1), 0, Literal((1.0, 2.0, 3.0, 4.0, 5.0, 6.0)))


def cond(then: str, otherwise: str, *, pred: bool) -> Invocation:
    functions = ("then", then), ("otherwise", otherwise)
    return Invocation("control_flow.cond.default", (("pred", vector([pred], "bool")), ("x", X), ("y", Y), *functions))


def repeat(body: str) -> Invocation:
    return Invocation("control_flow.while_loop.default", (("x", X), ("steps", 3), ("body", body)))


def repeat_while(body: str) -> Invocation:
    limits = ("limit", 1.5), ("most", 5)
    return Invocation("control_flow.while_loop.values", (("x", X), *limits, ("body", body)))


def scanned(carry: str, result: str, **given: Any) -> Invocation:
    functions = ("carry", carry), ("result", result)
    return Invocation("control_flow.scan.default", (("init", X), ("xs", ROWS), *functions, *given.items()))


CALLS = [
    *(cond(then, "x * y", pred=True) for then in BRANCHES),
    cond("x + y", "y - x", pred=False),
    *(make(body) for make in (repeat, repeat_while) for body in ROUNDS),
    *(scanned(carry, "x - c") for carry in STEPS if not carry.startswith("x")),
    scanned("c + x", "x * 2", dim=0, reverse=True),
]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_call_is_what_its_source_says(call: Invocation) -> None:
    source = CallSource(call)
    given = dict(zip(source.names, build_tensors(call), strict=True))
    written = eval(source.call(), {"torch": torch, "while_loop": while_loop, "scan": scan, **given})
    found = output_tensors(bind(call)(build_tensors(call)))
    torch.testing.assert_close(found, output_tensors(written), rtol=0, atol=0)


def test_functions_become_graphs_of_onnx() -> None:
    calls = [cond("x + y", "y - x", pred=False), repeat("x * 0.5"), repeat_while("x * 0.5"), scanned("c + x", "x - c")]
    assert {call.overload for call in calls} == set(FLOW_OPERATORS)
    reached = {}
    with Supervisor() as supervisor:
        for call in calls:
            (verdict,) = (v for vs in run_unit(literal_unit([call], backends=["ort-cpu"]), supervisor) for v in vs)
            assert verdict.outcome is Outcome.PASS
            reached[call.overload] = verdict.onnx_operators.split()
    operators = {
        "cond.default": "If",
        "while_loop.default": "Loop",
        "while_loop.values": "Loop",
        "scan.default": "Scan",
    }
    for name, operator in operators.items():
        assert operator in reached[f"control_flow.{name}"]
