"""All that is known of a failure when its place is sought: typed facts, of whoever knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.blame.testimony import Decision
from harness.compare import Outcome, OutputProblem, Stage, elements
from harness.convert import exporter_messages as exporter
from harness.core import Invocation
from harness.execute import Result
from harness.generate import CallTraits, call_traits, family_name

#: Where the backend has no part in the failure yet.
BEFORE_BACKEND = frozenset({Stage.REFERENCE, Stage.CONVERT, Stage.CHECK})
#: What these say is the same for every defect ("killed by SIGSEGV"): only the operator tells.
SPEECHLESS = frozenset({Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT})


@dataclass(frozen=True, kw_only=True)
class FailureFacts:
    """What tells the place of a failure, and what is wrong there.

    Attributes:
        problem: What the comparison found; None for a failure before it.
        words: Of an exporter, checker or runtime, normalised; "" where the comparison failed.
        message: What its own message names; see `harness.convert.exporter_messages.message_facts`.
        rule: The row of the decision table that decided.
        statements: Statement → facts of the first testimony with it.
        by_operator: Whether many defects fail so, so that only the operator tells.
    """

    overload: str
    converter: str
    backend: str
    stage: Stage
    outcome: Outcome
    problem: OutputProblem | None
    words: str
    message: tuple[str, ...]
    rule: str
    statements: Mapping[str, Mapping[str, Any]]
    call: CallTraits
    by_operator: bool

    @classmethod
    def of(cls, result: Result, invocation: Invocation, converter: str, decision: Decision) -> FailureFacts:
        """The facts of a failed result."""
        problem = result.comparison.problems[0] if result.comparison and result.comparison.problems else None
        words = "" if problem else exporter.common_words(result.message)
        statements: dict[str, Mapping[str, Any]] = {}
        for testimony in decision.testimony:
            statements.setdefault(testimony.statement, testimony.facts)
        # A wrong model fails in its own way in each runtime, and says nothing of what the converter did to
        # it.
        symptom = decision.blame == "converter" and result.stage not in BEFORE_BACKEND
        return cls(
            overload=invocation.overload,
            converter=converter,
            backend=result.backend,
            stage=result.stage,
            outcome=result.outcome,
            problem=problem,
            words=words,
            message=() if problem else exporter.message_facts(result.message),
            rule=decision.rule,
            statements=statements,
            call=call_traits(invocation),
            by_operator=result.outcome in SPEECHLESS or symptom or exporter.is_generic(words),
        )

    @property
    def kind(self) -> str:
        """What the comparison found: one of `harness.compare.problem_kinds`; "" for a failure before it."""
        return self.problem.kind if self.problem else ""

    @property
    def dtypes(self) -> tuple[str, str] | None:
        """PyTorch's dtype and the backend's, where these differ."""
        return (self.problem.expected, self.problem.got) if self.problem and self.kind == "dtype" else None

    @property
    def shape_fault(self) -> str:
        """How a result's shape differs; "" where it does not, or in sizes only."""
        if self.problem is None or self.kind != "shape":
            return ""
        return _shape_fault(self.problem.expected, self.problem.got)

    @property
    def element(self) -> str:
        """The kind of the first wrong element; "" for none that tells something."""
        if self.problem is None or self.kind in ("dtype", "shape") or not self.problem.dtype:
            return ""
        return elements.wrong_element(self.problem.expected, self.problem.got, self.problem.dtype)

    @property
    def packet(self) -> str:
        """``aten.add``."""
        return self.overload.rpartition(".")[0]

    @property
    def family(self) -> str:
        """The operator under the name that its aliases and dimensions share."""
        return family_name(self.packet)

    @property
    def translated(self) -> str:
        """The one operator that computes in what the call is decomposed to; "" for several or none."""
        operators = self.statements.get("program", {}).get("operators", ())
        computing = [name for name in operators if not moves_only(name)]
        return computing[0] if len(computing) == 1 else ""


def _shape_fault(expected: Sequence[int], got: Sequence[int]) -> str:
    if len(expected) != len(got):
        return "too-few-dimensions" if len(got) < len(expected) else "too-many-dimensions"
    return "emptied" if any(g == 0 != e for e, g in zip(expected, got, strict=True)) else ""


#: Operators that only move elements, or make constants.
_MOVES = (
    *("aten._unsafe_", "aten.unsafe_", "aten.view", "aten.reshape.", "aten.expand.", "aten.permute."),
    *("aten.squeeze.", "aten.unsqueeze.", "aten.clone.", "aten.alias.", "aten.slice.", "aten.select."),
    *("aten.cat.", "aten.full.", "aten._to_copy.", "aten.scalar_tensor.", "aten.arange."),
    *("aten.constant_pad_nd.", "aten.t.", "aten.transpose.", "aten.lift_fresh_copy."),
    *("prims.convert_element_type.", "prims.broadcast_in_dim.", "prims.device_put.", "prims.iota."),
    "_operator.",
)


def moves_only(operator: str) -> bool:
    """Whether an operator of a decomposed program computes nothing."""
    return f"{operator}.".startswith(_MOVES)


def is_lossy(right: str, wrong: str) -> bool:
    """Whether a dtype does not hold all values of another; both by name."""
    held, holding = (name.replace("bfloat16", "float16") for name in (right, wrong))
    try:
        return not np.can_cast(np.dtype(held), np.dtype(holding))
    except TypeError:
        return True
