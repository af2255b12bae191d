"""Groups that are exported together, and fall apart where one has no conversion."""

from __future__ import annotations

import onnx
from harness_runs import unary

from harness.compare.verdict import Outcome
from harness.convert.converter import ExportRequest, UnsupportedOperator
from harness.execute.batch_export import Accepted, BatchExport, NotConverted
from harness.execute.reference import run_reference
from harness.execute.task import Group, Settings


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
        group = Group(index, invocation, ((0, invocation),))
        accepted.append(Accepted.of(group, {0: run_reference(invocation)}))
    found = list(BatchExport(Settings(), TwoMissing()).export(accepted))
    assert all(isinstance(one, NotConverted) for one in found)
    left_out = [(m.group.index, one.failure.outcome) for one in found for m in one.members]  # type: ignore[union-attr]
    assert left_out == [(0, Outcome.UNSUPPORTED), (1, Outcome.UNSUPPORTED)]
