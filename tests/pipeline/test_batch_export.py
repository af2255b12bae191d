"""Groups that are exported together, and fall apart where one has no conversion or no kernel."""

from __future__ import annotations

import onnx
from harness_runs import unary

from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import ExportRequest, UnsupportedOperator
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.route import Route
from harness.pipeline.batch_export import BatchExport, Member, NotConverted
from harness.pipeline.program import CallStructure
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings, Step, Task
from harness.pipeline.worker import WorkerProcess


class TwoMissing:
    """A converter without conversions of two operators; the second group's outputs need one each."""

    name, version = "two-missing", "1.0"

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.convert.converter.Converter`."""
        needs = {"c0_o0": "prims.a.default", "c1_o0": "prims.a.default", "c1_o1": "prims.b.default"}
        raise UnsupportedOperator("none", {name: needs[name] for name in request.output_names})


def test_a_group_that_lacks_two_conversions_is_left_out_once() -> None:
    accepted = []
    for index, overload in enumerate(("aten.relu.default", "aten.frexp.Tensor")):
        invocation = unary(overload, [1.0, 2.0])
        group = CaseGroup.of(invocation, index=index)
        accepted.append(Member.of(CallStructure.of(group), group))
    found = list(BatchExport(Route(converter="dynamo"), TwoMissing()).export(accepted))
    assert all(isinstance(one, NotConverted) for one in found)
    left_out = [(m.group.index, one.failure.outcome) for one in found for m in one.members]  # type: ignore[union-attr]
    assert left_out == [(0, Outcome.UNSUPPORTED), (1, Outcome.UNSUPPORTED)]


def test_calls_whose_dtype_a_runtime_lacks_are_set_apart_at_once() -> None:
    # ONNX Runtime negates no bfloat16 on the CPU.
    calls = [unary("aten.neg.default", [1.0] * i, dtype) for i in (1, 2, 3) for dtype in ("bfloat16", "float32")]
    groups = tuple(CaseGroup.of(call, index=i) for i, call in enumerate(calls))
    said: list[object] = []
    WorkerProcess(said.append).serve(Task(groups, Route(converter="torchscript"), ("ort-cpu",), Settings(blame=False)))
    endings = {r.case[0]: r.outcome for results in said if isinstance(results, list) for r in results}
    assert endings == {i: (Outcome.UNSUPPORTED, Outcome.PASS)[i % 2] for i in range(len(calls))}
    loads = [step.cases for step in said if isinstance(step, Step) and step.stage is Stage.LOAD]
    assert sum((1, 0) in cases for cases in loads) == 2


def test_what_lacks_a_conversion_says_in_a_batch_what_it_says_alone() -> None:
    # The exporter says whether it is for real or for complex numbers.
    square = [TensorSpec((2, 2), dtype, (2, 1), 0, Literal((1.0, 0.0, 0.0, 1.0))) for dtype in ("float32", "complex64")]
    calls = [Invocation("aten.matrix_exp.default", (("self", spec),)) for spec in square]
    groups = tuple(CaseGroup.of(call, index=i) for i, call in enumerate(calls))

    def said(batch_size: int) -> dict[int, str]:
        settings = Settings(blame=False, batch_size=batch_size)
        with Supervisor() as supervisor:
            ran = supervisor.run(Task(groups, Route(converter="dynamo"), ("ort-cpu",), settings))
            return {r.case[0]: r.signature for results in ran for r in results}

    alone = said(1)
    assert said(64) == alone
    assert alone[0] != alone[1]
