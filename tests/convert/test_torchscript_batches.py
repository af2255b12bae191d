"""A call ends in a TorchScript export of many calls as it does alone."""

from __future__ import annotations

from harness_runs import unary, vector

from harness.compare.verdict import Outcome, Stage
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings, Task


def test_calls_of_an_unknown_operator_fail_as_each_does_alone() -> None:
    others = (1, 2, True, False, 3)
    calls = [
        Invocation("aten.bitwise_xor.Scalar", (("self", vector([1.0, 2.0], dtype)), ("other", other)))
        for dtype in ("int32", "bool")
        for other in others
    ]
    groups = tuple(CaseGroup.of(call, index=i) for i, call in enumerate(calls))

    def said(batch_size: int) -> dict[int, tuple[Stage, Outcome, str]]:
        with Supervisor() as supervisor:
            settings = Settings(blame=False, batch_size=batch_size)
            ran = supervisor.run(Task(groups, Route(converter="torchscript"), ("ort-cpu",), settings))
            return {r.case[0]: (r.stage, r.outcome, r.message) for results in ran for r in results}

    alone = said(1)
    assert said(len(calls)) == alone
    # What comes before the look-up of an operator asks for the types of its arguments.
    assert {outcome for _, outcome, _ in alone.values()} == {Outcome.UNSUPPORTED, Outcome.ERROR}


def test_a_call_that_kills_the_exporter_costs_no_other_its_verdict() -> None:
    calls = [unary("aten.relu.default", [float(i)]) for i in range(8)]
    calls[5] = Invocation("aten.reshape.default", (("self", vector([])), ("shape", (1, 2, 0))))
    groups = tuple(CaseGroup.of(call, index=i) for i, call in enumerate(calls))
    with Supervisor() as supervisor:
        ran = supervisor.run(Task(groups, Route(converter="torchscript"), ("ort-cpu",), Settings(blame=False)))
        endings = {result.case[0]: (result.stage, result.outcome) for results in ran for result in results}
    assert endings.pop(5) == (Stage.CONVERT, Outcome.CRASH)
    assert set(endings.values()) == {(Stage.COMPARE, Outcome.PASS)}
