"""A call that fails costs a TorchScript export of many calls nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness_runs import unary, vector

from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import UnsupportedOperator, find_converter, supports_partial
from harness.core.invocation import Invocation
from harness.core.tensors import bind, build_tensors
from harness.execute.program import Exportable, export_request
from harness.execute.supervisor import Death, Supervisor
from harness.execute.task import Group, Settings, Task, WorkerTask


def test_each_failure_is_found_in_the_export_of_all_calls() -> None:
    calls = [
        unary("aten.relu.default", [1.0]),
        unary("aten.deg2rad.default", [1.0]),
        unary("aten.neg.default", [1.0], "uint16"),
        unary("aten.deg2rad.default", [1.0, 2.0]),
        unary("aten.neg.default", [1.0]),
    ]
    members = [Exportable(i, bind(call), build_tensors(call), 1, (frozenset(),)) for i, call in enumerate(calls)]
    converter = supports_partial(find_converter("torchscript").create(False))
    assert converter is not None
    begun: list[tuple[int, ...]] = []
    parts = converter.convert_parts(
        export_request(members, opset=None, dynamic=False), lambda some: begun.append(tuple(some))
    )
    assert parts is not None
    found = {part.calls: part for part in parts}
    assert found.keys() == {(0, 4), (1, 3), (2,)}
    assert isinstance(found[1, 3].failure, UnsupportedOperator)
    assert "UInt16" in str(found[2,].failure)
    model = found[0, 4].model
    assert model is not None
    assert {"c0_o0", "c4_o0"} <= {output.name for output in model.graph.output}
    # What kills the process while a call is converted is known to be this call. The last of two calls of a
    # kind that the exporter does not know is not converted.
    assert set(begun) >= {(0,), (1,), (2,), (4,)}
    assert not any(3 in some for some in begun)


def test_calls_of_an_unknown_operator_fail_as_each_does_alone() -> None:
    others = (1, 2, True, False, 3)
    calls = [
        Invocation("aten.bitwise_xor.Scalar", (("self", vector([1.0, 2.0], dtype)), ("other", other)))
        for dtype in ("int32", "bool")
        for other in others
    ]
    groups = tuple(Group(i, call, ((0, call),)) for i, call in enumerate(calls))

    def said(batch_size: int) -> dict[int, tuple[Stage, Outcome, str]]:
        with Supervisor() as supervisor:
            settings = Settings(blame=False, batch_size=batch_size)
            ran = supervisor.run(Task(groups, "torchscript", ("ort-cpu",), settings))
            return {r.case[0]: (r.stage, r.outcome, r.message) for results in ran for r in results}

    alone = said(1)
    assert said(len(calls)) == alone
    # What comes before the look-up of an operator asks for the types of its arguments.
    assert {outcome for _, outcome, _ in alone.values()} == {Outcome.UNSUPPORTED, Outcome.ERROR}


class Counting(Supervisor):
    """Counts the workers that die."""

    deaths = 0

    def serve(self, task: WorkerTask, *, patience: float = 1.0) -> Iterator[Any]:
        """See `Supervisor.serve`."""
        for message in super().serve(task, patience=patience):
            self.deaths += isinstance(message, Death)
            yield message


def test_a_call_that_kills_the_exporter_kills_it_once() -> None:
    calls = [unary("aten.relu.default", [float(i)]) for i in range(8)]
    calls[5] = Invocation("aten.reshape.default", (("self", vector([])), ("shape", (1, 2, 0))))
    groups = tuple(Group(i, call, ((0, call),)) for i, call in enumerate(calls))
    supervisor = Counting()
    with supervisor:
        ran = supervisor.run(Task(groups, "torchscript", ("ort-cpu",), Settings(blame=False)))
        endings = {result.case[0]: (result.stage, result.outcome) for results in ran for result in results}
    assert endings.pop(5) == (Stage.CONVERT, Outcome.CRASH)
    assert set(endings.values()) == {(Stage.COMPARE, Outcome.PASS)}
    assert supervisor.deaths == 1
