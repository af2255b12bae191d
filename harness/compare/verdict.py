"""The end of a case on one route: the columns of the record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

#: Identifies a row of a run: case id, exported invocation, converter, backend.
CaseKey: TypeAlias = tuple[str, str, str, str]


class Stage(StrEnum):
    """The stage at which a case ended."""

    REFERENCE = "reference"
    CONVERT = "convert"
    TRANSFORM = "transform"
    CHECK = "check"
    LOAD = "load"
    RUN = "run"
    COMPARE = "compare"


class Outcome(StrEnum):
    """The way in which a case ended.

    `BUILT`: an engine was built but cannot run on this machine. `NARROWED`: the backend would silently compute in a
    narrower dtype than the model's, so its numbers would answer another question. `INACCURATE`: the result is less
    exact than PyTorch's, but as exact as ONNX's formula for the operator with each step rounded once; or the call is
    ordinary, and its errors are within the tolerance of the largest element of their output. `SKIP`: PyTorch itself
    rejects the invocation, so there is nothing to conform to.
    """

    PASS = "pass"
    MISMATCH = "mismatch"
    UNSUPPORTED = "unsupported"
    ERROR = "error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    BUILT = "built"
    NARROWED = "narrowed"
    INACCURATE = "inaccurate"
    SKIP = "skip"

    @property
    def is_failure(self) -> bool:
        """Whether a test of the operator fails because of it."""
        return self in FAILURES

    @property
    def severity(self) -> int:
        """The rank of the failure, 0 being the worst; the largest number if it is not a failure."""
        return FAILURES.index(self) if self.is_failure else len(FAILURES)


CONVERTER, TRANSFORM, BACKEND = "converter", "transform", "backend"
PYTORCH, SPEC, UNKNOWN = "pytorch", "spec", "unknown"

#: Stage → the component that runs there and is blamed for a crash. Comparison runs PyTorch and the harness itself.
RUNS_AT = {
    Stage.REFERENCE: PYTORCH,
    Stage.CONVERT: CONVERTER,
    Stage.TRANSFORM: TRANSFORM,
    Stage.CHECK: CONVERTER,
    Stage.LOAD: BACKEND,
    Stage.RUN: BACKEND,
    Stage.COMPARE: UNKNOWN,
}

#: Stages before the backend is involved.
BEFORE_BACKEND = frozenset({Stage.REFERENCE, Stage.CONVERT, Stage.TRANSFORM, Stage.CHECK})

#: Worst first: wrong numbers go unnoticed; a crash or hang takes the program down but is noticed; an error is noticed
#: and explained; a declared gap comes last.
FAILURES = (Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR, Outcome.UNSUPPORTED)


def split_passes(text: str) -> list[str]:
    """Return the names in a column of passes (`Verdict.exporter_passes`, `Verdict.backend_passes`)."""
    return text.split(", ") if text else []


def is_judged(outcome: Outcome, blame: str) -> bool:
    """Whether shares count a case: it passes, or it fails and the specification does not allow that."""
    return outcome is Outcome.PASS or (outcome.is_failure and blame != SPEC)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A row of the record: the fields are the record's columns after ``run_id``, in this order.

    The annotations are stored as the columns' descriptions. Text is "" and a number is None if there is nothing to say.
    """

    case_id: Annotated[str, "content hash of the invocation"]
    overload: Annotated[str, "dotted name, such as aten.celu.default; model.NAME for a whole model"]
    dtype: Annotated[str, "the invocation's main dtype"]
    shape_mode: Annotated[str, "static or dynamic"]
    source: Annotated[
        str, "where the invocation comes from: generated, redrawn, programs, opinfo, use, corpus, replay or model"
    ]
    converter: Annotated[str, "name of the converter"]
    converter_version: Annotated[str, "its version"]
    opset: Annotated[int | None, "opset of the model; null where there was none before it was checked"]
    backend: Annotated[str, "name of the backend"]
    backend_version: Annotated[str, "its version"]
    device: Annotated[str, "where the backend ran: cpu or cuda"]
    stage: Annotated[Stage, "where the case ended"]
    outcome: Annotated[Outcome, "how it ended"]
    blame: Annotated[str, "whose defect it is: converter, backend, pytorch, spec, unknown"] = ""
    signature: Annotated[str, "the failure's message without shapes, values, names and addresses"] = ""
    max_abs_error: Annotated[float | None, "over all outputs, in the values' unit"] = None
    max_rel_error: Annotated[float | None, "over all outputs, as a ratio"] = None
    max_ulp_error: Annotated[float | None, "in units in the last place of the expected value"] = None
    mismatched_elements: Annotated[int, "how many elements are wrong"] = 0
    total_elements: Annotated[int, "how many elements were compared"] = 0
    convert_ms: Annotated[float | None, "wall time of the export; the case's share of its batch's"] = None
    load_ms: Annotated[float | None, "wall time of loading; the case's share of its batch's"] = None
    run_ms: Annotated[float | None, "wall time of running; the case's share of its batch's"] = None
    invocation: Annotated[str, "the call with its arguments, JSON"] = ""
    family: Annotated[str, "the operator case's family"]
    message: Annotated[str, "the failure's own words, cut to a few lines"] = ""
    structure_id: Annotated[str, "shared by the cases that share an export"] = ""
    rule: Annotated[str, "the user's conversion functions that took part, such as my_rules.py:celu"] = ""
    evidence: Annotated[str, "what the blame rests on, a sentence per witness"] = ""
    exported_invocation: Annotated[str, "JSON of the exported invocation, if it had other sizes"] = ""
    needed_rtol: Annotated[float | None, "rtol of the smallest pair that accepts all elements"] = None
    needed_atol: Annotated[float | None, "atol of that pair, in the values' unit"] = None
    exported_id: Annotated[str, "case id of the exported invocation"] = ""
    reused_from: Annotated[str, "run id that older versions took this from; empty otherwise"] = ""
    placement: Annotated[
        str, "what ran on the CPU although the backend's device is another: how much, and the ONNX operators"
    ] = ""
    excused: Annotated[str, "elements that only a rule accepts or leaves out, as in '3: why; 1: why'"] = ""
    problems: Annotated[str, "all that is wrong, JSON; empty for no more than the outcome"] = ""
    blame_rule: Annotated[str, "the row of the decision table that decided the blame"] = ""
    component: Annotated[str, "whose code is wrong: torchlib, TorchScript, dynamo, ort-cpu, PyTorch, ONNX"] = ""
    place: Annotated[str, "what of theirs: a function, a kernel, a pass, an operator"] = ""
    fault: Annotated[str, "what is wrong there, one of a closed set"] = ""
    detail: Annotated[str, "what else tells the root cause, JSON"] = ""
    diagnosis: Annotated[str, "what the witnesses found, JSON"] = ""
    ordinary: Annotated[bool | None, "whether a model could well make the call; null in older records"] = None
    ordinary_by: Annotated[str, "the reason: the rule, the recorded use of models, or both"] = ""
    elements: Annotated[int, "tensor elements of the call"] = 0
    onnx_operators: Annotated[str, "ONNX operators of the graph, with blanks between; empty without one"] = ""
    conditions: Annotated[str, "what else is special about the call, with blanks between"] = ""
    exporter_passes: Annotated[str, "of a program: exporter's rules that changed the graph, with commas between"] = ""
    backend_passes: Annotated[str, "of a program: backend's optimisations that changed it, with commas between"] = ""
    model_run: Annotated[str, "of a model: change of inputs, growth of errors, tracing, first divergence; JSON"] = ""

    @property
    def case_key(self) -> CaseKey:
        """Identifies the row in its run."""
        return self.case_id, self.exported_invocation, self.converter, self.backend

    @property
    def is_open(self) -> bool:
        """Whether it would be a failure if the specification did not leave the result undefined."""
        return self.outcome.is_failure and self.blame == "spec"
