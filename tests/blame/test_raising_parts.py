"""A part of PyTorch that raises in an export, and not in a call, is to blame for the failure."""

from __future__ import annotations

import pytest
from recorded_rows import call, tensor

from harness.blame.request import request_blame
from harness.compare.verdict import Outcome, Stage
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.pipeline.definition import raising_part
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Task


def reduced(axis: int) -> Invocation:
    """A call whose meta kernel does not normalise a negative axis."""
    data = tensor([float(i) for i in range(10)], shape=(5, 1, 2))
    return call("aten.segment_reduce.default", data=data, reduce="sum", offsets=[0, 2, 3, 5], axis=axis)


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
