"""What became of one case with one converter and one backend."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

#: What identifies a row of a run: case id, exported invocation, converter, backend.
CaseKey: TypeAlias = tuple[str, str, str, str]


class Stage(StrEnum):
    """Where a case got to; the stage at which it ended."""

    REFERENCE = "reference"
    CONVERT = "convert"
    CHECK = "check"
    LOAD = "load"
    RUN = "run"
    COMPARE = "compare"


class Outcome(StrEnum):
    """What the ending was.

    `BUILT`: an engine was built and could not be run on this machine. `NARROWED`: the backend would
    silently compute in a narrower dtype than the model states, so its numbers answer another question.
    `SKIP`: PyTorch itself rejects the invocation, so that there is nothing to conform to.
    """

    PASS = "pass"
    MISMATCH = "mismatch"
    UNSUPPORTED = "unsupported"
    ERROR = "error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    BUILT = "built"
    NARROWED = "narrowed"
    SKIP = "skip"

    @property
    def is_failure(self) -> bool:
        """Whether an operator item fails for it."""
        return self in _FAILURES


CONVERTER, BACKEND, PYTORCH, SPEC, UNKNOWN = "converter", "backend", "pytorch", "spec", "unknown"

#: Whose code runs at a stage, and so who crashed. Comparing runs PyTorch in float64 and the harness's rules.
RUNS_AT = {
    Stage.REFERENCE: PYTORCH,
    Stage.CONVERT: CONVERTER,
    Stage.CHECK: CONVERTER,
    Stage.LOAD: BACKEND,
    Stage.RUN: BACKEND,
    Stage.COMPARE: UNKNOWN,
}

_FAILURES = frozenset({Outcome.MISMATCH, Outcome.UNSUPPORTED, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT})


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row of the record.

    Attributes:
        case_id: Identity of the invocation.
        overload: Dotted name; ``model.NAME`` for a whole model, whose inputs `invocation` has.
        family: The operator case's family.
        dtype: The invocation's main dtype.
        shape_mode: ``static`` or ``dynamic``.
        source: Where the invocation came from: ``generated``, ``opinfo``, ``corpus``,
            ``replay`` or ``model``.
        converter: Name; with its version and the opset that it emitted (None before `CHECK`).
        backend: Name; with its version and device.
        stage: Where the case ended.
        outcome: How.
        blame: ``converter``, ``backend``, ``pytorch``, ``spec``, ``unknown``; "" for no failure.
        evidence: What the blame rests on, a sentence per witness; "" for no failure.
        signature: The failure's message without shapes, values, names and addresses; "" for no failure.
        message: The failure's own words, cut to a few lines.
        max_abs_error: Over all outputs, in the values' unit; None where nothing was compared.
        max_rel_error: Likewise, a ratio.
        max_ulp_error: Likewise, in units in the last place of the expected value.
        needed_rtol: The rtol of the smallest pair that accepts all elements, see `required_tolerance`.
        needed_atol: The atol of that pair, in the values' unit.
        mismatched_elements: How many elements are wrong.
        total_elements: How many were compared.
        convert_ms: Wall time of the export; of a batch's, this case's share.
        load_ms: Likewise of loading.
        run_ms: Likewise of running.
        rule: The user's conversion functions that took part, ``my_rules.py:celu``, with commas; "" for none.
        structure_id: Shared by the cases that share an export.
        invocation: JSON.
        exported_invocation: JSON of the invocation whose shapes were exported, for a dynamic export run
            at other shapes; "" where they are the same.
        exported_id: Case id of what was exported for it; "" in records of earlier versions.
        reused_from: Run id of the earlier run in which it was found; "" where it was found in its own.
    """

    case_id: str
    overload: str
    family: str
    dtype: str
    shape_mode: str
    source: str
    converter: str
    converter_version: str
    opset: int | None
    backend: str
    backend_version: str
    device: str
    stage: Stage
    outcome: Outcome
    blame: str = ""
    evidence: str = ""
    signature: str = ""
    message: str = ""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    max_ulp_error: float | None = None
    needed_rtol: float | None = None
    needed_atol: float | None = None
    mismatched_elements: int = 0
    total_elements: int = 0
    convert_ms: float | None = None
    load_ms: float | None = None
    run_ms: float | None = None
    rule: str = ""
    structure_id: str = ""
    invocation: str = ""
    exported_invocation: str = ""
    exported_id: str = ""
    reused_from: str = ""

    @property
    def case_key(self) -> CaseKey:
        """What identifies this row in its run."""
        return self.case_id, self.exported_invocation, self.converter, self.backend

    @property
    def is_open(self) -> bool:
        """Whether this would be a failure but for a specification that leaves the result open, so that it is
        nobody's."""
        return self.outcome.is_failure and self.blame == "spec"
