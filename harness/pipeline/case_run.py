"""The result of a case on a route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from harness.compare.diagnosis import Diagnosis
from harness.compare.output_comparison import OutputComparison
from harness.compare.signatures import normalise
from harness.compare.verdict import Outcome, Stage
from harness.core.case_group import MemberKey
from harness.core.dtypes import Array
from harness.core.placement import Placement
from harness.core.text import describe_error
from harness.pipeline.model_task import ModelRun

if TYPE_CHECKING:
    from harness.pipeline.stages import StageFailure
    from harness.run.artefact import AnyModel


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """The result of one case on one route: the worker sends it, the witnesses amend it, and it becomes a `Verdict`.

    Attributes:
        case: Key of the case in its task.
        backend: The name of the backend; "" for a route that ends before one.
        stage: The stage at which the case ended.
        outcome: The outcome; `PASS` also if the run was to end before the comparison.
        message: The failure's message, or the dtypes that the backend narrows; "" for none.
        comparison: The comparison with the oracle's outputs; None if there was none.
        is_of_harness: Whether the harness itself failed, so that no component may be blamed.
        is_forbidden: Whether the process has ended because of a case that the text of its operator forbids.
        blame: The component to blame; "" for a pass.
        diagnosis: The diagnosis of a failure, once witnesses have been asked.
        further: Other problems of a failing case, each as if it were the only failure.
        wrong_outputs: The outputs that a wrong result is about; empty for all.
        casts: Output → the dtype that it must be cast to before its values can be examined.
        transform: The transform that raised; "" for a case that ended at another stage.
        storage: The fault of a weight that the transform stores wrongly, as in `GraphChange`; "" for none.
        rule: The user's conversion functions that took part; "" for none.
        opset: The opset of the artefact; None if it is not an ONNX model.
        onnx_operators: Operators of the case's graph, separated by blanks; "" without an ONNX model.
        exporter_passes: Rewrite rules of the exporter that changed a program's graph, with commas between; "" for none.
        backend_passes: Graph optimisations of the backend that changed it further, with commas between.
        graph_kind: The kind of the graph of a failure from `LOAD` on that is to be examined, which the worker keeps; ""
            if there is no graph.
        raised_by: The part of PyTorch that raised in a failure to convert or to capture, as `raising_part` says; "" for
            the converter.
        placement: The part that ran on the CPU although the backend's device is another; None if nothing did.
        convert_ms: Milliseconds, the case's share.
        load_ms: Milliseconds, the case's share.
        run_ms: Milliseconds, the case's share.
        model_run: Further facts about a run of a model.
        artefact: The artefact that was loaded, or that the last stage took. This and the next two stay in the process
            that ran the case by itself.
        outputs: The backend's outputs; None if it gave none.
        failure: The exception that ended the case before the comparison.
    """

    case: MemberKey = (0, 0)
    backend: str = ""
    stage: Stage
    outcome: Outcome
    message: str = ""
    comparison: OutputComparison | None = None
    is_of_harness: bool = False
    is_forbidden: bool = False
    blame: str = ""
    diagnosis: Diagnosis | None = None
    further: tuple[CaseRun, ...] = ()
    wrong_outputs: tuple[int, ...] = ()
    casts: Mapping[int, np.dtype[Any]] = field(default_factory=dict)
    transform: str = ""
    storage: str = ""
    rule: str = ""
    opset: int | None = None
    onnx_operators: str = ""
    exporter_passes: str = ""
    backend_passes: str = ""
    graph_kind: str = ""
    raised_by: str = ""
    placement: Placement | None = None
    convert_ms: float | None = None
    load_ms: float | None = None
    run_ms: float | None = None
    model_run: ModelRun = field(default_factory=ModelRun)
    artefact: AnyModel | None = field(default=None, compare=False, repr=False)
    outputs: tuple[Array, ...] | None = field(default=None, compare=False, repr=False)
    failure: StageFailure | None = field(default=None, compare=False, repr=False)

    @classmethod
    def ended_by(cls, failure: StageFailure, artefact: AnyModel | None = None) -> Self:
        """Return the result of a case that a failure ends before the comparison."""
        return cls(
            stage=failure.stage,
            outcome=failure.outcome,
            artefact=artefact,
            failure=failure,
            message=describe_error(failure.error),
            transform=failure.transform,
            storage=failure.storage,
        )

    @property
    def signature(self) -> str:
        """A failure's message or problem without details of its case; "" for a pass."""
        traced = self.model_run.traced
        if traced is not None:
            refused = self.stage is Stage.CONVERT
            return f"{traced.what} depends on the data" if refused else f"specialised by tracing: {traced.what}"
        if self.comparison is not None and self.comparison.problem:
            return self.comparison.problem
        return normalise(self.message) if self.outcome is not Outcome.PASS else ""

    @property
    def ending(self) -> tuple[Stage, Outcome, str]:
        """The stage, the outcome and the signature, by which two runs of a case are compared."""
        return self.stage, self.outcome, self.signature

    def outputs_or_raise(self) -> tuple[Array, ...]:
        """Return the outputs; raise the error that ended the case before it had any."""
        if self.failure is not None:
            raise self.failure.error
        if self.outputs is None:
            raise RuntimeError(self.message or f"it ended at {self.stage}")
        return self.outputs

    @property
    def passes(self) -> bool:
        """Whether the outputs are right."""
        return self.stage is Stage.COMPARE and self.outcome is Outcome.PASS
