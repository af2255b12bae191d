"""A diagnosis: which component a failure is a defect of, where the defect is, and what is wrong there.

A `Testimony` is the answer of one witness: its role, its finding, a statement and named facts. A `Diagnosis` adds the
blamed component, the rule that decided, the place and the fault. Faults are a closed set of stable ids. Everything here
is data; `harness.present.evidence` turns it into sentences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from harness.core.documents import parse_data, to_data


class Finding(StrEnum):
    """The finding of a witness.

    Another computation of the same call gives: `RIGHT`, PyTorch's answer; `SAME`, the failing backend's answer;
    `OTHER`, a third answer; `REFUSES`, an error; `LACKS`, a declared gap. Of the decomposed program, `SAME` says that
    the exporter's passes make it give the failing backend's answer.

    The model is `VALID` or `INVALID`; by ONNX's rules for dtypes and shapes also `RIGHT` or `SAME`. Its precision, an
    argument that it ignores, or a constant result explain the failing backend's answer: `SAME`.

    PyTorch: `CONFIRMS`, another computation by PyTorch gives its answer; `CONTRADICTS`, another computation gives the
    backend's answer, or answers vary; `INEXACT`, PyTorch is itself far from the truth, as is the backend.

    The specification: `OPEN`, it leaves the failing aspect undefined; `SETTLED`, it defines it differently than the
    graph assumes; `INVENTED`, it leaves it undefined and only the graph depends on it.

    The graph's nodes, on the backend's own inputs: `WRONG`, one violates its definition, and the definition's result
    removes the failure; `RIGHT`, node by node they give PyTorch's answer; `SAME`, each is right and together they give
    the failing backend's answer; `SHAPE_OR_DTYPE`, the same for a wrong shape or dtype, or for a failing node whose
    shape would be wrong; `OPEN`, the specification leaves the wrong node's result undefined; `VALID` or `INVALID`, the
    failing node.

    The witness itself, without effect on the decision: `DIED`, it crashed; `RAISED`, it raised an exception.
    """

    RIGHT = "right"
    SAME = "same"
    OTHER = "other"
    REFUSES = "refuses"
    LACKS = "lacks"
    VALID = "valid"
    INVALID = "invalid"
    CONFIRMS = "confirms"
    CONTRADICTS = "contradicts"
    INEXACT = "inexact"
    WRONG = "wrong"
    SHAPE_OR_DTYPE = "shape-or-dtype"
    OPEN = "open"
    SETTLED = "settled"
    INVENTED = "invented"
    DIED = "died"
    RAISED = "raised"


#: Facts about a program: the overload of a call that fails alone as the program does; else the number of calls, and how
#: many of them fail differently or cannot run alone.
CALL_ALONE, COMPOSED, OTHERWISE = "call_alone", "composed", "otherwise"
#: Facts about a model's wrong result: the first value that departs from PyTorch's, in the form of
#: `harness.blame.first_divergence.Divergence.to_data`, or why it is unknown.
DIVERGENCE, NO_DIVERGENCE = "divergence", "no_divergence"


class Role(StrEnum):
    """The kind of a witness; the decision table of `harness.blame.decide` is written in these terms."""

    ALONE = "alone"
    """The failing backend again, on the case without the rest of its batch."""
    NODES = "nodes"
    """The definitions of the graph's operators, node by node."""
    PROGRAM = "program"
    """PyTorch on the decomposed program that the exporter translates."""
    RUNTIME = "runtime"
    """Another backend on the same model."""
    PLAIN = "plain"
    """The failing backend on the same model without graph optimisations."""
    MODEL = "model"
    """The ONNX checker and shape inference."""
    UNOPTIMISED = "unoptimised"
    """The failing backend on the export before the exporter's optimiser."""
    TRANSFORM = "transform"
    """The failing backend on the model before a transform."""
    EMISSION = "emission"
    """The converter's functions that ran, and the nodes that each emitted."""
    PASS = "pass"
    """The optimiser of the runtime or the exporter, with single passes left out."""
    CONVERTER = "converter"
    """The failing backend on another converter's export."""
    PYTORCH = "pytorch"
    """PyTorch's own kernels, called in another way."""
    OPERATOR = "operator"
    """The call itself, which is one of an ONNX operator."""
    LOWERED = "lowered"
    """PyTorch's kernels on the program that a converter passes to its runtime; for all artefacts other than ONNX."""
    DECOMPOSITION = "decomposition"
    """PyTorch's definition of the operator in terms of simpler ones."""
    META = "meta"
    """PyTorch's shape and dtype rules, which run no kernel."""
    FLOAT64 = "float64"
    """PyTorch in float64."""
    SPECIFICATION = "specification"
    """The text of the ONNX operators."""
    NARROWED = "narrowed"
    """The precision in which the graph computes, compared with the call's."""
    IGNORED = "ignored"
    """PyTorch on the call without one of its arguments."""
    CONSTANT = "constant"
    """The graph, whose result is a constant."""
    RANGE = "range"
    """The failing backend on weights of fewer bits."""
    ABSENT = "absent"
    """A witness that raised an exception."""


@dataclass(frozen=True)
class Testimony:
    """The answer of one witness.

    Attributes:
        role: The kind of the witness.
        finding: Its finding. The decision table uses only the role and the finding.
        statement: The sentence that describes it: a key of `harness.present.evidence.SENTENCES`.
        facts: Named JSON values that the sentence and the search for the place need.
        independent: Whether the witness shares no engine with the failing backend; if it does, its agreement proves
            nothing.
    """

    role: Role
    finding: Finding
    statement: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    independent: bool = True

    __test__ = False  # Not for pytest.


@dataclass(frozen=True)
class Detail:
    """The distinction between root causes with the same place and fault; few distinct values.

    Attributes:
        symptom: The ignored argument, the node that lacks a dtype, or the normalised message of an exporter or runtime
            if nothing else explains a failure.
        choice: The argument that selects one of the place's algorithms: ``rounding_mode=floor``.
        element: The kind of the wrong element, one of `harness.compare.elements`.
        has_wrong_numbers: Whether NaN or infinities are only some of the wrong elements; others are finite numbers.
    """

    symptom: str = ""
    choice: str = ""
    element: str = ""
    has_wrong_numbers: bool = False

    @property
    def text(self) -> str:
        """The detail as JSON without empty fields, as recorded; "" if all are empty."""
        given = {name: value for name, value in to_data(self).items() if value}
        return json.dumps(given) if given else ""

    @classmethod
    def from_text(cls, text: str) -> Detail:
        """Return the detail that `text` gave."""
        return _detail(text)


@lru_cache(maxsize=10_000)
def _detail(text: str) -> Detail:
    return parse_data(Detail, json.loads(text)) if text else Detail()


@dataclass(frozen=True)
class Difference:
    """The first difference between outputs, as scripts and pages show it.

    Attributes:
        output: Index of the output; None if the number of outputs is wrong.
        element: Index of the element in the output; () for a scalar, a dtype or a shape.
        expected: PyTorch's number, dtype, shape or count, as text; "" if several values are right.
        got: The backend's.
    """

    output: int | None = None
    element: tuple[int, ...] = ()
    expected: str = ""
    got: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The component that a failure is a defect of, the defect's place, and its fault.

    The decision table chooses the blame from the testimony; the place and the fault are added afterwards.

    Attributes:
        blame: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        rule: The stable id of the row of the decision table that decided: ``optimiser-breaks-graph``.
        facts: Named values that the rule's sentence needs.
        testimony: The findings of all witnesses, the most telling first.
        inherited_from: Id of the case that was examined instead, because it fails in the same way; "" if this case was
            examined.
        call: The call of a program or model that fails alone, as JSON; "" if none does. Not recorded.
        component: The component that has the defect: ``torchlib``, ``TorchScript``, ``dynamo``, ``ort-cpu``,
            ``PyTorch``, ``ONNX``, or ``rule`` for a user's conversion function.
        place: The function, kernel, pass or operator of the component.
        file: The function's file, relative to its package's folder; "" if the place is not a function.
        fault: One of `harness.compare.faults.Fault`.
        detail: The distinction between root causes with the same place and fault.
        difference: The first difference between the outputs; None if none were compared.
        rest: The diagnosis of wrong elements that this one does not explain; None if it explains all. Not recorded
            here: the case has one more problem.
    """

    blame: str
    rule: str
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    testimony: tuple[Testimony, ...] = ()
    inherited_from: str = ""
    call: str = ""
    component: str = ""
    place: str = ""
    file: str = ""
    fault: str = ""
    detail: Detail = Detail()
    difference: Difference | None = None
    rest: Diagnosis | None = None

    @property
    def json(self) -> str:
        """The parts that have no column of their own in the record: difference, facts, testimony, inheritance."""
        data = to_data(self)
        kept = {name: data[name] for name in ("rule", "file", "difference", "facts", "testimony", "inherited_from")}
        return json.dumps({name: value for name, value in kept.items() if value}, default=str)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Diagnosis | None:
        """Return the diagnosis in a row of the record; None for a pass, or if an early version wrote the row.

        Args:
            row: A row with the columns ``blame``, ``component``, ``place``, ``fault``, ``detail`` and ``diagnosis``.
        """
        if not row["diagnosis"]:
            return None
        recorded = json.loads(row["diagnosis"])
        columns = {name: row[name] for name in ("blame", "component", "place", "fault")}
        detail = json.loads(row["detail"]) if row["detail"] else {}
        return parse_data(cls, {"rule": "", **recorded, **columns, "detail": detail})


def recorded_difference(diagnosis: str) -> Difference:
    """Return the difference in the column ``diagnosis``; an empty one if no outputs were compared."""
    difference = json.loads(diagnosis).get("difference") if diagnosis else None
    return parse_data(Difference, difference) if difference else Difference()
